/**
 * Pooling and resizing, in the module CONV; the kernels take any strides. Their names of axes are candle's: in pools and the
 * nearest upsampling `w` is dimension 2 and `h` dimension 3, in the bilinear one the other way round.
 */
import type { BilinearParams, Operand, Pool2dParams, ResamplingOps } from '@x/core';
import type { KernelDevice } from '../device';
import {
  launchMaxPool2dBackward,
  launchPool2d,
  launchUpsampleBilinear2d,
  launchUpsampleNearest1d,
  launchUpsampleNearest2d,
} from '../launchers/conv';
import type { KernelStorage } from '../storage';
import { filled } from './result';

export function resamplingOps(device: KernelDevice): ResamplingOps {
  return {
    avgPool2d: (x, params) => pool(device, 'avg', x, params),
    maxPool2d: (x, params) => pool(device, 'max', x, params),

    maxPool2dBackward(x: Operand, maxima: Operand, grad: Operand, params: Pool2dParams): KernelStorage {
      const { dtype } = x.storage;
      const { elemCount } = x.layout;
      return filled(device, dtype, elemCount, (dst) => {
        const [top, given] = [maxima, grad].map((part) => device.view(part).ptr);
        const args = { ...windowsOf(x, params), ...source(device, x), top, grad: given, dst };
        launchMaxPool2dBackward(device, `max_pool2d_backward_${dtype}`, device.shapes.perItem(elemCount), args);
      });
    },

    upsampleNearest1d(x: Operand, lOut: number): KernelStorage {
      const { dtype } = x.storage;
      const [b, c, l] = x.layout.shape;
      const count = b * c * lOut;
      return filled(device, dtype, count, (dst) => {
        const shape = device.shapes.elementwise(count);
        const args = { wOut: lOut, wScale: l / lOut, ...source(device, x), dst };
        launchUpsampleNearest1d(device, `upsample_nearest1d_${dtype}`, shape, args);
      });
    },

    upsampleNearest2d(x: Operand, hOut: number, wOut: number): KernelStorage {
      const { dtype } = x.storage;
      const [b, c, h, w] = x.layout.shape;
      const count = b * c * hOut * wOut;
      return filled(device, dtype, count, (dst) => {
        const sizes = { wOut: hOut, hOut: wOut, wScale: h / hOut, hScale: w / wOut };
        const shape = device.shapes.elementwise(count);
        launchUpsampleNearest2d(device, `upsample_nearest2d_${dtype}`, shape, { ...sizes, ...source(device, x), dst });
      });
    },

    upsampleBilinear2d(x: Operand, { hOut, wOut, alignCorners, scaleH, scaleW }: BilinearParams): KernelStorage {
      const { dtype } = x.storage;
      const [b, c] = x.layout.shape;
      const count = b * c * hOut * wOut;
      return filled(device, dtype, count, (dst) => {
        const shape = device.shapes.elementwise(count);
        launchUpsampleBilinear2d(device, `upsample_bilinear2d_${dtype}`, shape, {
          wOut,
          hOut,
          alignCorners,
          hasScaleH: scaleH !== undefined,
          scaleH: scaleH ?? 0,
          hasScaleW: scaleW !== undefined,
          scaleW: scaleW ?? 0,
          ...source(device, x),
          dst,
        });
      });
    },
  };
}

function pool(device: KernelDevice, kind: 'avg' | 'max', x: Operand, p: Pool2dParams): KernelStorage {
  const { dtype } = x.storage;
  const [b, c] = x.layout.shape;
  const count = b * c * p.hOut * p.wOut;
  return filled(device, dtype, count, (dst) => {
    const shape = device.shapes.perItem(count);
    launchPool2d(device, `${kind}_pool2d_${dtype}`, shape, { ...windowsOf(x, p), ...source(device, x), dst });
  });
}

function windowsOf(x: Operand, { kH, kW, strideH, strideW }: Pool2dParams) {
  return { srcNumel: x.layout.elemCount, wK: kH, hK: kW, wStride: strideH, hStride: strideW };
}

/** The image and its info, which is never null here. */
function source(device: KernelDevice, x: Operand): { info: number; src: number } {
  const { ptr: info } = device.infoFor(x.layout.shape, x.layout.strides);
  return { info, src: device.view(x).ptr };
}
