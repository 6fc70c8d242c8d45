/** Steps of optimisers, a launch a variable: the module OPTIM. */
import { type AdamProblem, Layout, type Operand, type OptimOps, type StoragePart } from '@x/core';
import type { KernelDevice } from '../device';
import { kernelName } from '../kernel-name';
import { launchAdam, launchScaleBy, launchSquares } from '../launchers/optim';
import type { KernelStorage } from '../storage';
import { filled } from './result';

/** Elements of a part of a sum of squares, and threads that add one up on GPUs. */
const PART = 2 ** 15;
const BLOCK = 256;

export function optimOps(device: KernelDevice): OptimOps {
  return {
    adam({ count, value, grad, first, second, ...factors }: AdamProblem): void {
      if (count === 0) return;
      const [values, gradient, firsts, seconds] = [value, grad, first, second].map((part) => device.address(part));
      const addresses = { grad: gradient, value: values, first: firsts, second: seconds };
      const kernel = kernelName('adam', value[0].dtype);
      launchAdam(device, kernel, device.shapes.perItem(count), { count, ...addresses, ...factors });
    },

    squaredNorm(operands: readonly Operand[]): KernelStorage {
      const { dtype } = operands[0].storage;
      const counts = operands.map(({ layout }) => layout.elemCount);
      const parts = counts.map((count) => Math.ceil(count / PART));
      const total = parts.reduce((sum, count) => sum + count, 0);
      const sums = device.allocUninit(total, dtype);
      try {
        let at = 0;
        for (const [i, operand] of operands.entries()) {
          if (counts[i] === 0) continue;
          const shape = device.shapes.isHost
            ? device.shapes.rows(parts[i], counts[i] / parts[i], 16)
            : { grid: device.shapes.blocks(parts[i], BLOCK), block: BLOCK };
          const { ptr: grad } = device.view(operand);
          const place = device.address([sums, at]);
          launchSquares(device, kernelName('squares', dtype), shape, {
            count: counts[i],
            parts: parts[i],
            grad,
            sums: place,
          });
          at += parts[i];
        }
        return device.ops.reduce('sum', { storage: sums, layout: Layout.contiguous([total]) }, [0]) as KernelStorage;
      } finally {
        sums.dispose();
      }
    },

    scaleBy(x: Operand, factor: StoragePart): KernelStorage {
      const { dtype } = x.storage;
      const { elemCount } = x.layout;
      return filled(device, dtype, elemCount, (to) => {
        const args = { count: elemCount, factor: device.address(factor), from: device.view(x).ptr, to };
        launchScaleBy(device, kernelName('scale_by', dtype), device.shapes.perItem(elemCount), args);
      });
    },
  };
}
