/** Embeddings, a stack of layers, and the heads behind them: what all encoders have in common. */
import { type Device, DisposedError, keep, scope, Tensor } from '@x/core';
import { type ActivationName, type Activations, activate, type Module, type Segments, Slopes } from '@x/nn';
import type { DecoderConfig } from '../config/decoder-config';
import type { RopeConfig } from '../config/rope';
import { TransformersError } from '../errors';
import { Rotation } from '../models/attention';
import type { ForwardPass, PassStep } from '../models/causal-model';
import type { Own } from '../models/decoder';
import { project } from '../weights/q-linear';
import type { Weights } from '../weights/weights';
import type { EncoderContext } from './encoder-attention';
import { EncoderLayer, type EncoderLayerOptions, numbersOf } from './encoder-layer';
import type { EncoderBatch, EncoderModel } from './encoder-model';
import { poolRows } from './pooling';

/** What makes a sequence one row, and what its scores come from. */
export interface ClassifierOptions {
  /** Default `cls`, the first token. */
  pooling?: 'cls' | 'mean';
  /** Behind the first of its two products. Default `tanh`. */
  activation?: ActivationName;
}

export interface EncoderOptions {
  /** Positions that a sequence may have. */
  length: number;
  /** How queries and keys are turned, in the order that layers name them. Default: they are not. */
  rotations?: readonly RopeConfig[];
  /** Embeddings of positions: rows of the table, and the row of the first position. Default: there are none. */
  positions?: { rows: number; first: number };
  /** ALiBi's slopes, one a head. */
  slopes?: readonly number[];
  /** What is special about a layer. */
  layer: (index: number) => EncoderLayerOptions;
  classifier?: ClassifierOptions;
}

interface Parts {
  embed: Module;
  places: Module | undefined;
  types: Module | undefined;
  /** [hidden], the embedding of type 0. */
  firstType: Tensor | undefined;
  embedNorm: Module | undefined;
  rotations: readonly Rotation[];
  slopes: Slopes | undefined;
  layers: readonly EncoderLayer[];
  norm: Module | undefined;
  head: { dense: Module; norm: Module | undefined; out: Module; labels: number } | undefined;
}

export class Encoder implements EncoderModel {
  private disposed = false;

  private constructor(
    readonly config: DecoderConfig,
    readonly device: Device,
    private readonly dtype: Weights['activations'],
    private readonly options: EncoderOptions,
    private readonly parts: Parts,
  ) {}

  /** Reads all weights. What was read is given back when it fails. */
  static async load(source: Weights, config: DecoderConfig, options: EncoderOptions): Promise<Encoder> {
    const made: { dispose(): void }[] = [];
    const own: Own = (thing) => {
      made.push(thing);
      return thing;
    };
    try {
      const { device } = source;
      const { hiddenSize, vocabSize, headDim, normEps } = config;
      const { length, positions, rotations = [], slopes } = options;
      const table = async (name: string, rows: number) => own((await source.embedding(name, rows, hiddenSize)).lookup);
      const norm = async (name: string) =>
        source.has(name) ? own(await source.layerNorm(name, hiddenSize, normEps)) : undefined;
      const embed = await table('token_embd', vocabSize);
      const places = positions && (await table('position_embd', positions.rows));
      const typeCount = source.shapeOf('token_types.weight')?.[0];
      const types = typeCount === undefined ? undefined : await table('token_types', typeCount);
      const layers: EncoderLayer[] = [];
      const embedNorm = await norm('token_embd_norm');
      for (let i = 0; i < config.numLayers; i++)
        layers.push(own(await EncoderLayer.load(source, `blk.${i}`, config, own, options.layer(i))));
      const turns: Rotation[] = [];
      const scale = 1 / Math.sqrt(headDim);
      for (const rope of rotations) turns.push(own(await Rotation.load(source, rope, { length, headDim, scale })));
      const last = await norm('output_norm');
      const labels = source.shapeOf('cls.output.weight')?.[0];
      const head = labels !== undefined && {
        dense: own(await source.linear('cls', hiddenSize, hiddenSize)),
        norm: await norm('cls.norm'),
        out: own(await source.linear('cls.output', labels, hiddenSize)),
        labels,
      };
      const firstType =
        types &&
        own(keep(scope(() => types.forward(Tensor.from(Uint32Array.of(0), { device })).reshape([hiddenSize]))));
      return new Encoder(config, device, source.activations, options, {
        embed,
        places,
        types,
        firstType,
        embedNorm,
        rotations: turns,
        slopes: slopes && own(new Slopes(slopes, device)),
        layers,
        norm: last,
        head: head || undefined,
      });
    } catch (error) {
      for (const thing of made) thing.dispose();
      throw error;
    }
  }

  get labels(): number {
    return this.parts.head?.labels ?? 0;
  }

  *pass(batch: EncoderBatch): ForwardPass {
    this.checkAlive();
    const { layers, rotations, slopes, norm } = this.parts;
    const { segments, positions } = batch;
    const angles = rotations.map((rotation) => rotation.at(positions));
    let x: Activations = scope(() => this.embed(batch));
    let taken = 0;
    const then = (run: () => Activations): PassStep => {
      // Between two steps anything may have happened.
      this.checkAlive();
      const before = x;
      x = scope(run);
      if (x !== before) before.dispose();
      return { output: numbersOf(x), share: ++taken / (2 * layers.length) };
    };
    try {
      for (const [i, layer] of layers.entries()) {
        const context: EncoderContext = { segments, angles: angles[layer.rotation], slopes };
        yield then(() => layer.attend(x, context));
        yield then(() => layer.feed(x, layers[i + 1]?.reads(numbersOf(x).dim(0))));
      }
      this.checkAlive();
      const hidden = numbersOf(x);
      return norm ? norm.forward(hidden) : hidden.detach();
    } finally {
      for (const thing of [x, ...angles]) thing.dispose();
    }
  }

  classify(hidden: Tensor, segments: Segments): Tensor {
    this.checkAlive();
    const { head } = this.parts;
    if (!head) {
      throw new TransformersError(
        'UNSUPPORTED_MODEL',
        'This model has no classification head, from which scores come; use a reranker or a classifier.',
      );
    }
    const { pooling = 'cls', activation = 'tanh' } = this.options.classifier ?? {};
    return scope(() => {
      const pooled = poolRows(hidden, segments, pooling);
      const inner = activate(project(head.dense, pooled, this.dtype), activation);
      return project(head.out, head.norm ? head.norm.forward(inner) : inner, this.dtype);
    });
  }

  private embed({ tokens, positions, types: ids }: EncoderBatch): Tensor {
    const { embed, places, types, firstType, embedNorm } = this.parts;
    const first = this.options.positions?.first ?? 0;
    let sum = embed.forward(tokens);
    if (places) sum = sum.add(places.forward(first === 0 ? positions : positions.add(first)));
    if (types && firstType) sum = ids ? sum.add(types.forward(ids)) : sum.broadcastAdd(firstType);
    return embedNorm ? embedNorm.forward(sum) : sum;
  }

  private checkAlive(): void {
    if (this.disposed) throw new DisposedError('DISPOSED', 'forward: the model was disposed; load it again.');
  }

  dispose(): void {
    if (this.disposed) return;
    this.disposed = true;
    const { embed, places, types, firstType, embedNorm, rotations, slopes, layers, norm, head } = this.parts;
    for (const part of [embed, places, types, firstType, embedNorm, ...rotations, slopes, ...layers, norm])
      part?.dispose();
    for (const part of [head?.dense, head?.norm, head?.out]) part?.dispose();
  }
}
