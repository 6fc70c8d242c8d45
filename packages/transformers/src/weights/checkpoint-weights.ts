/** Weights of a Hugging Face checkpoint, in one safetensors file or several: candle's `Llama::load` over a `VarBuilder`. */
import { type Device, type RopeKind, scope, Tensor } from '@x/core';
import { Embedding, Linear, type Module, OwningModule, RmsNorm, VarBuilder } from '@x/nn';
import { type DenseDType, QMatMul } from '@x/quantized';
import { type LinearGroup, StackedGroup, separateGroups } from './linear-group';
import { QLinear } from './q-linear';
import { type LinearPart, LoadSteps, type SourceOptions, type WeightSource } from './source';

/** Rows of an f16 or bf16 table, as f32. */
class NarrowEmbedding extends OwningModule {
  private readonly table: Embedding;

  /** Owns the table. */
  constructor(table: Tensor) {
    super();
    this.table = new Embedding(table);
  }

  forward(ids: Tensor): Tensor {
    return scope(() => this.table.forward(ids).toDtype('f32'));
  }

  override dispose(): void {
    this.table.dispose();
  }
}

export class CheckpointWeights implements WeightSource {
  readonly device: Device;
  readonly ropeKind: RopeKind = 'half';
  readonly activations: DenseDType;
  private readonly dtype: DenseDType;
  private readonly normOffset: number;
  private readonly steps: LoadSteps;
  private readonly signal?: AbortSignal;

  private constructor(
    private readonly builder: VarBuilder,
    options: SourceOptions,
  ) {
    this.device = options.device;
    this.dtype = options.dtype ?? 'f32';
    this.activations = options.activations ?? 'f32';
    this.signal = options.signal;
    this.normOffset = options.layout.normOffset ?? 0;
    const total = builder.names().reduce((sum, name) => sum + builder.byteLength(name), 0);
    this.steps = new LoadSteps(total, options);
  }

  /** @param files safetensors files, or an index of them; errors as `VarBuilder.fromSafetensors` */
  static open(files: readonly string[], options: SourceOptions): CheckpointWeights {
    return new CheckpointWeights(VarBuilder.fromSafetensors(files, { device: options.device }), options);
  }

  has(name: string): boolean {
    return this.builder.containsTensor(`${name}.weight`);
  }

  async linear(name: string, out: number, width: number): Promise<Module> {
    const weight = await this.load(`${name}.weight`, [out, width], this.dtype);
    try {
      const bias = this.builder.containsTensor(`${name}.bias`)
        ? await this.load(`${name}.bias`, [out], this.activations)
        : undefined;
      return this.product(weight, bias);
    } finally {
      weight.dispose();
    }
  }

  async group(parts: readonly LinearPart[], width: number): Promise<LinearGroup> {
    const outs = parts.map(({ out }) => out);
    if (parts.some(({ name }) => this.builder.containsTensor(`${name}.bias`))) {
      const one = async ({ name, out }: LinearPart) => new StackedGroup(await this.linear(name, out, width), [out]);
      return separateGroups(parts.map((part) => () => one(part)));
    }
    const weights: Tensor[] = [];
    try {
      for (const { name, out } of parts) weights.push(await this.load(`${name}.weight`, [out, width], this.dtype));
      const stacked = Tensor.cat(weights, 0);
      try {
        return new StackedGroup(this.product(stacked), outs);
      } finally {
        stacked.dispose();
      }
    } finally {
      for (const weight of weights) weight.dispose();
    }
  }

  async embedding(name: string, rows: number, width: number) {
    const table = await this.load(`${name}.weight`, [rows, width], this.dtype);
    const lookup = this.dtype === 'f32' ? new Embedding(table) : new NarrowEmbedding(table);
    return { lookup, asLinear: () => this.product(table) };
  }

  async norm(name: string, size: number, eps: number): Promise<RmsNorm> {
    const weight = await this.load(`${name}.weight`, [size], 'f32');
    if (this.normOffset === 0) return new RmsNorm(weight, eps);
    using stored = weight;
    return new RmsNorm(stored.add(this.normOffset), eps);
  }

  /** Checkpoints say it in config.json. */
  async ropeFactors(): Promise<undefined> {
    return undefined;
  }

  close(): void {
    this.builder.dispose();
  }

  /** A layer that shares `weight` and owns `bias`. */
  private product(weight: Tensor, bias?: Tensor): Module {
    if (this.dtype === 'f32' && this.activations === 'f32') return new Linear(weight.detach(), bias);
    return new QLinear(QMatMul.fromTensor(weight), bias);
  }

  private async load(name: string, shape: readonly number[], dtype: DenseDType): Promise<Tensor> {
    const tensor = await this.builder.get(shape, name, { dtype, signal: this.signal });
    try {
      await this.steps.after(this.builder.byteLength(name));
    } catch (error) {
      tensor.dispose();
      throw error;
    }
    return tensor;
  }
}
