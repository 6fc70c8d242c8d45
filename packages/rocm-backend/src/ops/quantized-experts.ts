/** A mixture's experts for few tokens: the kernels of EXPERTS (kernels/experts.hip). */
import type {
  BlockType,
  GateActivation,
  GatedExpertsProblem,
  MixedExpertsProblem,
  QuantizedExpertOps,
  StoragePart,
} from '@x/core';
import type { KernelDevice } from '../device';
import { clamp, type LaunchShape } from '../launch-shape';
import { launchExpertsGated, launchExpertsMixed } from '../launchers/experts';
import type { Address } from '../launchers/launcher';
import { KernelStorage } from '../storage';
import { activationRowBytes, activationRows, BLOCK_VALUES, MAX_GRID_Y, paddedWidth } from './activations';
import { filled, keptIfFilled } from './result';
import { hostBlocks, valuesAtOnce, vectorShape } from './vector-shape';

/** Most threads of a block of `experts_gated_*`, which has a group of rows. */
const GATED_THREADS = 512;
/** `Activation` of kernels/experts/gated.h. */
const ACTIVATIONS = { silu: 0, gelu: 1, clamped: 2 };

export class DeviceQuantizedExpertOps implements QuantizedExpertOps {
  readonly #device: KernelDevice;

  constructor(device: KernelDevice) {
    this.#device = device;
  }

  gated(p: GatedExpertsProblem): KernelStorage {
    const device = this.#device;
    const { tokens, topk, n, k, type, gate, up, x } = p;
    const rows = tokens * topk;
    const result = device.allocUninit(activationRows(rows) * activationRowBytes(n), 'u8');
    if (rows * n === 0) return result;
    return keptIfFilled(result, (blocks) =>
      launchExpertsGated(device, `experts_gated_${type}`, this.#gatedShape(type, rows, n, k), {
        gate: device.address(gate),
        up: device.address(up),
        inputs: KernelStorage.on(device, x).ptr,
        ids: this.#optional(p.ids),
        gateBias: this.#optional(p.gateBias),
        upBias: this.#optional(p.upBias),
        blocks,
        ...{ n, k, tokens, topk },
        kPadded: paddedWidth(k),
        nPadded: paddedWidth(n),
        ...activationOf(p.activation),
      }),
    );
  }

  mixed(p: MixedExpertsProblem): KernelStorage {
    return filled(this.#device, 'f32', p.tokens * p.n, (out) => this.#mix(p, out, p.n));
  }

  mixedInto(p: MixedExpertsProblem, out: StoragePart, row: number): void {
    if (p.tokens * p.n > 0) this.#mix(p, this.#device.address(out), row);
  }

  #mix(p: MixedExpertsProblem, out: Address, outRow: number): void {
    const device = this.#device;
    const { tokens, topk, n, k, type, weights, x, baseGate } = p;
    // Rows of all of a token's experts are as one.
    const { grid, block } = vectorShape(device, type, n, topk * k);
    const shape: LaunchShape = { grid: [grid, ...counted(tokens)], block };
    launchExpertsMixed(device, `experts_mixed_${type}`, shape, {
      weights: device.address(weights),
      inputs: KernelStorage.on(device, x).ptr,
      ids: this.#optional(p.ids),
      mix: this.#optional(p.mix),
      bias: this.#optional(p.bias),
      base: this.#optional(p.base),
      gates: this.#optional(baseGate?.values),
      gatesRow: baseGate?.row ?? 0,
      out,
      outRow,
      ...{ n, k, tokens, topk },
      kPadded: paddedWidth(k),
    });
  }

  #optional(part: StoragePart | undefined): number {
    return part ? this.#device.address(part) : 0;
  }

  /** A block a group of 32 rows, with as many lanes a row as have work (`rowLanes` of the kernel). */
  #gatedShape(type: BlockType, rows: number, n: number, k: number): LaunchShape {
    const device = this.#device;
    if (device.shapes.isHost) return { grid: [hostBlocks(device, n), ...counted(rows)], block: 1 };
    const { warpSize } = device.hip.properties;
    const lanes = 2 ** Math.ceil(Math.log2(Math.max(1, k / valuesAtOnce(type))));
    const block = clamp(BLOCK_VALUES * Math.min(lanes, warpSize), warpSize, GATED_THREADS);
    return { grid: [paddedWidth(n) / BLOCK_VALUES, ...counted(rows)], block };
  }
}

function activationOf(activation: GateActivation): { activation: number; limit: number } {
  if (typeof activation === 'string') return { activation: ACTIVATIONS[activation], limit: 0 };
  return { activation: ACTIVATIONS.clamped, limit: activation.clamped };
}

/** The y and z axes of a grid that count to `count`, or past it. */
function counted(count: number): [y: number, z: number] {
  const y = Math.min(count, MAX_GRID_Y);
  return [y, Math.ceil(count / y)];
}
