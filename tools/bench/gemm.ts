/**
 * Matrix products through the platform's BLAS library and through our kernels, over a few shapes: the figures behind what
 * `auto` chooses (packages/rocm-backend/src/ops/gemm-library.ts).
 *
 *   tsx tools/bench/gemm.ts [cpu|cuda|rocm] [dtype,...] [m,k,n;...] [library,kernels]
 *
 * A figure is the best of several batches of products, each batch enqueued at once and waited for. `t` after a shape means
 * that the right matrix is a transposed view, as the weights of a linear layer are.
 */
import { type DType, Layout } from '@x/core';
import { RocmDevice } from '@x/rocm-backend';
import { seconds } from './seconds';

const [kind = 'cpu', dtypeList, shapeList, choiceList = 'library,kernels'] = process.argv.slice(2);
const isCpu = kind === 'cpu';
const dtypes = (dtypeList || 'f32,f16,bf16,f64').split(',') as DType[];
const shapes = (
  shapeList ||
  (isCpu ? '1,2048,2048;4,2048,2048;16,1024,1024;64,64,64;512,512,512' : '1,4096,4096;64,4096,4096;4096,4096,4096')
)
  .split(';')
  .map((shape) => shape.split(',').map(Number));

const device = RocmDevice.open(kind as 'cpu' | 'cuda' | 'rocm', 0);
console.log(device.description);
for (const { name, library, version, reason } of device.hip.libraries())
  console.log(`${name}: ${library ? `${library} ${version ?? ''}` : reason?.message}`);
for (const dtype of dtypes) {
  for (const [m, k, n] of shapes) {
    const a = device.random.uniform(m * k, dtype, -1, 1);
    const b = device.random.uniform(k * n, dtype, -1, 1);
    for (const transposed of [false, true]) {
      const right = transposed ? Layout.contiguous([1, n, k]).transpose(1, 2) : Layout.contiguous([1, k, n]);
      const figures = choiceList.split(',').map((choice) => {
        device.gemm = choice as 'library' | 'kernels';
        const taken = seconds(device, () =>
          device.ops
            .matmul(
              { storage: a, layout: Layout.contiguous([1, m, k]) },
              { storage: b, layout: right },
              { b: 1, m, n, k },
            )
            .dispose(),
        );
        const flops = (2 * m * n * k) / taken;
        return `${choice} ${(taken * 1e6).toFixed(1)} us ${(flops / (isCpu ? 1e9 : 1e12)).toFixed(1)} ${isCpu ? 'GFLOP/s' : 'TFLOP/s'}`;
      });
      console.log(`${dtype} ${[m, k, n].join('x')}${transposed ? 't' : ''}: ${figures.join(', ')}`);
    }
    a.dispose();
    b.dispose();
  }
}
device.dispose();
