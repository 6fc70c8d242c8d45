/**
 * What each kernel of a decode step takes in a graph, where it follows its like and the host has no part: microseconds, the best
 * of several replays. Weights lie in as many copies as no cache holds.
 *
 *   tsx tools/bench/decode-kernels.ts [--device cuda:0] [--type q4_K] [--only REGEX]
 */
import { parseArgs } from 'node:util';
import { randomBlocks } from '@x/testing/quantized/random-blocks';
import { type BackendStorage, type BlockType, Device, Layout, type StoragePart } from '../../packages/core/src';
import { blockFormat, QTensor } from '../../packages/quantized/src';
import { RocmDevice } from '../../packages/rocm-backend/src';

/** Bytes of weights that a graph goes through: several times what caches hold. */
const ROUND_BYTES = 2 ** 28;
const LAUNCHES = 64;
const ROUNDS = 15;
const BLOCK = 32;
const VOCABULARY = 128256;

/** Sizes of published models. */
const LAYERS = [
  { name: 'Llama 3.1 8B', hidden: 4096, inner: 14336, heads: 32, kvHeads: 8, d: 128 },
  { name: 'Llama 3.2 1B', hidden: 2048, inner: 8192, heads: 32, kvHeads: 8, d: 64 },
];
const MIXTURES = [
  { name: 'Qwen 3 30B-A3B', hidden: 2048, experts: 128, chosen: 8, width: 768 },
  { name: 'Granite 3.1 3B-A800M', hidden: 1536, experts: 40, chosen: 8, width: 512 },
];

const { values } = parseArgs({
  options: {
    device: { type: 'string', default: 'auto' },
    type: { type: 'string', default: 'q4_K' },
    only: { type: 'string', default: '' },
  },
});
const device = values.device === 'auto' ? await Device.auto() : Device.parse(values.device);
const { backend } = device;
if (!(backend instanceof RocmDevice)) throw new Error(`${device} has no kernels to time. Name cpu, cuda:0 or rocm:0.`);
const only = new RegExp(values.only);
const type = values.type as BlockType;
const { blockBytes, blockSize } = blockFormat(type);

const numbers = (count: number) => backend.random.uniform(count, 'f32', -1, 1);
const words = (each: readonly number[]) => backend.fromHost(new Uint32Array(each), 'u32');
const whole = (storage: BackendStorage): StoragePart => [storage, 0];
const bytesOf = (count: number) => (count / blockSize) * blockBytes;

/** Copies of a weight of random blocks. */
function weights(shape: readonly number[], of = type): BackendStorage[] {
  const count = shape.reduce((product, size) => product * size, 1);
  const bytes = randomBlocks(of, count / blockFormat(of).blockSize, 1);
  const copies = Math.max(2, Math.ceil(ROUND_BYTES / bytes.length));
  return Array.from({ length: copies }, () => {
    const { data } = QTensor.fromBytes(of, [...shape], bytes, device);
    return data.storageAndLayout().storage;
  });
}

function inBlocks(width: number, m = 1): BackendStorage {
  const x = { storage: numbers(m * width), layout: Layout.contiguous([m, width]) };
  return backend.quantized!.quantizeActivations(x, { m, k: width });
}

/** Gives what it made. */
type Launch = (i: number) => readonly BackendStorage[];

/** @param prepare makes the operands, which stay to the end */
function time(name: string, prepare: () => Launch): void {
  if (!only.test(name)) return;
  const launch = prepare();
  const run = () => {
    for (let i = 0; i < LAUNCHES; i++) for (const made of launch(i)) made.dispose();
  };
  run();
  const { hip } = backend as RocmDevice;
  const stream = hip.defaultStream;
  stream.beginCapture();
  run();
  const graph = stream.endCapture();
  const exec = graph.instantiate();
  const [start, end] = [hip.createEvent(), hip.createEvent()];
  let best = Number.POSITIVE_INFINITY;
  for (let round = 0; round < ROUNDS; round++) {
    start.record(stream);
    exec.launch(stream);
    end.record(stream);
    end.synchronizeSync();
    best = Math.min(best, end.elapsedMs(start));
  }
  for (const resource of [exec, graph, start, end]) resource.dispose();
  console.log(`${name.padEnd(48)} ${((best * 1000) / LAUNCHES).toFixed(2)}`);
}

function normOf(hidden: number, as: 'blocks' | 'both') {
  const [x, delta, alpha] = [numbers(hidden), numbers(hidden), numbers(hidden)].map(whole);
  return () => {
    const made = backend.decode!.norm({ rows: 1, n: hidden, eps: 1e-5, x, delta, alpha }, as);
    return [made.normed, made.sum!, ...(made.blocks ? [made.blocks] : [])];
  };
}

function product(n: number, k: number, of = type) {
  const [copies, x] = [weights([n, k], of), inBlocks(k)];
  const { quantized } = backend as RocmDevice;
  return (i: number) => [quantized.matmulActivations(copies[i % copies.length], of, { m: 1, n, k }, x)];
}

/** Weights of n rows each in `type`, and of as many in q6_K as the last one says, in one launch or in two. */
function mixedProduct([n, last]: readonly [number, number], k: number, launches: 1 | 2) {
  const both = [weights([n, k]), weights([last, k], 'q6_K')];
  const x = inBlocks(k);
  const { quantized } = backend as RocmDevice;
  const parts = (i: number) => [
    { weight: both[0][i % both[0].length], type, n },
    { weight: both[1][i % both[1].length], type: 'q6_K' as const, n: last },
  ];
  if (launches === 1) return (i: number) => [quantized.matmulBeside(parts(i), { m: 1, k }, x)!];
  return (i: number) =>
    parts(i).map(({ weight, type, n }) => quantized.matmulActivations(weight, type, { m: 1, n, k }, x));
}

function attention({ heads, kvHeads, d }: (typeof LAYERS)[number], length: number) {
  const table = 2 * Math.ceil(length / BLOCK);
  const row = (heads + 2 * kvHeads) * d;
  const size = table * BLOCK * kvHeads * d;
  const pools = Array.from({ length: 8 }, () => [0, 1].map(() => whole(backend.zeros(size, 'f16'))));
  const [qkv, cos, sin] = [numbers(row), numbers((length * d) / 2), numbers((length * d) / 2)];
  const last = whole(words([length - 1]));
  const at = {
    tables: whole(words([...Array(table).keys()])),
    sequences: 1,
    maxBlocks: table,
    lengths: whole(words([length])),
  };
  const from = {
    ...{ tokens: 1, heads, q: whole(qkv), qRow: row, k: [qkv, heads * d] as const, kRow: row },
    ...{ v: [qkv, (heads + kvHeads) * d] as const, vRow: row, eps: 1e-5, rotated: d, interleaved: false, scale: 0.1 },
    ...{ cos: whole(cos), sin: whole(sin), tableRow: d / 2, tableLength: length, positions: last, slots: last },
  };
  const problem = { tokens: 1, heads, scale: 1, window: 0, softcap: 0 };
  return (i: number) => {
    const [keys, values] = pools[i % pools.length];
    const pool = { keys, values, valueRow: d, blocks: table, blockSize: BLOCK, kvHeads, d, dv: d };
    return [backend.pagedAttention!.step(from, problem, pool, at)];
  };
}

console.log(`${backend.description}, ${type}, us a launch\n`);
for (const layer of LAYERS) {
  const { name, hidden, inner, heads, kvHeads, d } = layer;
  const gateUp = numbers(2 * inner);
  const gate = {
    rows: 1,
    n: inner,
    gate: whole(gateUp),
    gateRow: 2 * inner,
    up: [gateUp, inner] as const,
    upRow: 2 * inner,
  };
  time(`${name}: norm`, () => normOf(hidden, 'blocks'));
  time(`${name}: queries, keys and values`, () => product((heads + 2 * kvHeads) * d, hidden));
  for (const launches of [1, 2] as const) {
    const rows = [(heads + kvHeads) * d, kvHeads * d] as const;
    time(`${name}: the same, values in q6_K, ${launches} launches`, () => mixedProduct(rows, hidden, launches));
  }
  for (const length of [1, 64, 144, 600]) time(`${name}: attention of ${length}`, () => attention(layer, length));
  time(`${name}: output`, () => product(hidden, heads * d));
  time(`${name}: gate and up`, () => product(2 * inner, hidden));
  time(`${name}: activation`, () => () => [backend.decode!.gated('silu', gate, 'blocks')]);
  time(`${name}: down`, () => product(hidden, inner));
  time(`${name}: down in q6_K`, () => product(hidden, inner, 'q6_K'));
  time(`${name}: head in q6_K`, () => product(VOCABULARY, hidden, 'q6_K'));
}
for (const { name, hidden, experts, chosen, width } of MIXTURES) {
  const ids = Array.from({ length: 16 }, (_, i) =>
    whole(words([...Array(chosen).keys()].map((j) => (37 * i + 13 * j) % experts))),
  );
  const choice = (i: number) => ({ tokens: 1, topk: chosen, ids: ids[i % ids.length], type });
  time(`${name}: norm`, () => normOf(hidden, 'both'));
  time(`${name}: router`, () => {
    const rules = { tokens: 1, experts, chosen, scores: 'softmax', renormalise: true, scale: 1 } as const;
    const [x, weight] = [whole(numbers(hidden)), whole(numbers(experts * hidden))];
    return () => Object.values(backend.experts!.router({ ...rules, hidden, rows: experts, x, weight }));
  });
  time(`${name}: experts' gate and up`, () => {
    const [both, x] = [weights([experts, 2 * width, hidden]), inBlocks(hidden)];
    return (i) => {
      const one = both[i % both.length];
      const parts = { gate: whole(one), up: [one, bytesOf(experts * width * hidden)] as const };
      return [backend.quantizedExperts!.gated({ ...choice(i), n: width, k: hidden, ...parts, activation: 'silu', x })];
    };
  });
  time(`${name}: experts' down`, () => {
    const [down, x, mix] = [weights([experts, hidden, width]), inBlocks(width, chosen), whole(numbers(chosen))];
    return (i) => {
      const sizes = { n: hidden, k: width, weights: whole(down[i % down.length]) };
      return [backend.quantizedExperts!.mixed({ ...choice(i), ...sizes, mix, x })];
    };
  });
}
