/**
 * Convolutions through the platform's library and through our kernels (images to columns and a product, which itself may
 * go through a BLAS library: `columns`).
 *
 *   tsx tools/bench/conv.ts [cuda|rocm|cpu] [dtype,...]
 *
 * A dtype of tf32 is f32 with `gemmReducedPrecisionF32`.
 * A figure is the best of several batches, each enqueued at once and waited for. What the library chose is in brackets.
 */
import { type Conv2dParams, type DType, Layout } from '@x/core';
import { RocmDevice } from '@x/rocm-backend';
import { seconds } from './seconds';

const [kind = 'cuda', dtypeList = 'f32,f16,bf16'] = process.argv.slice(2);
/** batch, channels in, channels out, size of the square image, of the kernel, stride. */
const SHAPES = [
  [16, 64, 64, 56, 3, 1],
  [16, 256, 256, 14, 3, 1],
  [16, 3, 64, 224, 7, 2],
  [2, 512, 512, 64, 3, 1],
  [32, 128, 256, 56, 3, 1],
];
const WAYS = {
  library: { gemm: 'auto', convolution: 'library' },
  columns: { gemm: 'auto', convolution: 'kernels' },
  kernels: { gemm: 'kernels', convolution: 'kernels' },
} as const;

const device = RocmDevice.open(kind as 'cuda' | 'rocm' | 'cpu', 0);
console.log(device.description);
for (const named of dtypeList.split(',')) {
  const dtype = (named === 'tf32' ? 'f32' : named) as DType;
  device.gemmReducedPrecisionF32 = named === 'tf32';
  for (const [b, cIn, cOut, size, k, stride] of SHAPES) {
    const padding = (k - 1) >> 1;
    const out = Math.floor((size + 2 * padding - k) / stride) + 1;
    const p: Conv2dParams = {
      b,
      cIn,
      cOut,
      groups: 1,
      hIn: size,
      wIn: size,
      kH: k,
      kW: k,
      hOut: out,
      wOut: out,
      padding,
      stride,
      dilation: 1,
    };
    const x = device.random.uniform(b * cIn * size * size, dtype, -1, 1);
    const w = device.random.uniform(cOut * cIn * k * k, dtype, -1, 1);
    const flops = 2 * b * cOut * out * out * cIn * k * k;
    const figures = Object.entries(WAYS).map(([name, way]) => {
      try {
        Object.assign(device, way);
      } catch (error) {
        return `${name} ${(error as Error).message}`;
      }
      const run = () =>
        device.conv
          .conv2d(
            { storage: x, layout: Layout.contiguous([b, cIn, size, size]) },
            { storage: w, layout: Layout.contiguous([cOut, cIn, k, k]) },
            p,
          )
          .dispose();
      const taken = seconds(device, run);
      const plan = name === 'library' && device.libraries.plans.values().at(-1)?.plan;
      const chosen = plan ? ` (${plan.algorithm})` : '';
      return `${name} ${(taken * 1e6).toFixed(0)} us ${(flops / taken / 1e12).toFixed(2)} TFLOP/s${chosen}`;
    });
    console.log(
      `${named} [${b}, ${cIn}, ${size}, ${size}] * [${cOut}, ${cIn}, ${k}, ${k}] / ${stride}: ${figures.join(', ')}`,
    );
    x.dispose();
    w.dispose();
  }
}
device.dispose();
