/** Running sums, in the module REDUCE: by blocks along rows, by a thread a column otherwise. */
import type { Operand, ScanOps } from '@x/core';
import type { KernelDevice } from '../device';
import { kernelName } from '../kernel-name';
import { launchCumsum } from '../launchers/reduce';
import type { KernelStorage } from '../storage';
import { withContiguous } from './copy';
import { filled } from './result';

/** A block or thread takes this many elements, one after the other, in the time of several launches. */
const MAX_ROW = 65_536;
const MAX_COLUMN = 2048;
/** Columns that keep a GPU's memory busy, a thread each. */
const MANY_COLUMNS = 8192;
/** Columns that the host takes together (kernels/reduce/scan.h). */
const HOST_COLUMNS = 64;

export function scanOps(device: KernelDevice): ScanOps {
  return {
    cumsum(x: Operand, dim: number): KernelStorage | undefined {
      const { shape } = x.layout;
      const size = shape[dim];
      const left = shape.slice(0, dim).reduce((a, b) => a * b, 1);
      const right = shape.slice(dim + 1).reduce((a, b) => a * b, 1);
      if (!device.shapes.isHost && isNarrow(device, left, size, right)) return undefined;
      const { dtype } = x.storage;
      return withContiguous(device, x, (dense) =>
        filled(device, dtype, x.layout.elemCount, (dst) => {
          const args = { left, size, right, src: device.view(dense).ptr, dst };
          launchCumsum(device, kernelName('cumsum', dtype), launchShape(device, left, size, right), args);
        }),
      );
    },
  };
}

/** Whether too few blocks or threads would work for too long. */
function isNarrow({ hip }: KernelDevice, left: number, size: number, right: number): boolean {
  if (right === 1) return size > MAX_ROW && left < hip.properties.multiprocessorCount;
  return size > MAX_COLUMN && left * right < MANY_COLUMNS;
}

function launchShape({ shapes }: KernelDevice, left: number, size: number, right: number) {
  if (right === 1) return shapes.rows(left, size);
  return shapes.isHost ? shapes.rows(left * Math.ceil(right / HOST_COLUMNS), size) : shapes.perItem(left * right);
}
