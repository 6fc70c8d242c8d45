/**
 * The numbers of Rust's `StdRng` (ChaCha with 12 rounds, keyed by `seed_from_u64`), which candle's tests draw their
 * tensors from: with them its expected values are ours.
 */

/** 32 bytes of key from a seed, as rand_core spreads it: one step of PCG32 for each word. */
function keyOf(seed: bigint): Uint32Array {
  const mask = (1n << 64n) - 1n;
  let state = seed & mask;
  return new Uint32Array(8).map(() => {
    state = (state * 6364136223846793005n + 11634580027462260723n) & mask;
    const word = Number((((state >> 18n) ^ state) >> 27n) & 0xffffffffn);
    const turn = Number(state >> 59n);
    return ((word >>> turn) | (word << (-turn & 31))) >>> 0;
  });
}

function chachaBlock(key: Uint32Array, counter: number): Uint32Array {
  const start = Uint32Array.of(0x61707865, 0x3320646e, 0x79622d32, 0x6b206574, ...key, counter, 0, 0, 0);
  const s = start.slice();
  const turn = (value: number, by: number) => (value << by) | (value >>> (32 - by));
  const quarter = (a: number, b: number, c: number, d: number) => {
    s[a] += s[b];
    s[d] = turn(s[d] ^ s[a], 16);
    s[c] += s[d];
    s[b] = turn(s[b] ^ s[c], 12);
    s[a] += s[b];
    s[d] = turn(s[d] ^ s[a], 8);
    s[c] += s[d];
    s[b] = turn(s[b] ^ s[c], 7);
  };
  for (let round = 0; round < 12; round += 2) {
    for (let i = 0; i < 4; i++) quarter(i, 4 + i, 8 + i, 12 + i);
    for (let i = 0; i < 4; i++) quarter(i, 4 + ((i + 1) & 3), 8 + ((i + 2) & 3), 12 + ((i + 3) & 3));
  }
  return s.map((word, i) => word + start[i]);
}

/** Floats in [0, 1) with 24 bits, one word each, as `rng.random::<f32>()`. */
export function stdRng(seed: bigint): () => number {
  const key = keyOf(seed);
  let block: Uint32Array = new Uint32Array(0);
  let at = 0;
  let counter = 0;
  return () => {
    if (at === block.length) {
      block = chachaBlock(key, counter++);
      at = 0;
    }
    return (block[at++] >>> 8) * 2 ** -24;
  };
}
