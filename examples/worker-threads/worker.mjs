// A thread of the example: multiplies the rows that it is sent by the matrix that all threads share, and ends. Plain
// JavaScript, because a thread does not inherit the TypeScript loader of the program that starts it.
import { parentPort, workerData } from 'node:worker_threads';
import { Device, scope, Tensor } from '@x/candle';

parentPort.once('message', async (rows) => {
  const device = Device.parse(workerData.device);
  const product = scope(() => {
    const [left, right] = [rows, workerData.right].map((shared) => Tensor.fromShared(shared, device));
    return left.matmul(right);
  });
  parentPort.postMessage(await product.toShared());
  product.dispose();
});
