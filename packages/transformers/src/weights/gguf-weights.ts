/** Weights of a GGUF file, named as llama.cpp names them: candle's `quantized_llama::ModelWeights::from_gguf`. */
import { type Device, keep, type RopeKind, ShapeError, type Tensor } from '@x/core';
import { type Module, OwningModule, RmsNorm } from '@x/nn';
import { type DenseDType, type GgufFile, type GgufTensorInfo, QMatMul, QTensor } from '@x/quantized';
import { type LinearGroup, StackedGroup, separateGroups } from './linear-group';
import { QLinear } from './q-linear';
import { type LinearPart, LoadSteps, type SourceOptions, type WeightSource } from './source';
import { TensorNames } from './tensor-names';

const ROPE_FACTORS = 'rope_freqs.weight';

/** Rows of a table in blocks. */
class QEmbedding extends OwningModule {
  constructor(readonly table: QTensor) {
    super();
    keep(table);
  }

  forward(ids: Tensor): Tensor {
    return this.table.embedding(ids);
  }

  override dispose(): void {
    this.table.dispose();
  }
}

export class GgufWeights implements WeightSource {
  readonly device: Device;
  readonly activations: DenseDType;
  readonly ropeKind: RopeKind;
  private readonly names: TensorNames;
  private readonly steps: LoadSteps;

  /** Takes the file over: {@link close} closes it. */
  constructor(
    private readonly file: GgufFile,
    private readonly options: SourceOptions,
  ) {
    this.device = options.device;
    this.activations = options.activations ?? 'f32';
    this.ropeKind = options.layout.ggufRope;
    this.names = new TensorNames(options.layout.tensors);
    let total = 0;
    for (const info of file.tensors.values()) total += info.byteLength ?? 0;
    this.steps = new LoadSteps(total, options);
  }

  has(name: string): boolean {
    return this.file.tensors.has(`${this.nameOf(name)}.weight`);
  }

  async linear(name: string, out: number, width: number): Promise<Module> {
    const weight = await this.load(`${this.nameOf(name)}.weight`, [out, width]);
    try {
      const biasName = `${this.nameOf(name)}.bias`;
      const bias = this.file.tensors.has(biasName) ? await this.dense(biasName, [out], this.activations) : undefined;
      return this.product(weight, bias);
    } finally {
      weight.dispose();
    }
  }

  /** Neighbours of one type are stacked: in a q4_K_M file query and key often share a type that value does not. */
  async group(parts: readonly LinearPart[], width: number): Promise<LinearGroup> {
    const runs: LinearPart[][] = [];
    let last: string | undefined;
    for (const part of parts) {
      const name = this.nameOf(part.name);
      const { type } = this.file.tensor(`${name}.weight`);
      const alone = this.file.tensors.has(`${name}.bias`);
      if (type === last && !alone) runs[runs.length - 1].push(part);
      else runs.push([part]);
      last = alone ? undefined : type;
    }
    return separateGroups(runs.map((run) => () => this.run(run, width)));
  }

  private async run(parts: readonly LinearPart[], width: number): Promise<LinearGroup> {
    const outs = parts.map(({ out }) => out);
    if (parts.length === 1) return new StackedGroup(await this.linear(parts[0].name, outs[0], width), outs);
    const infos = parts.map(({ name, out }) => this.checkShape(`${this.nameOf(name)}.weight`, [out, width]));
    const { dtype: dense, signal } = this.options;
    const names = infos.map(({ name }) => name);
    const weight = await QTensor.loadStacked(this.file, names, this.device, { dense, signal });
    try {
      for (const { byteLength } of infos) await this.steps.after(byteLength ?? 0);
      return new StackedGroup(this.product(weight), outs);
    } finally {
      weight.dispose();
    }
  }

  async embedding(name: string, rows: number, width: number) {
    const table = await this.load(`${this.nameOf(name)}.weight`, [rows, width]);
    return { lookup: new QEmbedding(table), asLinear: () => this.product(table) };
  }

  async norm(name: string, size: number, eps: number): Promise<RmsNorm> {
    return new RmsNorm(await this.dense(`${this.nameOf(name)}.weight`, [size]), eps);
  }

  async ropeFactors(size: number): Promise<Float32Array | undefined> {
    if (!this.file.tensors.has(ROPE_FACTORS)) return undefined;
    const values = await this.dense(ROPE_FACTORS, [size]);
    try {
      return await values.toArray<Float32Array>();
    } finally {
      values.dispose();
    }
  }

  close(): void {
    this.file.close();
  }

  private nameOf(name: string): string {
    const found = this.names.toGguf(name);
    if (found === undefined) throw new Error(`internal: the architecture's list of tensors has no "${name}"`);
    return found;
  }

  /** A layer that shares `weight` and owns `bias`. */
  private product(weight: QTensor, bias?: Tensor): Module {
    return new QLinear(QMatMul.fromQTensor(weight, { dense: this.options.dtype }), bias);
  }

  private async dense(name: string, shape: readonly number[], dtype: DenseDType = 'f32'): Promise<Tensor> {
    const blocks = await this.load(name, shape);
    try {
      return blocks.dequantize(dtype);
    } finally {
      blocks.dispose();
    }
  }

  private async load(name: string, shape: readonly number[]): Promise<QTensor> {
    const info = this.checkShape(name, shape);
    const { dtype: dense, signal } = this.options;
    const tensor = await QTensor.load(this.file, name, this.device, { dense, signal });
    try {
      await this.steps.after(info.byteLength ?? 0);
    } catch (error) {
      tensor.dispose();
      throw error;
    }
    return tensor;
  }

  private checkShape(name: string, shape: readonly number[]): GgufTensorInfo {
    const info = this.file.tensor(name);
    if (info.shape.length !== shape.length || info.shape.some((size, i) => size !== shape[i])) {
      throw new ShapeError(
        'SHAPE_MISMATCH',
        `${this.file.path}: tensor '${name}' has shape [${info.shape.join(', ')}], but the file's metadata asks for [${shape.join(', ')}]; ` +
          'the file is damaged or its architecture is named wrongly: convert it again.',
      );
    }
    return info;
  }
}
