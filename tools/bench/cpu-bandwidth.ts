/**
 * Elementwise operations on `cpu` beside what the machine's memory gives, in one run:
 *
 *   tools/gpu/run.sh bench cpu-bandwidth [--mib 256] [--repeats 15]
 *
 * The yardstick is STREAM's copy (y[i] = x[i], bytes read and written counted once each) over arrays far larger than the
 * caches, by as many threads as the device has; in two forms: plain stores, as STREAM is compiled, and the C library's
 * memmove, which passes the caches by. An operation's GB/s count every input and output once as well. Each figure is the
 * best of its runs, as STREAM takes it, and the yardsticks run in turn with every operation, so that all meet the same
 * machine.
 */
import { parseArgs } from 'node:util';
import { Worker } from 'node:worker_threads';
import { Device, type DType, Tensor } from '../../packages/core/src';
import { RocmDevice } from '../../packages/rocm-backend/src';

const STREAM = `
#include "x.h"
// Pairs of f64 as STREAM's arrays; a chunk a thread.
KERNEL(stream_copy, (u64 n, const double* x, double* y)) {
  X_FOR_EACH_SIMD(i, n) y[i] = x[i];
}`;

/** Copies half of a shared buffer to the other when told to, and says when it has. */
const COPIER = `
const { parentPort, workerData: { buffer, from, to, bytes } } = require('node:worker_threads');
const source = new Uint8Array(buffer, from, bytes), target = new Uint8Array(buffer, to, bytes);
parentPort.on('message', () => { target.set(source); parentPort.postMessage(0); });`;

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: { mib: { type: 'string', default: '256' }, repeats: { type: 'string', default: '15' } },
  });
  const bytes = Number(values.mib) * 2 ** 20;
  const repeats = Number(values.repeats);
  const device = Device.cpu();
  const backend = device.backend;
  if (!(backend instanceof RocmDevice))
    throw new Error('cpu has no kernels here: build the addon with `pnpm run setup`.');
  const threads = backend.hip.properties.multiprocessorCount;
  const clock = async (run: () => void | Promise<void>) => {
    const begin = performance.now();
    await run();
    device.synchronizeSync();
    return performance.now() - begin;
  };

  const copyKernel = backend.getOrLoadFuncRaw('stream_copy', STREAM);
  const [x, y] = [backend.malloc(bytes), backend.malloc(bytes)];
  // Memory that was never written is one page of zeros, which is not memory.
  for (const ptr of [x, y]) backend.hip.memset(ptr, 1, bytes);
  const plain = () => copyKernel.launch(threads * 4, 1, 0, [bytes / 8, x, y]);
  const movers = new Copiers(threads, bytes);
  const move = () => movers.copy();

  const gbs = (moved: number, ms: number) => moved / ms / 1e6;
  const most = { plain: 0, memmove: 0 };
  for (const dtype of ['f32', 'f16', 'bf16'] as const) {
    for (const [op, moved, run, close] of operations(device, dtype, bytes)) {
      const best = { plain: Infinity, memmove: Infinity, op: Infinity };
      for (let i = 0; i < repeats; i++) {
        best.plain = Math.min(best.plain, await clock(plain));
        best.memmove = Math.min(best.memmove, await clock(move));
        best.op = Math.min(best.op, await clock(run));
      }
      close?.();
      const [reached, ofPlain, ofMove] = [
        gbs(moved, best.op),
        gbs(2 * bytes, best.plain),
        gbs(2 * bytes, best.memmove),
      ];
      most.plain = Math.max(most.plain, ofPlain);
      most.memmove = Math.max(most.memmove, ofMove);
      const line = { gbs: round(reached), plain: round(ofPlain / reached), memmove: round(ofMove / reached) };
      console.log(JSON.stringify({ op: `${op}_${dtype}`, ...line }));
    }
    device.emptyCache();
  }
  movers.close();
  console.log(JSON.stringify({ threads, plainGbs: round(most.plain), memmoveGbs: round(most.memmove) }));
}

type Operation = [op: string, moved: number, run: () => void, close?: () => void];

function* operations(device: Device, dtype: DType, bytes: number): Generator<Operation> {
  const size = dtype === 'f32' ? 4 : 2;
  const n = bytes / size;
  const a = Tensor.rand(0.5, 1, [n], dtype, device);
  const b = Tensor.rand(0.5, 1, [n], dtype, device);
  const to = dtype === 'f32' ? 'bf16' : 'f32';
  const mask = a.gt(0.75);
  yield ['copy', 2 * bytes, () => a.copy().dispose()];
  yield ['affine', 2 * bytes, () => a.affine(2, 1).dispose()];
  yield ['relu', 2 * bytes, () => a.relu().dispose()];
  yield ['sqrt', 2 * bytes, () => a.sqrt().dispose()];
  yield ['exp', 2 * bytes, () => a.exp().dispose()];
  yield ['add', 3 * bytes, () => a.add(b).dispose()];
  yield ['mul', 3 * bytes, () => a.mul(b).dispose()];
  yield ['where', 3 * bytes + n, () => mask.whereCond(a, b).dispose()];
  yield ['lt', 2 * bytes + n, () => a.lt(b).dispose()];
  const cast: Operation = ['cast', bytes + n * (to === 'f32' ? 4 : 2), () => a.toDtype(to).dispose()];
  cast.push(() => {
    for (const tensor of [a, b, mask]) tensor.dispose();
  });
  yield cast;
}

/** One thread each for a share of a copy by the C library. */
class Copiers {
  readonly #workers: Worker[];

  constructor(threads: number, bytes: number) {
    const buffer = new SharedArrayBuffer(2 * bytes);
    new Uint8Array(buffer).fill(1);
    const share = bytes / threads;
    this.#workers = Array.from({ length: threads }, (_, i) => {
      const workerData = { buffer, from: i * share, to: bytes + i * share, bytes: share };
      return new Worker(COPIER, { eval: true, workerData });
    });
  }

  async copy(): Promise<void> {
    const done = this.#workers.map((worker) => new Promise((resolve) => worker.once('message', resolve)));
    for (const worker of this.#workers) worker.postMessage(0);
    await Promise.all(done);
  }

  close(): void {
    for (const worker of this.#workers) void worker.terminate();
  }
}

function round(value: number): number {
  return Number(value.toFixed(2));
}

void main();
