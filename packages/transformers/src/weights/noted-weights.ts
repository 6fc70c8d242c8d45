/** What a model asks of its file, noted in the place of reading it. */
import { Device, Tensor } from '@x/core';
import type { TensorReader } from '@x/core/files';
import type { LayerNorm, Module, RmsNorm } from '@x/nn';
import type { ExpertLinear } from './expert-linear';
import type { HeadLinear } from './head-linear';
import type { LinearGroup } from './linear-group';
import { type LinearPart, type TensorLayout, Weights } from './weights';

/** Gives layers that compute nothing. */
export abstract class NotedWeights extends Weights {
  constructor(file: TensorReader, layout: TensorLayout) {
    super(file, { device: Device.js(), layout });
  }

  /** Of a tensor that the model needs. @param name with its ending */
  protected abstract note(name: string, shape: readonly number[]): void;

  /** Of one that files may lack. @returns whether this one has it */
  protected abstract noteOptional(name: string, shape: readonly number[]): boolean;

  override async linear(name: string, out: number, width: number): Promise<Module> {
    this.note(`${name}.weight`, [out, width]);
    this.noteOptional(`${name}.bias`, [out]);
    return nothing();
  }

  override async group(parts: readonly LinearPart[], width: number): Promise<LinearGroup> {
    for (const { name, out } of parts) await this.linear(name, out, width);
    return nothing();
  }

  override async fused(name: string, outs: readonly number[], width: number): Promise<LinearGroup> {
    const out = outs.reduce((sum, rows) => sum + rows, 0);
    await this.linear(name, out, width);
    return nothing();
  }

  override async experts(name: string, experts: number, out: number, width: number): Promise<ExpertLinear> {
    this.note(`${name}.weight`, [experts, out, width]);
    this.noteOptional(`${name}.bias`, [experts, out]);
    return nothing();
  }

  override async heads(name: string, heads: number, out: number, width: number): Promise<HeadLinear> {
    this.note(`${name}.weight`, [heads, out, width]);
    return nothing();
  }

  override async embedding(name: string, rows: number, width: number): Promise<{ lookup: Module; asLinear(): Module }> {
    this.note(`${name}.weight`, [rows, width]);
    // Encoders look rows up while they are built.
    const forward = (ids: Tensor) => Tensor.zeros([...ids.shape, width], 'f32', this.device);
    return { lookup: { ...nothing<Module>(), forward }, asLinear: nothing };
  }

  override async norm(name: string, size: number): Promise<RmsNorm> {
    this.note(`${name}.weight`, [size]);
    return nothing();
  }

  override async layerNorm(name: string, size: number): Promise<LayerNorm> {
    this.note(`${name}.weight`, [size]);
    this.noteOptional(`${name}.bias`, [size]);
    return nothing();
  }

  override async numbers(name: string, shape: readonly number[]): Promise<Tensor> {
    this.note(name, shape);
    return this.zeros(shape);
  }

  override async optional(name: string, shape: readonly number[]): Promise<Tensor | undefined> {
    return this.noteOptional(name, shape) ? this.zeros(shape) : undefined;
  }

  /** A single number for all, so that sizes of a damaged file take no memory. */
  private zeros(shape: readonly number[]): Tensor {
    using zero = Tensor.zeros(
      shape.map(() => 1),
      'f32',
      this.device,
    );
    return zero.broadcastAs([...shape]);
  }
}

/** A layer of a model that is not run. */
function nothing<T>(): T {
  return { forward: notRun, dispose() {} } as T;
}

function notRun(): never {
  throw new Error('internal: a model without weights is run');
}
