/**
 * Whether a file has all weights of a model, by their names, shapes and types and without reading them: the model is built
 * from {@link NotedWeights} that check what is asked for.
 */
import { formatShape } from '@x/core';
import type { TensorReader } from '@x/core/files';
import { hasBlocks } from '@x/quantized';
import { NotedWeights } from './noted-weights';
import type { TensorLayout, Weights } from './weights';

/** An architecture with its configuration, as `describeGguf` and its like give it. */
export interface CheckedModel<Config, Model> {
  readonly architecture: TensorLayout & { build(source: Weights, config: Config, length: number): Promise<Model> };
  readonly config: Config;
  /** As of `ModelDescription`. */
  readonly textPartOf?: string;
}

/**
 * Of a model that writes texts: what is wrong where config.json says that its head is not the embeddings and the file has none;
 * undefined where nothing is.
 */
export function missingHead(
  weights: Pick<Weights, 'has'>,
  { config, textPartOf }: { config: { untied?: true }; textPartOf?: string },
): string | undefined {
  if (!config.untied || textPartOf !== undefined || weights.has('output')) return undefined;
  return 'There is no head (lm_head.weight), which config.json says is not the embeddings (tie_word_embeddings).';
}

export interface WeightsReport<Model> {
  /** What is missing or of another shape or type, a sentence each; none for a file that loads. */
  problems: string[];
  /**
   * That a GGUF file has tensors of layers, embeddings or a head that the model does not read, without which it would be another
   * one; undefined where it has none.
   */
  unread: string | undefined;
  /** The model without weights: for its layouts, not to run. Dispose it. */
  model: Model;
}

/**
 * @param writes whether it is to write texts, for which it needs a head and is to read all that is in its file
 * @throws what `build` throws for a configuration that it refuses
 */
export async function checkWeights<Config extends { contextLength: number; untied?: true }, Model>(
  file: TensorReader,
  checked: CheckedModel<Config, Model>,
  { writes = false }: { writes?: boolean } = {},
): Promise<WeightsReport<Model>> {
  const { architecture, config } = checked;
  const weights = new CheckingWeights(file, architecture);
  const model = await architecture.build(weights, config, Math.min(config.contextLength, 64));
  const head = writes ? missingHead(weights, checked) : undefined;
  if (head !== undefined) weights.problems.push(head);
  const unread = hasBlocks(file) ? unreadOf(file.names, weights.wanted) : undefined;
  if (writes && unread !== undefined) weights.problems.push(unread);
  return { problems: weights.problems, unread, model };
}

/** What a model is made of, by its name in a GGUF file; all else is beside it, such as what looks at images. */
const OF_MODEL = /^(blk\.\d+\.|output|token_embd)/;

/** What says again what other tensors do: rotations of a layer, which are those of all, and DeepSeek's keys and values in one. */
const AGAIN = /\.(attn_rot_embd|rope_freqs|rope_factors_\w+|attn_kv_b)(\.weight)?$/;

/** Layers that predict further tokens have such tensors. */
const FURTHER = /^(blk\.\d+\.)nextn\./;

/** As of {@link WeightsReport}. @param names of the file @param wanted those that the model reads */
function unreadOf(names: readonly string[], wanted: ReadonlySet<string>): string | undefined {
  const further = new Set(names.map((name) => FURTHER.exec(name)?.[1]));
  const [first, ...others] = names.filter((name) => {
    const layer = /^blk\.\d+\./.exec(name)?.[0];
    return OF_MODEL.test(name) && !wanted.has(name) && !AGAIN.test(name) && !(layer && further.has(layer));
  });
  if (first === undefined) return undefined;
  const more = others.length === 0 ? 'has' : `and ${others.length} more tensors have`;
  return `${first} ${more} no place in this model: the file is of another architecture than it says, or of more layers.`;
}

class CheckingWeights extends NotedWeights {
  readonly problems: string[] = [];
  /** Names of tensors that the model reads. */
  readonly wanted = new Set<string>();

  constructor(
    private readonly reader: TensorReader,
    layout: TensorLayout,
  ) {
    super(reader, layout);
  }

  protected override noteOptional(name: string, shape: readonly number[]): boolean {
    const missing = this.missingBeside(name);
    if (missing !== undefined) this.note(missing, shape);
    const isThere = this.shapeOf(name) !== undefined;
    if (missing !== name && isThere) this.note(name, shape);
    return isThere;
  }

  protected override note(name: string, shape: readonly number[]): void {
    this.wanted.add(name);
    const found = this.shapeOf(name);
    // As when it is read: dims of 1 count for nothing where numbers are wanted.
    const sizes = (of: readonly number[]) => of.filter((size) => size !== 1).join();
    if (found === undefined) this.problems.push(`There is no ${name} ${formatShape(shape)}.`);
    else if (sizes(found) !== sizes(shape)) {
      this.problems.push(`${name} has the shape ${formatShape(found)}, and ${formatShape(shape)} is needed.`);
    } else if (hasBlocks(this.reader) && this.reader.tensors.get(name)?.format === undefined) {
      this.problems.push(`${name} has the type ${this.reader.tensors.get(name)?.type}, which cannot be read.`);
    } else {
      const integers = this.file.integerTypeOf(name);
      if (integers !== undefined)
        this.problems.push(`${name} holds ${integers}, but weights are floating-point numbers.`);
    }
  }
}
