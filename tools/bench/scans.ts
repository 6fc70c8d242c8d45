/**
 * What a prompt takes in a layer that carries a state: microseconds of the kernels that go row by row and of those that take rows
 * by chunks, for one sequence and for many, and how far the two are apart.
 *
 *   tsx tools/bench/scans.ts [--device cuda:0] [--only REGEX] [--rows 2048]
 */
import { parseArgs } from 'node:util';
import { type BackendStorage, Device, type StatePoolPart, type StateSpans } from '../../packages/core/src';
import { RocmDevice } from '../../packages/rocm-backend/src';
import { seconds } from './seconds';

const { values } = parseArgs({
  options: {
    device: { type: 'string', default: 'auto' },
    only: { type: 'string', default: '' },
    rows: { type: 'string', default: '2048' },
  },
});
const device = values.device === 'auto' ? await Device.auto() : Device.parse(values.device);
const { backend } = device;
if (!(backend instanceof RocmDevice)) throw new Error(`${device} has no kernels to time. Name cpu, cuda:0 or rocm:0.`);
const { recurrent } = backend;
const only = new RegExp(values.only);
const total = Number(values.rows);

const made: BackendStorage[] = [];
const keep = (storage: BackendStorage) => {
  made.push(storage);
  return [storage, 0] as const;
};
const numbers = (count: number, low = -1, up = 1) => keep(backend.random.uniform(count, 'f32', low, up));
const words = (each: readonly number[]) => keep(backend.fromHost(new Uint32Array(each), 'u32'));
const rowsOf = (width: number) => ({ part: numbers(total * width), row: width });

type Run = (spans: StateSpans, pool: StatePoolPart) => BackendStorage;
interface Layer {
  name: string;
  /** Values of a sequence's state. */
  state: number;
  prepare: () => Run;
}

/** Sizes of published models. */
function decayed(
  name: string,
  rule: 'ssd' | 'delta',
  heads: number,
  keyHeads: number,
  keyDim: number,
  valueDim: number,
) {
  const prepare = (): Run => {
    const problem = {
      ...{ heads, keyHeads, keyDim, valueDim, group: heads / keyHeads },
      ...{ q: rowsOf(keyHeads * keyDim), k: rowsOf(keyHeads * keyDim), v: rowsOf(heads * valueDim), dt: rowsOf(heads) },
      ...{ dtBias: numbers(heads), a: numbers(heads, -0.5, 0) },
    };
    const [d, beta] = [numbers(heads), rowsOf(heads)];
    return (spans, pool) =>
      rule === 'ssd'
        ? recurrent.ssd({ ...problem, d, dtMin: 0, dtMax: Number.POSITIVE_INFINITY }, spans, pool)
        : recurrent.gatedDeltaRule({ ...problem, beta, scale: keyDim ** -0.5, eps: 1e-6 }, spans, pool);
  };
  return { name, state: heads * keyDim * valueDim, prepare };
}

const LAYERS: Layer[] = [
  decayed('Mamba 2, 128 heads of 64, keys 128, 8 groups', 'ssd', 128, 8, 128, 64),
  decayed('delta rule, 32 heads of 128, keys 128, 16 groups', 'delta', 32, 16, 128, 128),
  {
    name: 'selective scan, 8192 channels of 16',
    state: 8192 * 16,
    prepare: () => {
      const [channels, n] = [8192, 16];
      const weights = { dtBias: numbers(channels), a: numbers(channels * n, -1, 0), d: numbers(channels) };
      const rows = { x: rowsOf(channels), dt: rowsOf(channels), b: rowsOf(n), c: rowsOf(n) };
      return (spans, pool) => recurrent.selectiveScan({ channels, n, ...rows, ...weights }, spans, pool);
    },
  },
];

/** The largest difference of two results, as a share of the largest value. */
function apart(a: BackendStorage, b: BackendStorage): number {
  const [left, right] = [a, b].map((storage) => new Float32Array(storage.toHostSync()));
  let [difference, largest] = [0, 0];
  for (let i = 0; i < left.length; i++) {
    difference = Math.max(difference, Math.abs(left[i] - right[i]));
    largest = Math.max(largest, Math.abs(left[i]));
  }
  return difference / largest;
}

console.log(`${backend.description}, us a layer\n`);
console.log(`${''.padEnd(52)} ${'rows'.padStart(9)} ${'by rows'.padStart(9)} ${'by chunks'.padStart(9)}   apart`);
for (const { name, state, prepare } of LAYERS.filter((layer) => only.test(layer.name))) {
  const run = prepare();
  for (const sequences of [1, 16]) {
    const each = Math.floor(total / sequences);
    const places = [...Array(sequences).keys()];
    const spans: StateSpans = {
      ...{ sequences, rows: each * sequences },
      starts: words([...places, sequences].map((i) => i * each)),
      from: words(places),
      to: words(places.map((i) => sequences + i)),
    };
    const pool: StatePoolPart = { states: keep(backend.zeros(2 * sequences * state, 'f32')), slots: 2 * sequences };
    const timed = [Number.POSITIVE_INFINITY, 0].map((from) => {
      recurrent.chunksFrom = from;
      return { us: 1e6 * seconds(backend, () => run(spans, pool).dispose()), result: run(spans, pool) };
    });
    const [byRows, byChunks] = timed;
    console.log(
      `${name.padEnd(52)} ${`${sequences}x${each}`.padStart(9)} ${byRows.us.toFixed(1).padStart(9)} ` +
        `${byChunks.us.toFixed(1).padStart(9)}   ${apart(byRows.result, byChunks.result).toExponential(1)}`,
    );
    for (const { result } of timed) result.dispose();
  }
  for (const storage of made.splice(0)) storage.dispose();
}
