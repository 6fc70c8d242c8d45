/**
 * What an operation costs before its kernel runs: microseconds of JavaScript and addon on the JavaScript thread, from the
 * method's call through launch, allocation and disposal, one JSON line an op:
 *
 *   tools/gpu/run.sh bench dispatch [--device cpu] [--only REGEX] [--batches N] [--profile]
 *
 * Operands have one to six elements, so kernels do next to nothing, and on `cpu` what they do is done by another thread.
 * A figure is the median over batches of 1,000 ops; queued work is awaited between batches, outside of the time.
 * `--profile` adds where the time goes, by function, from a CPU profile of the same loops. Run the bundle that
 * `tools/gpu/bundle.ts` writes: tsx gives every closure a name when it is made, which costs as much as an op.
 */
import { Session } from 'node:inspector/promises';
import { parseArgs } from 'node:util';
import { Device, Tensor } from '../../packages/core/src';
import '../../packages/rocm-backend/src';

const BATCH = 1000;
const WARM_UP = 30;

/** Does one op and gives its result back. */
type Step = () => void;

function steps(device: Device): Record<string, { step: Step; rest?: () => void }> {
  const one = Tensor.ones([1], 'f32', device);
  const pair = Tensor.ones([2], 'f32', device);
  const tall = Tensor.ones([3, 2], 'f32', device).t();
  const square = Tensor.ones([2, 2], 'f32', device);
  let y = one.copy();
  return {
    // Each needs the one before: the chain of `launch_1000_small_adds`.
    add_number: {
      step: () => {
        const next = y.add(1);
        y.dispose();
        y = next;
      },
      // Far from where adding 1 to an f32 stops changing it.
      rest: () => {
        y.dispose();
        y = one.copy();
      },
    },
    add: { step: () => pair.add(pair).dispose() },
    exp: { step: () => pair.exp().dispose() },
    cast: { step: () => pair.toDtype('f16').dispose() },
    strided_copy: { step: () => tall.contiguous().dispose() },
    broadcast_add: { step: () => square.broadcastAdd(pair).dispose() },
    sum_last: { step: () => square.sum(-1).dispose() },
    softmax_last: { step: () => square.softmaxLastDim().dispose() },
    matmul: { step: () => square.matmul(square).dispose() },
    narrow: { step: () => pair.narrow(0, 1, 1).dispose() },
  };
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      device: { type: 'string', default: 'cpu' },
      only: { type: 'string', default: '' },
      batches: { type: 'string', default: '200' },
      profile: { type: 'boolean', default: false },
    },
  });
  const device = Device.parse(values.device);
  const wanted = new RegExp(values.only);
  const batches = Number(values.batches);
  for (const [op, { step, rest }] of Object.entries(steps(device))) {
    if (!wanted.test(op)) continue;
    const times: number[] = [];
    for (let i = -WARM_UP; i < batches; i++) {
      const us = batch(step);
      if (i >= 0) times.push(us);
      rest?.();
      await device.synchronize();
    }
    times.sort((a, b) => a - b);
    const line = { op, us: round(times[batches >> 1]), fastest: round(times[0]), slowest: round(times[batches - 1]) };
    console.log(JSON.stringify(line));
    if (values.profile) {
      for (const [place, share] of await profiled(() => runs(device, step, rest, batches))) {
        console.log(`  ${(share * line.us).toFixed(3)} us  ${(share * 100).toFixed(1).padStart(5)} %  ${place}`);
      }
    }
  }
}

/** Microseconds an op. */
function batch(step: Step): number {
  const begin = performance.now();
  for (let i = 0; i < BATCH; i++) step();
  return ((performance.now() - begin) * 1000) / BATCH;
}

async function runs(device: Device, step: Step, rest: (() => void) | undefined, batches: number): Promise<void> {
  for (let i = 0; i < batches; i++) {
    for (let n = 0; n < BATCH; n++) step();
    rest?.();
    await device.synchronize();
  }
}

/** Self time by function as shares of the time in any, the largest first; waiting does not count. */
async function profiled(body: () => Promise<void>): Promise<[place: string, share: number][]> {
  const session = new Session();
  session.connect();
  await session.post('Profiler.enable');
  await session.post('Profiler.setSamplingInterval', { interval: 1000 });
  await session.post('Profiler.start');
  await body();
  const { profile } = await session.post('Profiler.stop');
  session.disconnect();
  const samples = new Map<string, number>();
  let all = 0;
  for (const { callFrame, hitCount = 0 } of profile.nodes) {
    const { functionName, lineNumber, url } = callFrame;
    if (functionName === '(idle)' || functionName === '(root)') continue;
    const place = url ? `${functionName || '(anonymous)'} :${lineNumber + 1}` : functionName;
    samples.set(place, (samples.get(place) ?? 0) + hitCount);
    all += hitCount;
  }
  return [...samples]
    .sort(([, a], [, b]) => b - a)
    .slice(0, 25)
    .map(([place, count]) => [place, count / all]);
}

function round(us: number): number {
  return Number(us.toFixed(3));
}

void main();
