/**
 * Llama and the models built like it (Llama 1 to 3.3, TinyLlama, SmolLM, ...): candle's llama.rs and quantized_llama.rs
 * in one file, because the weights decide what a linear layer is (see weights.ts).
 *
 * Different from candle:
 * - one sequence, so activations are [seq, hidden]; candle carries a batch dimension of 1;
 * - keys and values lie in a buffer allocated when the model is loaded; candle concatenates them at every token;
 * - grouped heads: the query heads that share a key head are rows of one product [kvHeads, rep · seq, d], where candle
 *   copies keys and values `rep` times;
 * - query, key and value are one product, gate and up another (linear-group.ts);
 * - the factor 1/sqrt(d) is in the queries' rotation table and costs no operation.
 */
import { type Device, DisposedError, type RopeKind, scope, Tensor } from '@x/core';
import { KvCache, type Module, RotaryTable } from '@x/nn';
import { TransformersError } from '../errors';
import type { LinearGroup } from './linear-group';
import { type LlamaConfig, ropeFrequencies } from './llama-config';
import type { CausalModel, ForwardPass, LinearPart, PassStep, WeightSource } from './weights';

/** Steps of a layer in a forward pass. */
const LAYER_STEPS = 3;

/**
 * How many tokens of a prompt are read in one pass. Chunks change the last bits of results (products with few rows and
 * with many are different kernels), so their size follows from model, device and position, never from a clock.
 * A GPU takes GPU_CHUNK. Elsewhere it is the largest power of two from `min` to `max` with at most `work` multiply-adds in
 * a step: some 50 ms on two cores. Fewer tokens than `min` share the reading of the weights among too few, more than
 * `max` gain nothing.
 */
const GPU_CHUNK = 256;
const CHUNKS: Partial<Record<Device['location']['kind'], { work: number; min: number; max: number }>> = {
  cpu: { work: 2 ** 31, min: 32, max: 128 },
  js: { work: 2 ** 24, min: 8, max: 128 },
};

interface Layer {
  inputNorm: Module;
  /** Query, key, value. */
  qkv: LinearGroup;
  o: Module;
  postNorm: Module;
  gateUp: LinearGroup;
  down: Module;
  cache: KvCache;
}

/** What all layers share within one forward pass. */
interface Step {
  seq: number;
  query: { cos: Tensor; sin: Tensor };
  key: { cos: Tensor; sin: Tensor };
  /** [seq, length]: 0 where a position may look, -Infinity where not. None for a single token. */
  mask: Tensor | undefined;
}

interface Parts {
  ropeKind: RopeKind;
  embed: Module;
  layers: Layer[];
  norm: Module;
  head: Module;
  queryTable: RotaryTable;
  keyTable: RotaryTable;
}

export class Llama implements CausalModel {
  private disposed = false;
  /** Passes begun and resets so far: only the newest pass may take positions back. */
  private epoch = 0;

  private constructor(
    readonly config: LlamaConfig,
    readonly maxContext: number,
    private readonly source: Pick<WeightSource, 'device'>,
    private readonly parts: Parts,
  ) {}

  /**
   * Reads all weights and allocates the key-value cache. What was read is given back when it fails.
   * @param maxContext positions in the cache
   */
  static async load(weights: WeightSource, config: LlamaConfig, maxContext: number): Promise<Llama> {
    const { device } = weights;
    const made: { dispose(): void }[] = [];
    const own = <T extends { dispose(): void }>(thing: T): T => {
      made.push(thing);
      return thing;
    };
    try {
      const { hiddenSize, vocabSize, headDim, numHeads, numKvHeads, intermediateSize, rmsNormEps } = config;
      const linear = async (name: string, out: number, width: number) => own(await weights.linear(name, out, width));
      const group = async (parts: readonly LinearPart[]) => own(await weights.group(parts, hiddenSize));
      const norm = async (name: string) => own(await weights.norm(name, hiddenSize, rmsNormEps));
      const table = await weights.embedding('model.embed_tokens', vocabSize, hiddenSize);
      const embed = own(table.lookup);
      const layers: Layer[] = [];
      for (let i = 0; i < config.numLayers; i++) {
        const at = `model.layers.${i}`;
        const cache = own(new KvCache(1, maxContext));
        cache.reserve([numKvHeads, maxContext, headDim], 'f32', device);
        layers.push({
          inputNorm: await norm(`${at}.input_layernorm`),
          qkv: await group([
            { name: `${at}.self_attn.q_proj`, out: numHeads * headDim },
            { name: `${at}.self_attn.k_proj`, out: numKvHeads * headDim },
            { name: `${at}.self_attn.v_proj`, out: numKvHeads * headDim },
          ]),
          o: await linear(`${at}.self_attn.o_proj`, hiddenSize, numHeads * headDim),
          postNorm: await norm(`${at}.post_attention_layernorm`),
          gateUp: await group([
            { name: `${at}.mlp.gate_proj`, out: intermediateSize },
            { name: `${at}.mlp.up_proj`, out: intermediateSize },
          ]),
          down: await linear(`${at}.mlp.down_proj`, hiddenSize, intermediateSize),
          cache,
        });
      }
      const finalNorm = await norm('model.norm');
      // Checkpoints with tied embeddings may still hold a copy of the table under lm_head; it is the same matrix.
      const head = weights.has('lm_head') ? await linear('lm_head', vocabSize, hiddenSize) : own(table.asLinear());
      const frequencies = ropeFrequencies(config, await weights.vector('rope_freqs', headDim / 2));
      const keyTable = own(new RotaryTable({ frequencies, length: maxContext, device }));
      const queryTable = own(
        new RotaryTable({ frequencies, length: maxContext, device, scale: 1 / Math.sqrt(headDim) }),
      );
      const parts = { ropeKind: weights.ropeKind, embed, layers, norm: finalNorm, head, queryTable, keyTable };
      return new Llama(config, maxContext, weights, parts);
    } catch (error) {
      for (const thing of made) thing.dispose();
      throw error;
    }
  }

  /** Positions in the cache. */
  get length(): number {
    return this.parts.layers[0].cache.length;
  }

  /**
   * Appends tokens to the sequence and predicts the one after the last.
   * @param ids tokens at `position`, `position + 1`, ...
   * @param position at most {@link length}; cached positions from here on are replaced
   * @returns logits [vocabSize], f32; the caller's to dispose
   * @throws TransformersError EMPTY_INPUT, BAD_TOKEN, CONTEXT_EXCEEDED, INVALID_OPTION
   */
  forward(ids: ArrayLike<number>, position: number): Tensor {
    const pass = this.pass(ids, position, true);
    for (;;) {
      const step = pass.next();
      if (step.done) return step.value!;
    }
  }

  /** {@link forward} in steps. The checks are made at the first one. */
  *pass(ids: ArrayLike<number>, position: number, logits: boolean): ForwardPass {
    this.check(ids, position);
    const { layers, embed, norm, head, queryTable, keyTable } = this.parts;
    const { device } = this.source;
    const seq = ids.length;
    const epoch = ++this.epoch;
    for (const { cache } of layers) cache.truncate(position);
    const steps = layers.length * LAYER_STEPS + (logits ? 1 : 0);
    let taken = 0;
    let ended = false;
    const held: Tensor[] = [];
    /** Keeps the results of a step, disposes those of earlier ones. */
    const hold = (...results: Tensor[]): PassStep => {
      for (const tensor of held.splice(0)) if (!results.includes(tensor)) tensor.dispose();
      held.push(...results);
      return { output: results[0], share: ++taken / steps };
    };
    const shared = scope(() => ({
      seq,
      query: queryTable.at(position, seq),
      key: keyTable.at(position, seq),
      mask: seq > 1 ? causalMask(seq, position, this.source) : undefined,
    }));
    try {
      let x = scope(() => embed.forward(Tensor.from(Uint32Array.from(ids), { device })));
      held.push(x);
      for (const layer of layers) {
        const attended = scope(() => x.add(this.attention(layer, layer.inputNorm.forward(x), shared)));
        yield hold(attended);
        const inner = scope(() => {
          const [gate, up] = layer.gateUp.forward(layer.postNorm.forward(attended));
          return gate.silu().mul(up);
        });
        yield hold(inner, attended);
        x = scope(() => attended.add(layer.down.forward(inner)));
        yield hold(x);
      }
      const result = logits
        ? scope(() => head.forward(norm.forward(x.narrow(0, seq - 1, 1))).reshape([this.config.vocabSize]))
        : undefined;
      ended = true;
      return result;
    } finally {
      for (const tensor of held) tensor.dispose();
      const { query, key, mask } = shared;
      for (const tensor of [query.cos, query.sin, key.cos, key.sin, mask]) tensor?.dispose();
      // Some layers may have appended and others not: go back to where all agree.
      if (!ended && epoch === this.epoch && !this.disposed) {
        for (const { cache } of layers) cache.truncate(Math.min(cache.length, position));
      }
    }
  }

  promptChunk(position: number): number {
    const rule = CHUNKS[this.source.device.location.kind];
    if (!rule) return GPU_CHUNK;
    const { hiddenSize, headDim, numHeads, numKvHeads, intermediateSize } = this.config;
    const width = numHeads * headDim;
    const projections = 2 * hiddenSize * (width + numKvHeads * headDim);
    const work = Math.max(2 * hiddenSize * intermediateSize, projections + 2 * width * position);
    return Math.min(rule.max, Math.max(rule.min, 2 ** Math.floor(Math.log2(rule.work / work))));
  }

  /** Forgets the sequence. */
  reset(): void {
    this.epoch++;
    for (const { cache } of this.parts.layers) cache.reset();
  }

  /** Gives weights, cache and tables back. Harmless when repeated. */
  dispose(): void {
    if (this.disposed) return;
    this.disposed = true;
    const { embed, norm, head, queryTable, keyTable, layers } = this.parts;
    for (const layer of layers) for (const part of Object.values(layer) as { dispose(): void }[]) part.dispose();
    for (const part of [embed, norm, head, queryTable, keyTable]) part.dispose();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }

  /** x [seq, hidden] to [seq, hidden]. */
  private attention(layer: Layer, x: Tensor, { seq, query, key, mask }: Step): Tensor {
    const { numHeads, numKvHeads, headDim } = this.config;
    const { ropeKind } = this.parts;
    const heads = (y: Tensor, count: number) => y.reshape([1, seq, count, headDim]).transpose(1, 2);
    const [rawQ, rawK, v] = layer.qkv.forward(x);
    const q = heads(rawQ, numHeads).rope(query.cos, query.sin, ropeKind);
    const k = heads(rawK, numKvHeads).rope(key.cos, key.sin, ropeKind);
    const all = layer.cache.append(k.squeeze(0), heads(v, numKvHeads).squeeze(0));

    const rows = (numHeads / numKvHeads) * seq;
    let scores = q.reshape([numKvHeads, rows, headDim]).matmul(all.k.t());
    if (mask)
      scores = scores
        .reshape([numHeads, seq, mask.dim(1)])
        .broadcastAdd(mask)
        .reshape(scores.shape);
    const mixed = scores.softmaxLastDim().matmul(all.v);
    return layer.o.forward(
      mixed
        .reshape([numHeads, seq, headDim])
        .transpose(0, 1)
        .reshape([seq, numHeads * headDim]),
    );
  }

  private check(ids: ArrayLike<number>, position: number): void {
    if (this.disposed) {
      throw new DisposedError('DISPOSED', 'forward: the model was disposed; load it again.');
    }
    if (ids.length === 0) {
      throw new TransformersError(
        'EMPTY_INPUT',
        'forward: there are no tokens; give at least one, such as the BOS token.',
      );
    }
    const { vocabSize } = this.config;
    for (let i = 0; i < ids.length; i++) {
      if (Number.isInteger(ids[i]) && ids[i] >= 0 && ids[i] < vocabSize) continue;
      throw new TransformersError(
        'BAD_TOKEN',
        `forward: token ${ids[i]} at index ${i} is not in the vocabulary of ${vocabSize}; use ids of this model's tokenizer.`,
      );
    }
    if (!Number.isInteger(position) || position < 0 || position > this.length) {
      throw new TransformersError(
        'INVALID_OPTION',
        `forward: position ${position} with ${this.length} positions in the cache; give 0 to ${this.length}.`,
      );
    }
    if (position + ids.length > this.maxContext) {
      throw new TransformersError(
        'CONTEXT_EXCEEDED',
        `forward: ${ids.length} tokens at position ${position} need ${position + ids.length} positions, the cache has ${this.maxContext}; ` +
          `give fewer tokens, or load the model with a larger maxContext (it was made for ${this.config.contextLength}).`,
      );
    }
  }
}

/** Row i (position + i) may look at positions 0 to position + i: [seq, position + seq]. */
function causalMask(seq: number, position: number, { device }: Pick<WeightSource, 'device'>): Tensor {
  const length = position + seq;
  const mask = new Float32Array(seq * length);
  for (let i = 0; i < seq; i++) mask.fill(Number.NEGATIVE_INFINITY, i * length + position + i + 1, (i + 1) * length);
  return Tensor.from(mask, { shape: [seq, length], device });
}
