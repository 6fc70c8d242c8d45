/** The families of fast kernels that occupancy.ts reports: which kernels, launched how, and how their lanes use LDS banks. */
import type { KernelInfo } from '@x/kernels';

export interface Family {
  name: string;
  modules: string[];
  pattern: RegExp;
  /** Threads of a usual block, by the lanes of a wave: packages/rocm-backend/src/launch-shape.ts. */
  threads: (lanes: number) => number;
  /** Dynamic shared memory of a usual launch, by the size of the kernel's type. */
  dynamicLds?: (itemBytes: number) => number;
  /** Accesses that the LDS makes for one of 32 lanes' words, at worst; and which words. */
  banks: string;
}

const BANKS = 32;

/** How many different words of one bank the lanes ask for at worst; 1 is free of conflicts. */
export function worstConflict(wordOf: (lane: number) => number, lanes = BANKS): number {
  const words = Array.from({ length: BANKS }, () => new Set<number>());
  for (let lane = 0; lane < lanes; lane++) words[wordOf(lane) % BANKS]!.add(wordOf(lane));
  return Math.max(...words.map((set) => set.size));
}

/** Reading a column of the tiles of kernels/fill/transpose.h, `size` bytes an element. */
export function transposeConflict(size: 1 | 2 | 4 | 8): number {
  const width = size < 4 ? 4 / size : 1;
  const across = size === 4 ? 64 : 32;
  const pitch = across * width + width;
  const wordOf = (round: number) => (lane: number) => {
    const at = width === 1 ? 0 : (round + Math.floor(lane / (across / width))) % width;
    return Math.floor(((lane * width + at) * pitch * size) / 4);
  };
  // 8 bytes a lane go in two halves of 16 lanes.
  return Math.max(...Array.from({ length: width }, (_, round) => worstConflict(wordOf(round), size === 8 ? 16 : 32)));
}

/** A step of the network of kernels/sort/chunk.h: lane `g` at distance 2^low, words with a gap after every 16. */
export function sortConflict(low: number): number {
  return worstConflict((g) => {
    const base = (Math.floor(g / 2 ** low) << (low + 3)) | (g % 2 ** low);
    return base + Math.floor(base / 16);
  });
}

function most(values: number[]): string {
  return `${Math.max(...values)}`;
}

const USUAL = () => 256;
const NONE = 'no LDS';
const BY_THREAD = '1, a word a thread';
const BY_WAVE = '1, a word a wave';

export const FAMILIES: readonly Family[] = [
  {
    name: 'elementwise',
    modules: ['affine', 'binary', 'cast', 'fill', 'ternary', 'unary'],
    pattern: /^(?!transpose_)/,
    threads: USUAL,
    banks: NONE,
  },
  { name: 'rows_*', modules: ['reduce'], pattern: /^rows_/, threads: USUAL, banks: NONE },
  { name: 'cols_*', modules: ['reduce'], pattern: /^cols_(?!done_)/, threads: USUAL, banks: BY_THREAD },
  { name: 'softmax', modules: ['reduce'], pattern: /^softmax_/, threads: USUAL, banks: BY_WAVE },
  { name: 'rmsnorm', modules: ['reduce'], pattern: /^rmsnorm_/, threads: USUAL, banks: BY_WAVE },
  { name: 'layernorm', modules: ['reduce'], pattern: /^layernorm_/, threads: USUAL, banks: BY_WAVE },
  {
    name: 'transpose',
    modules: ['fill'],
    pattern: /^transpose_/,
    threads: USUAL,
    banks: `${most([1, 2, 4, 8].map((size) => transposeConflict(size as 1)))}, columns of a padded tile`,
  },
  { name: 'index_select', modules: ['indexing'], pattern: /^is_/, threads: USUAL, banks: NONE },
  {
    name: 'sort_chunk, 1,024 columns',
    modules: ['sort'],
    pattern: /^sort_chunk_/,
    threads: () => 128,
    dynamicLds: (itemBytes) => (itemBytes === 8 ? 10240 : 1088 * (itemBytes === 4 ? 8 : 4)),
    banks: `${most([0, 1, 2, 3, 4, 5, 6].map(sortConflict))}, words with gaps`,
  },
  { name: 'sort_warp', modules: ['sort'], pattern: /^sort_warp_/, threads: () => 128, banks: 'by digit' },
  { name: 'sort_radix', modules: ['sort'], pattern: /^sort_radix_/, threads: USUAL, banks: 'by digit' },
  { name: 'topk', modules: ['sort'], pattern: /^topk_/, threads: () => 1024, banks: 'counters by digit' },
  { name: 'gemv', modules: ['gemm'], pattern: /^gemv_/, threads: () => 512, banks: BY_THREAD },
  {
    name: 'mul_mat_vec',
    modules: ['quantized'],
    pattern: /^mul_mat_vec_/,
    threads: (lanes) => lanes * 4,
    banks: BY_WAVE,
  },
];

const WIDE = /_(?:i64|f64)$/;
const WORD = /_(?:u32|i32|f32)$/;

/** Shared memory of a usual launch, in bytes a block. */
export function ldsBytesOf(family: Family, { name, ldsBytes }: Pick<KernelInfo, 'name' | 'ldsBytes'>): number {
  const itemBytes = WIDE.test(name) ? 8 : WORD.test(name) ? 4 : 2;
  return (ldsBytes ?? 0) + (family.dynamicLds?.(itemBytes) ?? 0);
}
