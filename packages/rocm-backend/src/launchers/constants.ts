/** Written by tools/kernels/launchers.ts from constants of the kernels' headers: do not edit. */
// kernels/attention/packed.h
export const PACKED_ROWS = 64;
export const PACKED_MAX_HEAD = 256;
// kernels/attention/paged-problem.h
export const PAGED_EACH = 8;
export const PAGED_KEYS = 128;
export const PAGED_GRAIN = 32;
export const PAGED_MAX_PARTS = 64;
export const PAGED_TAIL = 4;
export const PAGED_THREADS = 128;
// kernels/attention/prompt.h
export const PROMPT_THREADS = 256;
export const PROMPT_ROWS = 64;
// kernels/attention/step.h
export const PAGED_MAX_STEP_HEAD = 256;
export const PAGED_STEP_BLOCKS = 3;
// kernels/collectives/peers.h
export const PEER_RANKS = 8;
export const PEER_BLOCKS = 128;
export const PEER_PACKS = 256;
export const PEER_ADDRESSES_AT = 512;
export const PEER_INBOX_AT = 2048;
// kernels/collectives/summed-norm.h
export const PEER_ROWS = 32;
export const PEER_ROW_FOURS = 2048;
// kernels/decode/heads.h
export const DECODE_MAX_HEAD = 512;
// kernels/decode/route.h
export const ROUTE_MAX_EXPERTS = 1024;
export const ROUTE_MAX_CHOSEN = 64;
// kernels/decode/router.h
export const ROUTER_ROWS = 2;
// kernels/recurrent/chunks.h
export const RECURRENT_CHUNK = 8;
export const RECURRENT_CHUNK_THREADS = 128;
// kernels/recurrent/conv.h
export const CONV_ROWS = 8;
// kernels/recurrent/lstm-units.h
export const LSTM_HIDDEN = 1024;
export const LSTM_UNITS = 32;
// kernels/recurrent/scan-chunks.h
export const SCAN_CHUNK_THREADS = 128;
export const SCAN_CHUNK_LANES = 4;
// kernels/recurrent/scan.h
export const SCAN_PIECE = 16;
// kernels/sort/chunk.h
export const SORT_CHUNK = 4096;
// kernels/sort/radix.h
export const SORT_RADIX_BITS = 8;
// kernels/sort/warp-row.h
export const SORT_WARP_ROW = 1024;
export const SORT_WARP_THREADS = 128;
