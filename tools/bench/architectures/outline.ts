/** What a model of some configuration asks of its file, and what a token reads of that: without any weight. */
import type { Shape } from '@x/core';
import { blockFormat, byteLengthOf, type MixName, planMix } from '@x/quantized';
import type { CausalModel, ModelDescription, WeightRead } from '@x/transformers';
import { NotedWeights } from '../../../packages/transformers/src/weights/noted-weights';
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

class AskedWeights extends NotedWeights {
  /** Shapes by GGUF names. */
  readonly asked = new Map<string, Shape>();

  constructor(
    { architecture }: ModelDescription,
    private readonly present: ReadonlySet<string>,
  ) {
    super(new RandomFile([]), architecture);
  }

  override has(name: string): boolean {
    return this.isPresent(`${name}.weight`);
  }

  protected override note(name: string, shape: readonly number[]): void {
    this.asked.set(name, [...shape]);
  }

  protected override noteOptional(name: string, shape: readonly number[]): boolean {
    const isPresent = this.isPresent(name);
    if (isPresent) this.note(name, shape);
    return isPresent;
  }

  private isPresent(name: string): boolean {
    return this.present.has(name.replace(/^blk\.\d+\./, ''));
  }
}
