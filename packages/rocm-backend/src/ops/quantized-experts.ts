/** A mixture's experts: the kernels of EXPERTS (kernels/experts.hip), and for many tokens the products of QUANTIZED. */
import type {
  BlockType,
  ExpertMix,
  GateActivation,
  GatedExpertsProblem,
  GroupedExpertsProblem,
  MixedExpertsProblem,
  QuantizedExpertOps,
  SharedGate,
  StoragePart,
} from '@x/core';
import type { KernelDevice } from '../device';
import { clamp, type LaunchShape } from '../launch-shape';
import { launchExpertsCombine, launchExpertsGated, launchExpertsMixed, launchExpertsSum } from '../launchers/experts';
import type { Address } from '../launchers/launcher';
import { KernelStorage } from '../storage';
import { activationRowBytes, activationRows, BLOCK_VALUES, paddedWidth } from './activations';
import { counted, pairRows, QUADS, rowShape, rowsOfPairs } from './expert-rows';
import type { DeviceQuantizedOps } from './quantized';
import { filled, keptIfFilled } from './result';
import { hostBlocks, valuesAtOnce, vectorShape } from './vector-shape';

/** Most threads of a block of `experts_gated_*`, which has a group of rows. */
const GATED_THREADS = 512;
/** `Activation` of kernels/experts/gated.h. */
const ACTIVATIONS = { silu: 0, gelu: 1, clamped: 2 };

export class DeviceQuantizedExpertOps implements QuantizedExpertOps {
  readonly #device: KernelDevice;
  readonly #quantized: DeviceQuantizedOps;

  constructor(device: KernelDevice, quantized: DeviceQuantizedOps) {
    this.#device = device;
    this.#quantized = quantized;
  }

  gated(p: GatedExpertsProblem): KernelStorage {
    return keptIfFilled(this.#rowsOf(p.tokens * p.topk, p.n), (blocks) => this.#gate(p, blocks));
  }

  gatedBeside(p: GatedExpertsProblem, shared: SharedGate): { own: KernelStorage; shared: KernelStorage } {
    const beside = this.#rowsOf(p.tokens, shared.n);
    try {
      const own = this.#rowsOf(p.tokens * p.topk, p.n);
      return { own: keptIfFilled(own, (blocks) => this.#gate(p, blocks, shared, beside.ptr)), shared: beside };
    } catch (error) {
      beside.dispose();
      throw error;
    }
  }

  /** Memory for rows of activations in blocks. */
  #rowsOf(rows: number, n: number): KernelStorage {
    return this.#device.allocUninit(activationRows(rows) * activationRowBytes(n), 'u8');
  }

  #gate(p: GatedExpertsProblem, blocks: number, shared?: SharedGate, sharedBlocks = 0): void {
    const device = this.#device;
    const { tokens, topk, n, k, type, gate, up, x } = p;
    if (tokens * topk * n === 0) return;
    const rows = tokens * topk + (shared ? tokens : 0);
    launchExpertsGated(device, `experts_gated_${type}`, this.#gatedShape(type, rows, Math.max(n, shared?.n ?? 0), k), {
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
      sharedGate: this.#optional(shared?.gate),
      sharedUp: this.#optional(shared?.up),
      sharedBlocks,
      sharedN: shared?.n ?? 0,
      sharedNPadded: paddedWidth(shared?.n ?? 0),
    });
  }

  mixed(p: MixedExpertsProblem): KernelStorage {
    return filled(this.#device, 'f32', p.tokens * p.n, (out) => this.#mix(p, out, p.n));
  }

  mixedInto(p: MixedExpertsProblem, out: StoragePart, row: number): void {
    if (p.tokens * p.n > 0) this.#mix(p, this.#device.address(out), row);
  }

  #mix(p: MixedExpertsProblem, out: Address, outRow: number): void {
    const device = this.#device;
    const { tokens, topk, n, k, type, weights, x, shared } = p;
    const sharedK = shared?.k ?? 0;
    // Rows of all of a token's experts are as one.
    const { grid, block } = vectorShape(device, type, n, topk * k + sharedK);
    const shape: LaunchShape = { grid: [grid, ...counted(tokens)], block };
    launchExpertsMixed(device, `experts_mixed_${type}`, shape, {
      weights: device.address(weights),
      inputs: KernelStorage.on(device, x).ptr,
      ids: this.#optional(p.ids),
      ...this.#mixOf(p),
      out,
      outRow,
      ...{ n, k, tokens, topk },
      kPadded: paddedWidth(k),
      shared: this.#optional(shared?.weights),
      sharedInputs: shared ? KernelStorage.on(device, shared.x).ptr : 0,
      sharedK,
      sharedKPadded: paddedWidth(sharedK),
    });
  }

  grouped(p: GroupedExpertsProblem): KernelStorage {
    const device = this.#device;
    const quantized = this.#quantized;
    const { tokens, topk, n, width } = p;
    const { places, sources, tiles } = p.order;
    const pairs = tokens * topk;
    const into = { pairs, n: width, k: n };
    const back = { pairs, n, k: width };
    const given = () => {
      const form = quantized.pairForm(p.type, into, tiles);
      const x = { x: device.address(p.x), sources: device.address(sources) };
      const inside = after(rowsOfPairs(device, form, into, x), (rows) => {
        const product = (weight: StoragePart) => quantized.groupedPairs(weight, p.type, into, rows, tiles);
        return after(product(p.gate), (gate) => after(product(p.up), (up) => this.#combined(p, pairs, gate, up)));
      });
      return after(inside, (rows) => quantized.groupedPairs(p.down, p.downType, back, rows, tiles));
    };
    return filled(device, 'f32', tokens * n, (out) =>
      after(given(), ({ ptr }) =>
        launchExpertsSum(device, 'experts_sum', rowShape(device, tokens, n / QUADS), {
          given: ptr,
          places: device.address(places),
          ids: device.address(p.ids),
          ...this.#mixOf(p),
          out,
          ...{ tokens, n, topk },
        }),
      ),
    );
  }

  /** What lies between the products. */
  #combined(p: GroupedExpertsProblem, pairs: number, gate: KernelStorage, up: KernelStorage): KernelStorage {
    const device = this.#device;
    const { n, width } = p;
    const form = this.#quantized.pairForm(p.downType, { n, k: width }, p.order.tiles);
    return pairRows(device, form, { pairs, width }, (to, nPadded, shape) =>
      launchExpertsCombine(device, 'experts_combine', shape, {
        gate: gate.ptr,
        up: up.ptr,
        owners: device.address(p.order.owners),
        gateBias: this.#optional(p.gateBias),
        upBias: this.#optional(p.upBias),
        ...to,
        ...{ pairs, n: width, nPadded },
        ...activationOf(p.activation),
      }),
    );
  }

  #mixOf({ mix, bias, base, baseGate }: ExpertMix) {
    return {
      mix: this.#optional(mix),
      bias: this.#optional(bias),
      base: this.#optional(base),
      gates: this.#optional(baseGate?.values),
      gatesRow: baseGate?.row ?? 0,
    };
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

/** What `use` makes of memory that nobody needs behind it. */
function after<T>(storage: KernelStorage, use: (storage: KernelStorage) => T): T {
  try {
    return use(storage);
  } finally {
    storage.dispose();
  }
}
