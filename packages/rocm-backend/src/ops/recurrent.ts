/** Layers that carry a state: the kernels of RECURRENT (kernels/recurrent.hip). */
import {
  type CausalConv1dProblem,
  type DecayProblem,
  type GatedDeltaRuleProblem,
  type LstmBackwardProblem,
  type LstmProblem,
  type RecurrentOps,
  type RowsPart,
  type SelectiveScanProblem,
  type SsdProblem,
  type StatePoolPart,
  type StateSpans,
  type StoragePart,
  sizeInBytes,
} from '@x/core';
import type { KernelDevice } from '../device';
import { unsupported } from '../errors';
import { kernelName } from '../kernel-name';
import { clamp, type LaunchShape } from '../launch-shape';
import {
  CONV_ROWS,
  LSTM_HIDDEN,
  LSTM_UNITS,
  RECURRENT_CHUNK,
  RECURRENT_CHUNK_THREADS,
  SCAN_CHUNK_LANES,
  SCAN_CHUNK_THREADS,
  SCAN_PIECE,
} from '../launchers/constants';
import {
  launchCausalConv1d,
  launchGatedDeltaRule,
  launchGatedDeltaRuleChunks,
  launchLstm,
  launchLstmBackward,
  launchLstmPack,
  launchSelectiveScan,
  launchSsd,
  launchSsdChunks,
} from '../launchers/recurrent';
import type { KernelStorage } from '../storage';
import { filled } from './result';

/** Sizes of keys that the kernels for matrices as states have, by their names. */
const KEYS: Readonly<Record<number, string>> = { 32: 'd32', 64: 'd64', 128: 'd128', 256: 'd256' };
/** The constants of kernels/recurrent/decayed.h and scan.h. */
const LANES = 8;
const HOST_COLUMNS = 4;
const HOST_CHANNELS = 16;
const THREADS = 128;
const SCAN_CHUNK_CHANNELS = SCAN_CHUNK_THREADS / SCAN_CHUNK_LANES;
/** Columns of a block on NVIDIA's matrix units, and numbers of a chunk's table (kernels/recurrent/chunks.h). */
const TILE_COLUMNS = 64;
const TABLE = { ssd: 84, gated_delta_rule: 148 };
const LSTM_THREADS = 1024;
/** Few channels a block, so that few of them are many blocks. */
const SCAN_THREADS = 64;
const HOST_BLOCKS_PER_CU = 4;

type Decayed = keyof typeof TABLE;

export class DeviceRecurrentOps implements RecurrentOps {
  /** Rows a sequence, on average, from which on states go through them by chunks. Fewer are soonest done row by row. */
  chunksFrom = RECURRENT_CHUNK;
  readonly #device: KernelDevice;

  constructor(device: KernelDevice) {
    this.#device = device;
  }

  supportsKeys(keyDim: number): boolean {
    return Object.hasOwn(KEYS, keyDim);
  }

  supportsScan(n: number): boolean {
    return n > 0 && n % SCAN_PIECE === 0;
  }

  supportsLstm(hidden: number): boolean {
    return hidden > 0 && hidden <= LSTM_HIDDEN;
  }

  lstm(problem: LstmProblem): { h: KernelStorage; c: KernelStorage } {
    const cells = this.#device.allocUninit(problem.rows * problem.steps * problem.hidden, 'f32');
    try {
      return { h: this.#lstm(problem, cells.ptr, 0), c: cells };
    } catch (error) {
      cells.dispose();
      throw error;
    }
  }

  lstmKept(problem: LstmProblem, kept: StoragePart): KernelStorage {
    const { open, cells } = this.#parts(problem, kept);
    return this.#lstm(problem, cells, open);
  }

  lstmBackward({ rows, steps, hidden, reversed, kept, ...parts }: LstmBackwardProblem): KernelStorage {
    const device = this.#device;
    return filled(device, 'f32', rows * steps * 4 * hidden, (gates) => {
      const [weights, c, grad] = [parts.weight, parts.c, parts.grad].map((part) => device.address(part));
      const own = this.#parts({ rows, steps, hidden }, kept);
      const args = { rows, steps, hidden, reversed, ...own, weights, c, grad, gates };
      launchLstmBackward(device, 'lstm_backward_f32', this.#lstmShape(rows, hidden), args);
    });
  }

  /** Where what a gradient needs is: what the gates let through, and the cells. */
  #parts({ rows, steps, hidden }: { rows: number; steps: number; hidden: number }, kept: StoragePart) {
    const open = this.#device.address(kept);
    return { open, cells: open + 4 * rows * steps * hidden * sizeInBytes('f32') };
  }

  #lstm({ rows, steps, hidden, reversed, ...parts }: LstmProblem, cells: number, open: number): KernelStorage {
    const device = this.#device;
    // Units of a GPU, of which those of the host are a part.
    const padded = Math.ceil(hidden / LSTM_UNITS) * LSTM_UNITS;
    const packed = device.allocUninit(4 * padded * hidden, 'f32');
    try {
      const { dtype } = parts.weight[0];
      const weights = device.address(parts.weight);
      const place = this.#shape(padded, THREADS);
      launchLstmPack(device, kernelName('lstm_pack', dtype), place, { hidden, weights, packed: packed.ptr });
      const [gates, h, c] = [parts.gates, parts.h, parts.c].map((part) => device.address(part));
      const bias = parts.bias ? device.address(parts.bias) : 0;
      const given = { rows, steps, hidden, reversed, gates, bias, packed: packed.ptr, h, c };
      return filled(device, 'f32', rows * steps * hidden, (outputs) =>
        launchLstm(device, kernelName('lstm', dtype), this.#lstmShape(rows, hidden), {
          ...given,
          outputs,
          cells,
          open,
        }),
      );
    } finally {
      packed.dispose();
    }
  }

  /** A block a row, if it can with a thread a gate of a unit; on the host some rows a block. */
  #lstmShape(rows: number, hidden: number): LaunchShape {
    const { shapes, hip } = this.#device;
    const { warpSize, multiprocessorCount } = hip.properties;
    if (shapes.isHost) return { grid: clamp(rows, 1, multiprocessorCount), block: 1 };
    const threads = clamp(Math.ceil((4 * hidden) / warpSize) * warpSize, warpSize, LSTM_THREADS);
    return { grid: shapes.blocks(rows, threads), block: threads };
  }

  /** A block a row, on GPUs a few of them, and a part of the channels. */
  causalConv1d(p: CausalConv1dProblem, spans: StateSpans, pool: StatePoolPart): KernelStorage {
    const device = this.#device;
    const { channels, taps, silu, inGate, outGate } = p;
    const items = device.shapes.isHost ? spans.rows : Math.ceil(spans.rows / CONV_ROWS) * Math.ceil(channels / THREADS);
    const shape = this.#shape(items, THREADS);
    return filled(device, 'f32', spans.rows * channels, (out) =>
      launchCausalConv1d(device, 'causal_conv1d_f32', shape, {
        ...this.#spans(spans, pool),
        channels,
        taps,
        silu,
        x: device.address(p.x.part),
        xRow: p.x.row,
        weight: device.address(p.weight),
        bias: p.bias ? device.address(p.bias) : 0,
        out,
        inGate: inGate ? device.address(inGate) : 0,
        outGate: outGate ? device.address(outGate) : 0,
      }),
    );
  }

  /** A thread a channel of a sequence, or four of them. */
  selectiveScan(p: SelectiveScanProblem, spans: StateSpans, pool: StatePoolPart): KernelStorage {
    const device = this.#device;
    const { channels, n } = p;
    if (!this.supportsScan(n)) throw unsupported(`selectiveScan of ${n} values a channel`, 'f32', device);
    const byChunks = this.#takesChunks(spans);
    const kernel = byChunks ? 'selective_scan_chunks_f32' : 'selective_scan_f32';
    const width = device.shapes.isHost ? HOST_CHANNELS : byChunks ? SCAN_CHUNK_CHANNELS : SCAN_THREADS;
    const items = spans.sequences * Math.ceil(channels / width);
    return filled(device, 'f32', spans.rows * channels, (out) =>
      launchSelectiveScan(device, kernel, this.#shape(items, byChunks ? SCAN_CHUNK_THREADS : SCAN_THREADS), {
        ...this.#spans(spans, pool),
        channels,
        n,
        x: device.address(p.x.part),
        xRow: p.x.row,
        dt: device.address(p.dt.part),
        dtRow: p.dt.row,
        dtBias: device.address(p.dtBias),
        a: device.address(p.a),
        b: device.address(p.b.part),
        bRow: p.b.row,
        c: device.address(p.c.part),
        cRow: p.c.row,
        d: device.address(p.d),
        out,
      }),
    );
  }

  ssd(p: SsdProblem, spans: StateSpans, pool: StatePoolPart): KernelStorage {
    const device = this.#device;
    const { dtMin, dtMax } = p;
    const keys = this.#keys('ssd', p);
    return filled(device, 'f32', spans.rows * p.heads * p.valueDim, (out) => {
      const given = { ...this.#spans(spans, pool), ...this.#decayed(p), d: device.address(p.d), dtMin, dtMax, out };
      if (!this.#takesChunks(spans)) launchSsd(device, kernelName('ssd_f32', keys), this.#columns(p, spans), given);
      else
        this.#chunks('ssd', p, spans, keys, (kernel, shape, tables) =>
          launchSsdChunks(device, kernel, shape, { ...given, tables }),
        );
    });
  }

  gatedDeltaRule(p: GatedDeltaRuleProblem, spans: StateSpans, pool: StatePoolPart): KernelStorage {
    const device = this.#device;
    const { scale, eps } = p;
    const keys = this.#keys('gatedDeltaRule', p);
    const beta = { beta: device.address(p.beta.part), betaRow: p.beta.row };
    return filled(device, 'f32', spans.rows * p.heads * p.valueDim, (out) => {
      const given = { ...this.#spans(spans, pool), ...this.#decayed(p), ...beta, scale, eps, out };
      if (!this.#takesChunks(spans))
        launchGatedDeltaRule(device, kernelName('gated_delta_rule_f32', keys), this.#columns(p, spans), given);
      else
        this.#chunks('gated_delta_rule', p, spans, keys, (kernel, shape, tables) =>
          launchGatedDeltaRuleChunks(device, kernel, shape, { ...given, tables }),
        );
    });
  }

  /** The one place that chooses. By numbers that the host knows: how long each sequence is may be known on the device alone. */
  #takesChunks({ sequences, rows }: StateSpans): boolean {
    return !this.#device.shapes.isHost && rows >= this.chunksFrom * sequences;
  }

  /** Tables of what the rows of chunks do to each other, a block a chunk and head of keys, and the states' way through them. */
  #chunks(
    rule: Decayed,
    { heads, keyHeads, keyDim, valueDim }: DecayProblem,
    { sequences, rows }: StateSpans,
    keys: string,
    launch: (kernel: string, shape: LaunchShape, tables: number) => void,
  ): void {
    const chunks = Math.floor(rows / RECURRENT_CHUNK) + sequences;
    const lanes = keyDim === 256 || (keyDim === 128 && rule === 'gated_delta_rule') ? 2 * LANES : LANES;
    const { platform } = this.#device.hip;
    const isTiled = platform === 'cuda' && keyDim <= 128;
    const width = isTiled ? TILE_COLUMNS : (4 * RECURRENT_CHUNK_THREADS) / lanes;
    const tables = this.#device.allocUninit(chunks * heads * TABLE[rule], 'f32');
    try {
      launch(
        kernelName(`${rule}_tables_f32`, keys),
        this.#shape(chunks * keyHeads, RECURRENT_CHUNK_THREADS),
        tables.ptr,
      );
      const items = sequences * heads * Math.ceil(valueDim / width);
      launch(kernelName(`${rule}_chunks_f32`, keys), this.#shape(items, RECURRENT_CHUNK_THREADS), tables.ptr);
    } finally {
      tables.dispose();
    }
  }

  #keys(op: string, { keyDim }: DecayProblem): string {
    if (!this.supportsKeys(keyDim)) throw unsupported(`${op} with keys of ${keyDim} values`, 'f32', this.#device);
    return KEYS[keyDim];
  }

  #spans({ sequences, rows, starts, from, to }: StateSpans, { states, slots }: StatePoolPart) {
    const device = this.#device;
    return {
      sequences,
      rows,
      starts: device.address(starts),
      from: device.address(from),
      to: device.address(to),
      slots,
      states: device.address(states),
    };
  }

  #decayed({ heads, keyHeads, valueDim, group, q, k, v, dt, dtBias, a }: DecayProblem) {
    const device = this.#device;
    const at = ({ part }: RowsPart) => device.address(part);
    return {
      heads,
      keyHeads,
      valueDim,
      group,
      q: at(q),
      qRow: q.row,
      k: at(k),
      kRow: k.row,
      v: at(v),
      vRow: v.row,
      dt: at(dt),
      dtRow: dt.row,
      dtBias: device.address(dtBias),
      a: device.address(a),
    };
  }

  /** A block a sequence, head and part of its columns. */
  #columns({ heads, valueDim }: DecayProblem, { sequences }: StateSpans): LaunchShape {
    const width = this.#device.shapes.isHost ? HOST_COLUMNS : THREADS / LANES;
    return this.#shape(sequences * heads * Math.ceil(valueDim / width), THREADS);
  }

  #shape(items: number, threads: number): LaunchShape {
    const { shapes, hip } = this.#device;
    if (shapes.isHost)
      return { grid: clamp(items, 1, hip.properties.multiprocessorCount * HOST_BLOCKS_PER_CU), block: 1 };
    return { grid: shapes.blocks(items, threads), block: threads };
  }
}
