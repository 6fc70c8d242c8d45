// Two threads share the work of one matrix product: each gets some rows of the left matrix, both see the one copy of the
// right one, and the parts come back through shared memory. Posting a tensor copies nothing; a thread makes a tensor of its
// own of it, on its own device. Run from the repository:
//   tsx examples/worker-threads/main.ts [--device cpu] [--size 512] [--json]
import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import { Device, type SharedTensor, scope, Tensor } from '@x/candle';
import { DEVICE, JSON_FLAG, readFlags, runExample } from '../flags';

const THREADS = 2;

/** What worker.mjs starts with. */
interface ThreadData {
  /** The name of the device to compute on; every thread opens its own. */
  device: string;
  right: SharedTensor;
}

async function main(): Promise<void> {
  const values = readFlags(import.meta.url, {
    device: DEVICE,
    size: { type: 'number', help: 'rows and columns of the matrices', default: 512, from: 2 },
    json: JSON_FLAG,
  });
  const device = values.device ? Device.parse(values.device) : await Device.auto();
  const { size } = values;
  device.setSeed(1);
  using left = Tensor.randn(0, 1, [size, size], 'f32', device);
  using right = Tensor.randn(0, 1, [size, size], 'f32', device);

  const workerData: ThreadData = { device: `${device}`, right: await right.toShared() };
  const parts = await Promise.all(
    left.chunk(THREADS, 0).map(async (rows) => {
      using part = rows;
      const worker = new Worker(new URL('./worker.mjs', import.meta.url), { workerData });
      worker.postMessage(await part.toShared());
      const [product] = (await once(worker, 'message')) as [SharedTensor];
      await once(worker, 'exit');
      return Tensor.fromShared(product, device);
    }),
  );

  using error = scope(() => Tensor.cat(parts, 0).sub(left.matmul(right)).abs().maxAll());
  const difference = Number(await error.toScalar());
  const sharedBytes = workerData.right.bytes.byteLength;
  if (values.json)
    console.log(JSON.stringify({ device: `${device}`, threads: THREADS, size, sharedBytes, difference }));
  else {
    console.log(`[${size}, ${size}] x [${size}, ${size}] by ${THREADS} threads on ${device}`);
    parts.forEach((part, i) => {
      console.log(`  thread ${i + 1}: rows [${part.shape}]`);
    });
    console.log(`${sharedBytes} bytes of the right matrix were shared; one thread's product differs by ${difference}`);
  }
}

runExample(main);
