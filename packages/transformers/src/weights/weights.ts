/**
 * The layers that a model is made of, from any file of weights. The model asks for them by their GGUF names and does not
 * know whether it gets products with numbers or with blocks; candle instead has each model twice (llama.rs and
 * quantized_llama.rs).
 */
import { type Device, type RopeKind, type Shape, scope, sizeInBytes, Tensor } from '@x/core';
import type { TensorReader } from '@x/core/files';
import { LayerNorm, Linear, type Module, RmsNorm, VarBuilder } from '@x/nn';
import {
  type DenseDType,
  ExpertSlots,
  hasBlocks,
  type PartRange,
  QMatMul,
  QTensor,
  type TensorPart,
} from '@x/quantized';
import { ExpertLinear } from './expert-linear';
import { keepsHalves } from './halves';
import { HeadLinear } from './head-linear';
import { HostExperts } from './host-experts';
import { type LinearGroup, StackedGroup, separateGroups } from './linear-group';
import { LoraSites } from './lora';
import { QLinear } from './q-linear';
import { ranged, TableRows } from './rows';
import { checkShard, isDivided, type Shard, SharedHead, SharedTable, SummedLinear } from './shard';
import type { TensorNamePair } from './tensor-names';
import { type ProgressListener, WeightFile } from './weight-file';
import type { WeightRead } from './weight-read';

/** How an architecture's tensors are stored. */
export interface TensorLayout {
  /** What each is called in checkpoints and in GGUF files. */
  names: readonly TensorNamePair[];
  /**
   * How rotated pairs lie in the rows of queries and keys: `half` of a head with the other, neighbours (`interleaved`), or
   * `reordered`: halves in checkpoints, which llama.cpp's converter makes neighbours. Default `half`.
   */
  pairs?: 'half' | 'interleaved' | 'reordered';
  /** Added to norm weights of checkpoints, which some architectures store minus one; GGUF files hold the sum. Default 0. */
  normOffset?: number;
}

export interface WeightOptions {
  device: Device;
  layout: TensorLayout;
  /**
   * Of matrices that are numbers. Default: f16 and bf16 stay as they are where the device multiplies them by activations of f32
   * ({@link keepsHalves}); all others are f32.
   */
  dtype?: DenseDType;
  /** As {@link Weights.activations}; default f32. */
  activations?: DenseDType;
  /** Makes blocks of the matrices of linear layers that are numbers and have whole ones. Default: they stay. */
  quantize?: 'q8_0';
  signal?: AbortSignal;
  onProgress?: ProgressListener;
  /** Reads this rank's part of the weights; the others' ranks read theirs. Default: all of them. */
  shard?: Shard;
  /** Leaves the weights of experts in host memory, with room on the device for so many of each layer. Default: all are there. */
  hotExperts?: number;
}

export interface LinearPart {
  /** As in {@link Weights.linear}. */
  name: string;
  out: number;
  /** Of the outputs those that this rank has. Default: all. */
  rows?: PartRange | undefined;
  /** In the place of `rows`: where the outputs are in the file, in the order in which they are wanted. */
  order?: readonly PartRange[] | undefined;
}

/** Which outputs of a layer are wanted, in order; undefined: all. */
function rangesOf({ rows, order }: LinearPart): readonly PartRange[] | undefined {
  return order ?? (rows && [rows]);
}

function outputsOf(part: LinearPart): number {
  return rangesOf(part)?.reduce((sum, { count }) => sum + count, 0) ?? part.out;
}

/** What a rank has of a linear layer, or its caller wants of it. */
export interface LinearShare {
  /** Outputs. Default: all. */
  rows?: PartRange;
  /** Inputs: what the layer gives is added over the ranks. Default: all. */
  columns?: PartRange;
  /** Whether whoever asks adds over the ranks instead. Default false. */
  partial?: boolean;
  /** Whether its bias is left out, for a caller that adds it elsewhere. Default false. */
  withoutBias?: boolean;
}

/** Numbers of a q8_0 block. */
const BLOCK = 32;

/** What an architecture builds its layers of: the weights of one file by their GGUF names, on one device (candle's `VarBuilder`s). */
export class Weights {
  readonly device: Device;
  /** What linear layers are given; what they give is f32, as are norms and what is added up from layer to layer. */
  readonly activations: DenseDType;
  /** How rotated pairs lie in the query and key rows of this file. */
  readonly ropeKind: RopeKind;
  /** The rank whose part of the weights this is; undefined for all of them. */
  readonly shard: Shard | undefined;
  /** What adapters add to the linear layers that are made here. */
  readonly lora: LoraSites;
  /** Of layers whose experts stay in host memory; undefined: all are on the device. */
  readonly hostExperts: HostExperts | undefined;
  /** What was loaded, as a decode step reads it. */
  readonly reads: WeightRead[] = [];
  /** Of matrices that are numbers; undefined: as the file has them. */
  readonly dtype: DenseDType | undefined;
  protected readonly file: WeightFile;
  private readonly builder: VarBuilder<QTensor>;
  private readonly normOffset: number;
  private readonly blocks: 'q8_0' | undefined;
  /** Of what layers may have beside their weights: one that was asked for, by its name without the layer's number. */
  private readonly beside = new Map<string, { name: string; has: boolean }>();

  /** Takes the file over: {@link close} closes it. */
  constructor(file: TensorReader, options: WeightOptions) {
    const { device, layout, dtype, activations, quantize, signal, onProgress, shard, hotExperts } = options;
    const { names, pairs = 'half', normOffset = 0 } = layout;
    this.device = device;
    if (shard) checkShard(shard, device);
    this.shard = shard;
    // Widened, the weights of a 16-bit model take twice the memory, and a decoding step, which reads all of them, twice the time.
    this.dtype = dtype ?? (keepsHalves(device) ? undefined : 'f32');
    this.activations = activations ?? 'f32';
    this.blocks = quantize;
    const isGguf = hasBlocks(file);
    this.ropeKind = pairs === 'reordered' ? (isGguf ? 'interleaved' : 'half') : pairs;
    this.normOffset = isGguf ? 0 : normOffset;
    this.hostExperts = hotExperts === undefined ? undefined : new HostExperts(hotExperts);
    this.lora = new LoraSites(device, this.activations, this.ropeKind);
    this.file = new WeightFile(file, { names, signal, onProgress });
    this.builder = VarBuilder.fromBackend(this.file, { device });
  }

  /** Whether there is a weight of this name. @param name without `.weight`, such as `blk.0.attn_q` */
  has(name: string): boolean {
    return this.builder.containsTensor(`${name}.weight`);
  }

  /** The shape of a tensor; undefined where the file has none of that name. @param name with its ending */
  shapeOf(name: string): Shape | undefined {
    return this.file.shapeOf(name);
  }

  /** Elements of a weight's row that stay together when it is divided. @param name as {@link has} */
  unitOf(name: string): number {
    const inFile = this.file.blockSizeOf(`${name}.weight`);
    return this.blocks === undefined ? inFile : Math.max(inFile, BLOCK);
  }

  /**
   * The layer y = x · Wᵀ (+ bias, when the file has one); x is of {@link activations}, y f32. @param name as {@link has}
   * @param share what this rank has of `out` and `width`, which are the whole layer's
   */
  async linear(name: string, out: number, width: number, share: LinearShare = {}): Promise<Module> {
    const { rows, columns, partial, withoutBias } = share;
    const part = rows ? { dim: 0, ranges: [rows] } : columns && { dim: 1, ranges: [columns] };
    using weight = await this.layerMatrix(name, [out, width], part);
    // Of what is added over the ranks the bias is in one part.
    const none = withoutBias || (columns && this.shard!.rank > 0);
    const bias = none ? undefined : await this.bias(name, out, rows && [rows]);
    const [outs, wide] = [rows?.count ?? out, columns?.count ?? width];
    const layer = this.lora.layer(this.product(weight, bias), [{ name, out: outs }], wide);
    if (!columns || partial) return layer;
    const biased = this.builder.containsTensor(`${name}.bias`);
    return new SummedLinear(layer, this.shard!.communicator, () => !biased && !layer.isChanged);
  }

  /** The layer that makes logits of [tokens, width], of which each rank has some rows and gets all. */
  async head(name: string, out: number, width: number): Promise<Module> {
    const rows = this.vocabulary(out);
    const layer = await this.linear(name, out, width, { rows });
    return rows ? this.sharedHead(layer, rows, out) : layer;
  }

  /**
   * Layers on one input, as one where that is possible: neighbours of one type are stacked. In a q4_K_M file query and key
   * often share a type that value does not.
   */
  async group(parts: readonly LinearPart[], width: number): Promise<LinearGroup> {
    const weights: QTensor[] = [];
    try {
      // At once, so that reading does not pause between two that are small.
      const read = await Promise.allSettled(
        parts.map((part) => {
          const ranges = rangesOf(part);
          return this.layerMatrix(part.name, [part.out, width], ranges && { dim: 0, ranges });
        }),
      );
      for (const one of read) if (one.status === 'fulfilled') weights.push(one.value);
      const failed = read.find((one) => one.status === 'rejected');
      if (failed) throw failed.reason;
      const runs: LinearPart[][] = [];
      for (const [i, part] of parts.entries()) {
        if (i > 0 && weights[i].type === weights[i - 1].type) runs[runs.length - 1].push(part);
        else runs.push([part]);
      }
      const stack = async (run: readonly LinearPart[]) => {
        const first = parts.indexOf(run[0]);
        const outs = run.map(outputsOf);
        using weight =
          run.length === 1 ? weights[first].share() : QTensor.stack(weights.slice(first, first + run.length));
        const sites = run.map(({ name, order }, i) => ({ name, out: outs[i], ...(order && { order }) }));
        const layer = this.lora.layer(this.product(weight, await this.stackedBias(run)), sites, width);
        return new StackedGroup(layer, outs, this.activations);
      };
      return await separateGroups(runs.map((run) => () => stack(run)));
    } finally {
      for (const weight of weights) weight.dispose();
    }
  }

  /**
   * As {@link group}, of layers that lie in the file as rows of one weight, in both kinds of files.
   * @param options `order`: where the layers' rows are in a weight, without a bias, that has them in another order. `shares`: of
   *   each layer's outputs those that this rank has; default: all
   */
  async fused(
    name: string,
    outs: readonly number[],
    width: number,
    { order, shares }: { order?: readonly PartRange[]; shares?: readonly PartRange[] } = {},
  ): Promise<LinearGroup> {
    const out = outs.reduce((sum, rows) => sum + rows, 0);
    if (shares) {
      const starts = outs.map((_, i) => outs.slice(0, i).reduce((sum, rows) => sum + rows, 0));
      const ranges = shares.map(({ start, count }, i) => ({ start: starts[i] + start, count }));
      using weight = await this.layerMatrix(name, [out, width], { dim: 0, ranges });
      const counts = shares.map(({ count }) => count);
      const bias = await this.bias(name, out, ranges);
      const sites = [{ name, out: counts.reduce((sum, rows) => sum + rows, 0) }];
      return new StackedGroup(this.lora.layer(this.product(weight, bias), sites, width), counts, this.activations);
    }
    if (!order) return new StackedGroup(await this.linear(name, out, width), outs, this.activations);
    using weight = await this.layerMatrix(name, [out, width], { dim: 0, ranges: order });
    const layer = this.lora.layer(this.product(weight), [{ name, out, order }], width);
    return new StackedGroup(layer, outs, this.activations);
  }

  /**
   * The layers of all experts, stacked. @param where `part`: of [experts, out, width] what this rank has; default: all. `slots`: experts
   * that there is room for on the device, where the weights stay on the host
   */
  async experts(
    name: string,
    experts: number,
    out: number,
    width: number,
    where: { part?: TensorPart | undefined; slots?: number | undefined } = {},
  ): Promise<ExpertLinear> {
    const { part, slots } = where;
    if (slots !== undefined) {
      using weight = await this.matrix(name, [experts, out, width], part, { experts }, ExpertSlots.hostDevice);
      using bias = await this.expertBias(`${name}.bias`, [experts, out], part);
      return await ExpertLinear.onHost(weight, slots, this, bias);
    }
    const weight = await this.matrix(name, [experts, out, width], part, { experts });
    try {
      return new ExpertLinear(weight, this.activations, await this.expertBias(`${name}.bias`, [experts, out], part));
    } catch (error) {
      weight.dispose();
      throw error;
    }
  }

  /** The layers of all heads, stacked: from `width` to `out` elements of each. */
  async heads(name: string, heads: number, out: number, width: number, own?: PartRange): Promise<HeadLinear> {
    // These are multiplied in batches, which no kernel does with two dtypes.
    const dtype = this.dtype ?? 'f32';
    if (own) this.file.split(`${name}.weight`, { dim: 0, ranges: [own] });
    const weight = await this.get([heads, out, width], `${name}.weight`, dtype);
    try {
      return new HeadLinear(weight);
    } catch (error) {
      weight.dispose();
      throw error;
    }
  }

  /** A table from u32 ids [n] to f32 rows [n, width], and, for models with tied embeddings, the product with the table. */
  async embedding(name: string, rows: number, width: number): Promise<{ lookup: Module; asLinear(): Module }> {
    const own = this.vocabulary(rows);
    const table = await this.matrix(name, [rows, width], own && { dim: 0, ranges: [own] }, { rows });
    // What adapters know as the head is then this product.
    const asLinear = () => {
      this.reads.push({ name: `${name}.weight`, bytes: bytesOf(table.data) });
      const layer = this.lora.layer(this.product(table), [{ name: 'output', out: own?.count ?? rows }], width);
      return own ? this.sharedHead(layer, own, rows) : layer;
    };
    return { lookup: own ? new SharedTable(table, own, this.shard!.communicator) : new TableRows(table), asLinear };
  }

  /** An RMS norm over rows of `size` values, its weight in f32 with `normOffset` added where the file lacks it. @param name as {@link has} */
  async norm(name: string, size: number, eps: number): Promise<RmsNorm> {
    return new RmsNorm(await this.normWeight(name, size), eps);
  }

  /** A norm that takes the mean away, with a bias when the file has one. */
  async layerNorm(name: string, size: number, eps: number): Promise<LayerNorm> {
    const weight = await this.normWeight(name, size);
    try {
      return new LayerNorm(weight, await this.optional(`${name}.bias`, [size]), eps);
    } catch (error) {
      weight.dispose();
      throw error;
    }
  }

  /** A tensor as numbers, which the caller owns; dims of 1 count for nothing. @param name with its ending */
  async numbers(name: string, shape: readonly number[], dtype: DenseDType = 'f32'): Promise<Tensor> {
    const stored = this.file.shapeOf(name) ?? shape;
    const sizes = (of: readonly number[]) => of.filter((size) => size !== 1).join();
    using weight = await this.builder.get(sizes(stored) === sizes(shape) ? stored : shape, name, { dtype });
    using numbers = weight.dequantize(dtype);
    this.reads.push({ name, bytes: bytesOf(numbers) });
    return numbers.reshape(shape);
  }

  /** As {@link numbers}; undefined where the file has no such tensor, of no layer. */
  async optional(name: string, shape: readonly number[], dtype: DenseDType = 'f32'): Promise<Tensor | undefined> {
    const missing = this.missingBeside(name);
    if (missing !== undefined) return this.numbers(missing, shape, dtype);
    return this.builder.containsTensor(name) ? this.numbers(name, shape, dtype) : undefined;
  }

  /** A tensor that the file has not though another layer has one like it: `name`, or that of a layer before. */
  protected missingBeside(name: string): string | undefined {
    const kind = name.replace(/^blk\.\d+\./, '');
    if (kind === name) return undefined;
    const has = this.builder.containsTensor(name);
    const other = this.beside.get(kind);
    if (!other) this.beside.set(kind, { name, has });
    if (!other || other.has === has) return undefined;
    return has ? other.name : name;
  }

  /**
   * Divisors of the rotation frequencies, [size]; undefined where the file has none: checkpoints say it in config.json.
   * @param range which to take where the file has some for long texts and some for short ones
   */
  async ropeFactors(size: number, range: 'short' | 'long'): Promise<Float32Array | undefined> {
    using values =
      (await this.optional('rope_freqs.weight', [size])) ??
      (await this.optional(`rope_factors_${range}.weight`, [size]));
    return values && (await values.toArray<Float32Array>());
  }

  /** Closes the file; layers stay valid. */
  close(): void {
    this.builder.dispose();
  }

  /** Rows of a table that this rank has: as many as the others, but for the last ranks; undefined for all. */
  private vocabulary(rows: number): PartRange | undefined {
    if (!isDivided(this.shard)) return undefined;
    const { rank, size } = this.shard;
    const each = Math.ceil(rows / size);
    if (each * (size - 1) >= rows) return undefined;
    return { start: rank * each, count: Math.min(each, rows - rank * each) };
  }

  private sharedHead(layer: Module, { count: own }: PartRange, all: number): Module {
    const { size, communicator } = this.shard!;
    return new SharedHead(layer, { own, each: Math.ceil(all / size), all }, communicator);
  }

  private async expertBias(name: string, shape: [number, number], part?: TensorPart): Promise<Tensor | undefined> {
    if (!part) return this.optional(name, shape);
    const { dim, ranges } = part;
    // Of what is added over the ranks the bias is in one part.
    if (dim === 2 && this.shard!.rank > 0) return undefined;
    using whole = await this.optional(name, shape);
    return whole && (dim === 2 ? whole.detach() : ranged(whole, dim, ranges));
  }

  /** @param read what is special about how a step reads it */
  private matrix(
    name: string,
    shape: readonly number[],
    part?: TensorPart,
    read: Pick<WeightRead, 'rows' | 'experts'> = {},
    device: Device = this.device,
  ): Promise<QTensor> {
    if (part) this.file.split(`${name}.weight`, part);
    return this.get(shape, `${name}.weight`, this.dtype, read, device);
  }

  private async get(
    shape: readonly number[],
    name: string,
    dtype: DenseDType | undefined,
    read: Pick<WeightRead, 'rows' | 'experts'> = {},
    device: Device = this.device,
  ): Promise<QTensor> {
    const weight = await this.builder.setDevice(device).get(shape, name, { dtype });
    this.reads.push({ name, bytes: bytesOf(weight.data), ...read });
    return weight;
  }

  /** The matrix of a linear layer, in blocks where these are asked for. */
  private async layerMatrix(name: string, shape: readonly [number, number], part?: TensorPart): Promise<QTensor> {
    const weight = await this.matrix(name, shape, part);
    if (this.blocks === undefined || weight.kind !== 'dense' || weight.shape[1] % BLOCK !== 0) return weight;
    using numbers = weight;
    return QTensor.quantize(numbers.data, this.blocks, { device: this.device });
  }

  private async bias(name: string, out: number, rows?: readonly PartRange[]): Promise<Tensor | undefined> {
    const whole = await this.optional(`${name}.bias`, [out]);
    if (!rows || !whole) return whole;
    using all = whole;
    return ranged(all, 0, rows);
  }

  /** The biases of layers one after the other, zeros for those that have none; undefined when none has. */
  private async stackedBias(parts: readonly LinearPart[]): Promise<Tensor | undefined> {
    const biases: (Tensor | undefined)[] = [];
    try {
      for (const part of parts) biases.push(await this.bias(part.name, part.out, rangesOf(part)));
      if (biases.every((bias) => bias === undefined)) return undefined;
      const { device } = this;
      return scope(() =>
        Tensor.cat(
          parts.map((part, i) => biases[i] ?? Tensor.zeros([outputsOf(part)], 'f32', device)),
          0,
        ),
      );
    } finally {
      for (const bias of biases) bias?.dispose();
    }
  }

  private async normWeight(name: string, size: number): Promise<Tensor> {
    const stored = await this.numbers(`${name}.weight`, [size]);
    if (this.normOffset === 0) return stored;
    using before = stored;
    return before.add(this.normOffset);
  }

  /** A layer that shares `weight` and owns `bias`. */
  private product(weight: QTensor, bias?: Tensor): Module {
    const dense = weight.kind === 'dense' ? (weight.data.dtype as DenseDType) : this.dtype;
    if (dense === 'f32' && weight.kind === 'dense' && this.activations === 'f32')
      return new Linear(weight.data.detach(), bias);
    try {
      return new QLinear(QMatMul.fromQTensor(weight, { dense }), bias);
    } catch (error) {
      bias?.dispose();
      throw error;
    }
  }
}

function bytesOf(tensor: Tensor): number {
  return tensor.elemCount * sizeInBytes(tensor.dtype);
}
