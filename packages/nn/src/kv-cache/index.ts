/** Keys and values of the tokens so far: candle-nn's `kv_cache` (kv_cache.rs), a file a kind of cache. */
export { Cache, KvCache } from './cache';
export { ConcatKvCache, InterleavedKvCache } from './concat';
export { RotatingCache, RotatingKvCache } from './rotating';
export { type IndicesAndMask, ScatteredCacheBuilder, ScatteredKvCache } from './scattered';
