/**
 * A stack of decoder layers between an embedding and a head: what all causal models have in common. The layers are an
 * architecture's own (llama.ts, qwen3.ts, ...).
 */
import { type Device, DisposedError, scope, Tensor } from '@x/core';
import type { Module } from '@x/nn';
import type { DecoderConfig } from '../config/decoder-config';
import { unsupported } from '../config/problems';
import type { HostExperts } from '../weights/host-experts';
import { readsOf } from '../weights/linear-group';
import type { LoraSites } from '../weights/lora';
import { project } from '../weights/q-linear';
import { type Stage, stageOf } from '../weights/shard';
import type { Weights } from '../weights/weights';
import type { Angles, Rotation } from './attention';
import type {
  Batch,
  CausalModel,
  ForwardPass,
  KvLayout,
  KvView,
  LayerKv,
  LayerStates,
  PassStep,
  StateLayout,
} from './causal-model';
import { normOf } from './norm-of';
import { normed, type Residual, rowsAt } from './residual';

/** What a layer keeps: keys and values, or states. Of the two that which it has. */
export interface LayerMemory {
  readonly kv: LayerKv;
  readonly states: LayerStates;
}

/** Two steps, each of which adds what `at` leaves to be added, and leaves its own to the next one. */
export interface DecoderLayer {
  /** What it keeps of a sequence in the place of keys and values. */
  readonly stateLayout?: StateLayout;
  /** Attention, or what is in its place. @param angles of each of the model's rotations */
  attend(at: Residual, angles: readonly Angles[], memory: LayerMemory): Residual;
  /** The feed-forward layer; layers without it do all in `attend`. */
  feed?(at: Residual): Residual;
  /** What it keeps of a token. Default: the key and value heads of the configuration. */
  readonly kvLayout?: KvLayout;
  dispose(): void;
}

/** What comes in front of the layers and behind them. */
export interface EndsOptions {
  /** Name of the last norm. Default `output_norm`. */
  outputNorm?: string;
  /** Multiplies the embeddings. Default 1. */
  embeddingScale?: number;
  /** Embeddings of so many positions are added to those of the tokens. Default: none. */
  learntPositions?: number;
  /** Whether the last norm takes the mean away. Default `rms`: it does not. */
  norm?: 'rms' | 'layer';
  /** Multiplies the logits. Default 1. */
  logitScale?: number;
  /** Logits become cap · tanh(logits / cap). Default: they stay. */
  logitSoftcap?: number;
}

export interface DecoderOptions extends EndsOptions {
  rotations: (own: Own) => Promise<Rotation[]> | Rotation[];
  layer: (index: number, own: Own) => Promise<DecoderLayer>;
}

/** Notes what was made, so that it is given back when something later fails. */
export type Own = <T extends { dispose(): void }>(thing: T) => T;

interface Parts {
  /** Of what goes into the head. */
  activations: Weights['activations'];
  lora: LoraSites;
  hostExperts: HostExperts | undefined;
  /** Where ranks have layers: this one's. */
  stage: Stage | undefined;
  /** On the rank that has the first layer; so are `places`. */
  embed: Module | undefined;
  /** Embeddings of positions. */
  places: Module | undefined;
  options: EndsOptions;
  rotations: readonly Rotation[];
  /** Undefined for those of other ranks. */
  layers: readonly (DecoderLayer | undefined)[];
  /** On the rank that has the last layer; so is the head. */
  norm: Module | undefined;
  head: Module | undefined;
}

export class Decoder implements CausalModel {
  readonly device: Device;
  readonly kvLayouts: readonly (KvLayout | undefined)[];
  readonly stateLayouts: readonly (StateLayout | undefined)[];
  private disposed = false;

  private constructor(
    readonly config: DecoderConfig,
    device: Device,
    private readonly parts: Parts,
  ) {
    this.device = device;
    const { numKvHeads, headDim } = config;
    const usual = { kvHeads: numKvHeads, keyDim: headDim, valueDim: headDim };
    this.stateLayouts = parts.layers.map((layer) => layer?.stateLayout);
    this.kvLayouts = parts.layers.map((layer) => (!layer || layer.stateLayout ? undefined : (layer.kvLayout ?? usual)));
  }

  /** Reads all weights. What was read is given back when it fails. */
  static async load(source: Weights, config: DecoderConfig, options: DecoderOptions): Promise<Decoder> {
    const made: { dispose(): void }[] = [];
    const own: Own = (thing) => {
      made.push(thing);
      return thing;
    };
    try {
      const { hiddenSize, tokenCount } = config;
      const isCounted = tokenCount !== undefined && source.shapeOf('token_embd.weight')?.[0] === tokenCount;
      const vocabSize = isCounted ? tokenCount : config.vocabSize;
      const { norm: kind = 'rms', learntPositions: length, outputNorm = 'output_norm' } = options;
      const stage = stageOf(source.shard, config.numLayers);
      const { isFirst, isLast, layers: has } = stage ?? { isFirst: true, isLast: true, layers: undefined };
      // Checkpoints with tied embeddings may still hold a copy of the table under `output`; it is the same matrix.
      const isTied = !source.has('output');
      const table =
        isFirst || (isLast && isTied) ? await source.embedding('token_embd', vocabSize, hiddenSize) : undefined;
      const embed = table && own(table.lookup);
      const places = isFirst && length && own((await source.embedding('position_embd', length, hiddenSize)).lookup);
      const layers: (DecoderLayer | undefined)[] = [];
      for (let i = 0; i < config.numLayers; i++) {
        const isOwn = !has || (i >= has.start && i < has.start + has.count);
        layers.push(isOwn ? own(await options.layer(i, own)) : undefined);
        if (stage && layers[i]?.stateLayout)
          throw unsupported(
            'has layers that carry a state, which devices cannot share as whole layers; leave pipeline out',
          );
      }
      const norm = isLast ? own(await normOf(source, kind, outputNorm, config)) : undefined;
      const head = isLast
        ? own(isTied ? table!.asLinear() : await source.head('output', vocabSize, hiddenSize))
        : undefined;
      const rotations = await options.rotations(own);
      return new Decoder({ ...config, vocabSize }, source.device, {
        activations: source.activations,
        lora: source.lora,
        hostExperts: source.hostExperts?.areThere ? source.hostExperts : undefined,
        stage,
        embed,
        places: places || undefined,
        options,
        rotations,
        layers,
        norm,
        head,
      });
    } catch (error) {
      for (const thing of made) thing.dispose();
      throw error;
    }
  }

  get lora(): LoraSites {
    return this.parts.lora;
  }

  get hostExperts(): HostExperts | undefined {
    return this.parts.hostExperts;
  }

  *pass({ tokens, positions, outputs, lora: adapted }: Batch, kv: KvView): ForwardPass {
    this.checkAlive();
    const { activations, lora, stage, embed, places, options, rotations, layers, norm, head } = this.parts;
    const { embeddingScale = 1, logitScale = 1, logitSoftcap } = options;
    const { hiddenSize, vocabSize } = this.config;
    // Those of other ranks have as many parts as this one's: all ranks take as many steps.
    const usual = layers.find((layer) => layer)!;
    const partsOf = (layer: DecoderLayer = usual) => (layer.feed ? 2 : 1);
    const parts = layers.reduce((sum, layer) => sum + partsOf(layer), 0);
    const steps = parts + (outputs === 'none' ? 0 : 1);
    let taken = 0;
    const angles = rotations.map((rotation) => rotation.at(positions));
    const communicator = stage?.shard.communicator;
    const embedded = scope(() => {
      // What the rank in front sends takes its place.
      if (stage && !stage.isFirst) return Tensor.zeros([1], 'f32', this.device);
      const rows = embed!.forward(tokens);
      const scaled = embeddingScale === 1 ? rows : rows.mul(embeddingScale);
      return places ? scaled.add(places.forward(positions)) : scaled;
    });
    let at: Residual = { x: embedded };
    const tensors = ({ x, delta }: Residual) => (delta ? [x, delta] : [x]);
    const then = (run: () => Residual): PassStep => {
      // Between two steps anything may have happened.
      this.checkAlive();
      const before = at;
      // Another pass may have its turn before the next step, with other adapters.
      at = lora.during(adapted?.tokens, () => scope(run));
      // Where nothing was to be added, x stays the same.
      for (const tensor of tensors(before)) if (!tensors(at).includes(tensor)) tensor.dispose();
      return { output: at.delta ?? at.x, share: ++taken / steps };
    };
    try {
      for (const [i, layer] of layers.entries()) {
        if (!layer) {
          for (let part = partsOf(); part > 0; part--) yield { output: at.x, share: ++taken / steps };
          continue;
        }
        if (stage && !stage.isFirst && i === stage.layers.start) {
          const from = stage.shard.rank - 1;
          at.x.dispose();
          at = { x: communicator!.recv([tokens.dim(0), hiddenSize], 'f32', from) };
        }
        const memory: LayerMemory = {
          get kv() {
            return kv.layer(i);
          },
          get states() {
            if (!kv.states) throw unsupported('carries states from token to token, which are not kept here');
            return kv.states(i);
          },
        };
        yield then(() => layer.attend(at, angles, memory));
        if (layer.feed) yield then(() => layer.feed!(at));
        if (stage && !stage.isLast && i === stage.layers.start + stage.layers.count - 1)
          scope(() => communicator!.send(normed(at, undefined, 'f32').x, stage.shard.rank + 1));
      }
      if (outputs === 'none') return undefined;
      this.checkAlive();
      const isHidden = outputs === 'hidden';
      const result = () => {
        if (isHidden) return normed(at, norm, 'f32').input as Tensor;
        const wanted = outputs === 'all' ? at : rowsAt(at, outputs);
        const { input } = normed(wanted, norm, readsOf(head!, activations, wanted.x.dim(0)));
        const rows = project(head!, input, activations);
        const logits = logitScale === 1 ? rows : rows.mul(logitScale);
        return logitSoftcap === undefined ? logits : logits.div(logitSoftcap).tanh().mul(logitSoftcap);
      };
      if (!stage) return lora.during(adapted?.outputs, () => scope(result));
      // All ranks get what the last one has.
      return scope(() => {
        const rows = outputs === 'all' || isHidden ? tokens.dim(0) : outputs.dim(0);
        const whole = stage.isLast
          ? result().contiguous()
          : Tensor.zeros([rows, isHidden ? hiddenSize : vocabSize], 'f32', this.device);
        communicator!.broadcast(whole, stage.shard.size - 1);
        return whole;
      });
    } finally {
      for (const thing of [...tensors(at), ...angles]) thing.dispose();
    }
  }

  private checkAlive(): void {
    if (this.disposed) throw new DisposedError('DISPOSED', 'forward: the model was disposed; load it again.');
  }

  dispose(): void {
    if (this.disposed) return;
    this.disposed = true;
    const { lora, embed, places, rotations, layers, norm, head } = this.parts;
    lora.dispose();
    for (const part of [embed, places, ...rotations, ...layers, norm, head]) part?.dispose();
  }
}
