/** Layers that carry a state: the kernels of RECURRENT (kernels/recurrent.hip). */
import type {
  CausalConv1dProblem,
  DecayProblem,
  GatedDeltaRuleProblem,
  LstmProblem,
  RecurrentOps,
  RowsPart,
  SelectiveScanProblem,
  SsdProblem,
  StatePoolPart,
  StateSpans,
} from '@x/core';
import type { KernelDevice } from '../device';
import { unsupported } from '../errors';
import { kernelName } from '../kernel-name';
import { clamp, type LaunchShape } from '../launch-shape';
import {
  launchCausalConv1d,
  launchGatedDeltaRule,
  launchLstm,
  launchLstmPack,
  launchSelectiveScan,
  launchSsd,
} from '../launchers/recurrent';
import type { KernelStorage } from '../storage';
import { filled } from './result';

/** Sizes of keys that the kernels for matrices as states have, by their names. */
const KEYS: Readonly<Record<number, string>> = { 32: 'd32', 64: 'd64', 128: 'd128', 256: 'd256' };
/** The constants of kernels/recurrent/decayed.h and scan.h. */
const LANES = 8;
const HOST_COLUMNS = 4;
const HOST_CHANNELS = 16;
const SCAN_VALUES = 16;
const THREADS = 128;
/** The constants of kernels/recurrent/lstm.h; units are a multiple of those of every target. */
const LSTM_HIDDEN = 1024;
const LSTM_UNITS = 32;
const LSTM_THREADS = 512;
/** Few channels a block, so that few of them are many blocks. */
const SCAN_THREADS = 64;
const HOST_BLOCKS_PER_CU = 4;

export class DeviceRecurrentOps implements RecurrentOps {
  readonly #device: KernelDevice;

  constructor(device: KernelDevice) {
    this.#device = device;
  }

  supportsKeys(keyDim: number): boolean {
    return Object.hasOwn(KEYS, keyDim);
  }

  supportsScan(n: number): boolean {
    return n > 0 && n % SCAN_VALUES === 0;
  }

  supportsLstm(hidden: number): boolean {
    return hidden > 0 && hidden <= LSTM_HIDDEN;
  }

  /** A block a row, or on the host some of them. */
  lstm({ rows, steps, hidden, reversed, ...parts }: LstmProblem): { h: KernelStorage; c: KernelStorage } {
    const device = this.#device;
    const { warpSize, multiprocessorCount } = device.hip.properties;
    const padded = Math.ceil(hidden / LSTM_UNITS) * LSTM_UNITS;
    const packed = device.allocUninit(4 * padded * hidden, 'f32');
    const made: KernelStorage[] = [];
    try {
      const place = this.#shape(padded, THREADS);
      launchLstmPack(device, 'lstm_pack_f32', place, {
        hidden,
        weights: device.address(parts.weight),
        packed: packed.ptr,
      });
      for (let i = 0; i < 2; i++) made.push(device.allocUninit(rows * steps * hidden, 'f32'));
      const threads = clamp(Math.ceil(hidden / warpSize) * warpSize, warpSize, LSTM_THREADS);
      const shape: LaunchShape = device.shapes.isHost
        ? { grid: clamp(rows, 1, multiprocessorCount), block: 1 }
        : { grid: device.shapes.blocks(rows, threads), block: threads };
      const [gates, h, c] = [parts.gates, parts.h, parts.c].map((part) => device.address(part));
      const outputs = { outputs: made[0].ptr, cells: made[1].ptr };
      launchLstm(device, 'lstm_f32', shape, {
        rows,
        steps,
        hidden,
        reversed,
        gates,
        packed: packed.ptr,
        h,
        c,
        ...outputs,
      });
      return { h: made[0], c: made[1] };
    } catch (error) {
      for (const storage of made) storage.dispose();
      throw error;
    } finally {
      packed.dispose();
    }
  }

  /** A block a row and a part of its channels. */
  causalConv1d(p: CausalConv1dProblem, spans: StateSpans, pool: StatePoolPart): KernelStorage {
    const device = this.#device;
    const { channels, taps, silu } = p;
    const shape = this.#shape(spans.rows * (device.shapes.isHost ? 1 : Math.ceil(channels / THREADS)), THREADS);
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
      }),
    );
  }

  /** A thread a channel of a sequence. */
  selectiveScan(p: SelectiveScanProblem, spans: StateSpans, pool: StatePoolPart): KernelStorage {
    const device = this.#device;
    const { channels, n } = p;
    if (!this.supportsScan(n)) throw unsupported(`selectiveScan of ${n} values a channel`, 'f32', device);
    const { isHost } = device.shapes;
    const items = spans.sequences * Math.ceil(channels / (isHost ? HOST_CHANNELS : SCAN_THREADS));
    return filled(device, 'f32', spans.rows * channels, (out) =>
      launchSelectiveScan(device, 'selective_scan_f32', this.#shape(items, SCAN_THREADS), {
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
    const kernel = kernelName('ssd_f32', this.#keys('ssd', p));
    return filled(device, 'f32', spans.rows * p.heads * p.valueDim, (out) =>
      launchSsd(device, kernel, this.#columns(p, spans), {
        ...this.#spans(spans, pool),
        ...this.#decayed(p),
        d: device.address(p.d),
        dtMin,
        dtMax,
        out,
      }),
    );
  }

  gatedDeltaRule(p: GatedDeltaRuleProblem, spans: StateSpans, pool: StatePoolPart): KernelStorage {
    const device = this.#device;
    const { scale, eps } = p;
    const kernel = kernelName('gated_delta_rule_f32', this.#keys('gatedDeltaRule', p));
    return filled(device, 'f32', spans.rows * p.heads * p.valueDim, (out) =>
      launchGatedDeltaRule(device, kernel, this.#columns(p, spans), {
        ...this.#spans(spans, pool),
        ...this.#decayed(p),
        beta: device.address(p.beta.part),
        betaRow: p.beta.row,
        scale,
        eps,
        out,
      }),
    );
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
