/** What a model of some configuration asks of its file, and what a token reads of that: without any weight. */
import { Device, type Shape, Tensor } from '@x/core';
import type { LayerNorm, Module, RmsNorm } from '@x/nn';
import { blockFormat, byteLengthOf, type MixName, planMix } from '@x/quantized';
import {
  type CausalModel,
  type LinearGroup,
  type LinearPart,
  type ModelDescription,
  type WeightRead,
  Weights,
} from '@x/transformers';
import { RandomFile, type RandomTensor } from './random-file';

/** A model without its weights. */
export interface Outline {
  description: ModelDescription;
  /** In the order in which they are read. */
  tensors: readonly RandomTensor[];
  kvLayouts: CausalModel['kvLayouts'];
  stateLayouts: NonNullable<CausalModel['stateLayouts']>;
}

/** Of the numbers of a mixture. */
type Experts = { moe?: { experts: number; chosen: number } };

/**
 * @param optional tensors that files may lack and this one has, without `blk.N.`
 * @param mix how the file is quantized
 */
export async function outlineOf(
  description: ModelDescription,
  optional: ReadonlySet<string>,
  mix: MixName,
): Promise<Outline> {
  const { architecture, config } = description;
  const weights = new AskedWeights(description, optional);
  const model = await architecture.build(weights, config, 64);
  const { kvLayouts, stateLayouts = [] } = model;
  model.dispose();
  const asked = [...weights.asked].map(([name, shape]) => ({ name, shape }));
  const { moe } = config as Experts;
  const groupSize = config.numHeads / config.numKvHeads;
  const types = planMix(mix, asked, { groupSize, experts: moe?.experts ?? 0 });
  const tensors = asked.map((tensor) => ({ ...tensor, type: types.get(tensor.name) ?? ('f32' as const) }));
  return { description, tensors, kvLayouts, stateLayouts };
}

export function parametersOf({ tensors }: Outline): number {
  return tensors.reduce((sum, { shape }) => sum + countOf(shape), 0);
}

export function fileBytesOf({ tensors }: Outline): number {
  return tensors.reduce((sum, tensor) => sum + bytesOf(tensor), 0);
}

/** What a decode step reads of it, as a device would that keeps weights as the file has them. */
export function readsOf({ description, tensors }: Outline): WeightRead[] {
  const { moe } = description.config as Experts;
  const isTied = !tensors.some(({ name }) => name === 'output.weight');
  return tensors.flatMap((tensor): WeightRead[] => {
    const { name, shape } = tensor;
    const read = { name, bytes: bytesOf(tensor) };
    if (name === 'position_embd.weight') return [{ ...read, rows: shape[0] }];
    if (name === 'token_embd.weight') return [{ ...read, rows: shape[0] }, ...(isTied ? [read] : [])];
    return [name.includes('_exps.') ? { ...read, experts: moe!.experts } : read];
  });
}

function countOf(shape: readonly number[]): number {
  return shape.reduce((product, size) => product * size, 1);
}

function bytesOf({ shape, type }: RandomTensor): number {
  return byteLengthOf(blockFormat(type), countOf(shape));
}

/** What a method of {@link Weights} gives. */
type Made<Name extends 'experts' | 'heads' | 'embedding'> = ReturnType<Weights[Name]>;

/** Notes what is asked for and gives layers that compute nothing. */
class AskedWeights extends Weights {
  /** Shapes by GGUF names. */
  readonly asked = new Map<string, Shape>();

  constructor(
    { architecture }: ModelDescription,
    private readonly present: ReadonlySet<string>,
  ) {
    super(new RandomFile([]), { device: Device.js(), layout: architecture });
  }

  override has(name: string): boolean {
    return this.isPresent(`${name}.weight`);
  }

  override async linear(name: string, out: number, width: number): Promise<Module> {
    this.ask(`${name}.weight`, [out, width]);
    this.askIfPresent(`${name}.bias`, [out]);
    return nothing();
  }

  override async group(parts: readonly LinearPart[], width: number): Promise<LinearGroup> {
    for (const { name, out } of parts) await this.linear(name, out, width);
    return nothing();
  }

  override async fused(name: string, outs: readonly number[], width: number): Promise<LinearGroup> {
    await this.linear(
      name,
      outs.reduce((sum, rows) => sum + rows, 0),
      width,
    );
    return nothing();
  }

  override async experts(name: string, experts: number, out: number, width: number): Made<'experts'> {
    this.ask(`${name}.weight`, [experts, out, width]);
    this.askIfPresent(`${name}.bias`, [experts, out]);
    return nothing();
  }

  override async heads(name: string, heads: number, out: number, width: number): Made<'heads'> {
    this.ask(`${name}.weight`, [heads, out, width]);
    return nothing();
  }

  override async embedding(name: string, rows: number, width: number): Made<'embedding'> {
    this.ask(`${name}.weight`, [rows, width]);
    return { lookup: nothing(), asLinear: nothing };
  }

  override async norm(name: string, size: number): Promise<RmsNorm> {
    this.ask(`${name}.weight`, [size]);
    return nothing();
  }

  override async layerNorm(name: string, size: number): Promise<LayerNorm> {
    this.ask(`${name}.weight`, [size]);
    this.askIfPresent(`${name}.bias`, [size]);
    return nothing();
  }

  override async numbers(name: string, shape: readonly number[]): Promise<Tensor> {
    this.ask(name, shape);
    const { device } = this;
    // One number for all: no table of a large vocabulary is made.
    using zero = Tensor.zeros(
      shape.map(() => 1),
      { device },
    );
    return zero.broadcastAs([...shape]);
  }

  override async optional(name: string, shape: readonly number[]): Promise<Tensor | undefined> {
    return this.isPresent(name) ? this.numbers(name, shape) : undefined;
  }

  private isPresent(name: string): boolean {
    return this.present.has(name.replace(/^blk\.\d+\./, ''));
  }

  private ask(name: string, shape: readonly number[]): void {
    this.asked.set(name, [...shape]);
  }

  private askIfPresent(name: string, shape: readonly number[]): void {
    if (this.isPresent(name)) this.ask(name, shape);
  }
}

/** A layer of a model that is not run. */
function nothing<T>(): T {
  return { forward: () => undefined, dispose() {} } as T;
}
