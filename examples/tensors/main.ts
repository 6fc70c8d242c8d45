// Tensors without a model: views cost nothing, ops run on the device, scope() frees what is not returned.
// Run from the repository: tsx examples/tensors/main.ts [--device cpu]
import { Device, memoryStats, scope, Tensor } from '@x/candle';
import { DEVICE, readFlags, runExample } from '../flags';

async function main(): Promise<void> {
  const values = readFlags(import.meta.url, { device: DEVICE });
  const device = values.device ? Device.parse(values.device) : await Device.auto();

  // Distances between points, by broadcasting: |a - b|² for every pair.
  using points = Tensor.arange(0, 12, { dtype: 'f32', device }).reshape([4, 3]);
  using distances = scope(() => {
    const difference = points.unsqueeze(0).broadcastSub(points.unsqueeze(1));
    return difference.sqr().sum(2).sqrt();
  });
  console.log(`distances on ${device}:`, await distances.toVec());

  // A transposed view multiplies without a copy.
  using gram = scope(() => points.matmul(points.t()));
  console.log('gram matrix:', await gram.toVec());

  // Integers, conditions, dtypes.
  using clipped = scope(() => points.gt(5).whereCond(points.zerosLike(), points).toDtype('u8'));
  console.log('values above 5 set to 0:', await clipped.toVec());

  console.log(`live tensors: ${memoryStats().liveTensors}`);
}

runExample(main);
