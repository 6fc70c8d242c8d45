/** Attention: candle-nn's `attention` and `ops::sdpa`. */
export {
  causalDecodeF32Interleaved,
  type FlashOptions,
  flashAttn,
  runCausalAttnCpu,
  runFlashAttnCpu,
} from './flash';
export { AttnMask } from './mask';
export { type PagedAttentionOptions, type PagedCache, pagedActivations, pagedAppend, pagedAttention } from './paged';
export { causalBias, type SdpaOptions, sdpa } from './sdpa';
export { flashAttnVarlenCpu, flashAttnVarlenUnfused, type VarlenOptions } from './varlen';
