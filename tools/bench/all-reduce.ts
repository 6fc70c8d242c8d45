/**
 * What a sum over the ranks of a group takes, in a captured step and called eagerly: microseconds through peer memory and through
 * the library, a rank a device in threads of this process, one JSON line a size:
 *
 *   tools/gpu/run.sh bench all-reduce [--devices cuda:0,cuda:1] [--kib 8,64,256,1024] [--dtype f16] [--calls 200] [--mixed]
 *
 * A graph has `--calls` sums in place, one after the other, and is replayed for a tenth of a second; a figure is the least of five
 * such rounds on the slowest rank, over the sums of a round. With `--mixed` a kernel that doubles a tensor of the same size lies
 * between two of them, as a step's products do, and counts too. `through` says what the ranks agreed on. What is above the bound of
 * docs/several-devices.md goes through the library both times.
 *
 * `eager_us` is of as many calls one after the other that are not captured, until the device has made them, and `host_us` the part
 * of it until the last call has returned: what a call costs the host. Where both are the same, the host is what the device waits for.
 */
import { parseArgs } from 'node:util';
import { ranks } from '../../packages/testing/src/ranks';
import '../../packages/rocm-backend/src';

/** What a rank does: the least times of a sum, in microseconds, for each size, and whether the library computed it. */
const BODY = `
  const { Tensor } = core;
  const { hip } = device.backend;
  const figures = [];
  for (const kib of input.kib) {
    const width = input.dtype === 'f32' ? 4 : 2;
    const x = Tensor.zeros([kib * 1024 / width], { dtype: input.dtype, device });
    const other = Tensor.zeros([kib * 1024 / width], { dtype: input.dtype, device });
    const before = hip.counters().library;
    communicator.allReduceInPlace(x);
    const through = hip.counters().library > before ? 'library' : 'peers';
    const graph = device.capture(() => {
      for (let i = 0; i < input.calls; i++) {
        communicator.allReduceInPlace(x);
        if (input.mixed) other.mul(2).dispose();
      }
    });
    const replay = (times) => {
      const start = performance.now();
      for (let i = 0; i < times; i++) graph.replay();
      device.synchronizeSync();
      return (performance.now() - start) / times;
    };
    replay(3);
    // As many on every rank: they wait for each other.
    const own = Tensor.from([replay(3)], { dtype: 'f32', device });
    const ms = (await communicator.allReduce(own, 'max').toArray())[0];
    own.dispose();
    const times = Math.max(1, Math.min(1000, Math.round(100 / ms)));
    let best = Number.POSITIVE_INFINITY;
    for (let round = 0; round < 5; round++) best = Math.min(best, replay(times));
    let [eager, host] = [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY];
    for (let round = 0; round < 5; round++) {
      const start = performance.now();
      for (let i = 0; i < input.calls; i++) communicator.allReduceInPlace(x);
      host = Math.min(host, performance.now() - start);
      device.synchronizeSync();
      eager = Math.min(eager, performance.now() - start);
    }
    const perCall = (ms) => (ms * 1000) / input.calls;
    const us = { captured: perCall(best), eager: perCall(eager), host: perCall(host) };
    figures.push({ through, us, isCaptured: graph.isCaptured });
    for (const one of [graph, x, other]) one.dispose();
  }
  return figures;`;

const TIMES = ['captured', 'eager', 'host'] as const;

interface Figure {
  through: string;
  us: Record<(typeof TIMES)[number], number>;
  isCaptured: boolean;
}

async function measured(devices: string[], input: { kib: number[] }): Promise<Figure[]> {
  const outcomes = await ranks(devices.length, BODY, { device: devices, input, timeoutMs: 30_000 });
  const all = outcomes.map(({ value, error }) => {
    if (error) throw new Error(error.message);
    return value as Figure[];
  });
  return input.kib.map((_, i) => {
    const slowest = TIMES.map((time) => [time, Math.max(...all.map((figures) => figures[i].us[time]))]);
    return { ...all[0][i], us: Object.fromEntries(slowest) as Figure['us'] };
  });
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      devices: { type: 'string', default: 'cuda:0,cuda:1' },
      kib: { type: 'string', default: '8,64,256,1024' },
      dtype: { type: 'string', default: 'f16' },
      calls: { type: 'string', default: '200' },
      mixed: { type: 'boolean', default: false },
    },
  });
  const devices = values.devices.split(',');
  const { dtype, mixed } = values;
  const kib = values.kib.split(',').map(Number);
  const input = { kib, dtype, mixed, calls: Number(values.calls) };
  process.env.X_PEER = '1';
  const peers = await measured(devices, input);
  // Threads have the environment as it is when they start.
  process.env.X_PEER = '0';
  const library = await measured(devices, input);
  const rounded = (us: number) => Math.round(us * 100) / 100;
  kib.forEach((size, i) => {
    const { through, us, isCaptured } = peers[i];
    const other = library[i].us;
    const figure = {
      kib: size,
      dtype,
      mixed,
      through,
      isCaptured,
      us: rounded(us.captured),
      library_us: rounded(other.captured),
      ratio: rounded(other.captured / us.captured),
      eager_us: rounded(us.eager),
      library_eager_us: rounded(other.eager),
      host_us: rounded(us.host),
      library_host_us: rounded(other.host),
    };
    console.log(JSON.stringify(figure));
  });
}

void main();
