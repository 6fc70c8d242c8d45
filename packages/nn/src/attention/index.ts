/** Attention: candle-nn's `attention` and `ops::sdpa`. */
export {
  causalDecodeF32Interleaved,
  type FlashOptions,
  flashAttn,
  runCausalAttnCpu,
  runFlashAttnCpu,
} from './flash';
export { AttnMask } from './mask';
export { type PackedAttentionOptions, packedAttention, Segments, Slopes } from './packed';
export {
  fusesPrompt,
  type PagedAttentionOptions,
  type PagedStep,
  pagedActivations,
  pagedAppend,
  pagedAttention,
  pagedPrompt,
} from './paged';
export { CACHE_GROUP, type PagedCache } from './paged-cache';
export { pagedUnpack } from './paged-groups';
export {
  pagedVarlen,
  TILE_NUMBERS,
  type VarlenPart,
  type VarlenTables,
  varlenRows,
  varlenTiles,
} from './paged-varlen';
export { causalBias, type SdpaOptions, sdpa } from './sdpa';
export { flashAttnVarlenCpu, flashAttnVarlenUnfused, type VarlenOptions } from './varlen';
