/**
 * Products of activation rows with quantized weights, by each family of kernels: the figures behind what
 * packages/rocm-backend/src/ops/quantized.ts chooses. One row has the kernels for vectors.
 *
 *   tsx tools/bench/quantized-matmul.ts [cpu|cuda|rocm] [type,...] [m,k,n;...] [choice,...]
 *
 * A figure is the best of several batches of products, each batch enqueued at once and waited for; it contains rounding
 * the activations to q8_1. Weights are random bytes: the time does not depend on them.
 */
import { BLOCK_TYPES, type BlockType, Layout } from '@x/core';
import { type QuantizedChoice, RocmDevice } from '@x/rocm-backend';
import { seconds } from './seconds';

const [kind = 'cpu', typeList, shapeList, choiceList] = process.argv.slice(2);
const isCpu = kind === 'cpu';
const types = (typeList || 'q4_0,q4_1,q5_0,q5_1,q8_0,q2_K,q3_K,q4_K,q5_K,q6_K').split(',') as BlockType[];
const shapes = (
  shapeList ||
  (isCpu ? '64,1024,1024' : '16,4096,14336;64,4096,14336;64,14336,4096;512,4096,14336;512,14336,4096;2048,4096,14336')
)
  .split(';')
  .map((shape) => shape.split(',').map(Number));

const device = RocmDevice.open(kind as 'cpu' | 'cuda' | 'rocm', 0);
console.log(device.description);
for (const type of types) {
  const format = BLOCK_TYPES[type];
  for (const [m, k, n] of shapes) {
    const bytes = new Uint8Array(((n * k) / format.blockSize) * format.blockBytes);
    for (let i = 0; i < bytes.length; i++) bytes[i] = Math.imul(i, 2654435761) >>> 24;
    const weight = device.fromHost(bytes, 'u8');
    const x = device.random.uniform(m * k, 'f32', -1, 1);
    const usual = m === 1 ? 'auto' : isCpu ? 'auto,dp4a' : 'dp4a,mma,stream,dense';
    const choices = (choiceList || usual).split(',') as QuantizedChoice[];
    const figures = choices.map((choice) => {
      device.quantized.choice = choice;
      const taken = seconds(device, () =>
        device.quantized.matmul(weight, type, { m, n, k }, { storage: x, layout: Layout.contiguous([m, k]) }).dispose(),
      );
      const rate = (2 * m * n * k) / taken / (isCpu ? 1e9 : 1e12);
      const read = bytes.length / taken / 1e9;
      return `${choice} ${(taken * 1e6).toFixed(1)} us ${rate.toFixed(1)} ${isCpu ? 'GOP/s' : 'TOP/s'} ${read.toFixed(0)} GB/s`;
    });
    console.log(`${type} ${[m, k, n].join('x')}: ${figures.join(', ')}`);
    weight.dispose();
    x.dispose();
  }
}
device.dispose();
