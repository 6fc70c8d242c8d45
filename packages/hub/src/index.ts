/** Models from the Hugging Face hub: which files a name means, their download, and the cache that they share with others. */
export { HubError, type HubErrorCode } from './errors';
export { type CachedModel, type CacheOptions, list, type Removed, remove } from './inventory';
export { acquire as lockFile, type LockOptions, type Release } from './lock';
export { formatName, type HubName, isHubName, parseName } from './name';
export { type PulledModel, type PullOptions, type PullProgress, pull, type ResolvedModel, resolve } from './pull';
export type { HubOptions } from './settings';
