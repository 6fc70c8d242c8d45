/**
 * Chooses the next token from rows of logits: candle's `LogitsProcessor` (candle-transformers/src/generation), with min-p,
 * typical-p, penalties and biases added.
 *
 * Differences from candle, and why: it works on a host `Float32Array`; after each filter the probabilities are renormalised
 * before the next one, as llama.cpp and transformers do; nucleus sampling does not sort the whole vocabulary (152k entries
 * for Qwen) but only the candidates that can matter; NaN is an error instead of a random token; weights are whole numbers
 * (weights.ts), so that devices draw what the host draws.
 */
import { kinds } from '@x/core';
import { choose } from './choose';
import { badLogits } from './logits';
import { type SamplingOptions, type SamplingSettings, samplingSettings } from './options';
import { Random } from './random';
import type { Edit, Sampler } from './sampler';

const { fround } = Math;

/** Below this candle, too, treats a temperature as zero: the division would overflow. */
const LEAST_TEMPERATURE = 1e-7;

const NUMBERS = kinds.kind(ArrayBuffer.isView, "give numbers on the host, as await logits.toArray('f32')");

/** What a choice is to tell beside the token, and what it may be. */
export interface SamplerExtras {
  mask?: Uint32Array;
  logprob?: boolean;
  top?: number;
}

/** Chooses tokens with these options, one after the other (candle's `LogitsProcessor`). Options have the defaults of `generate`. */
export class LogitsProcessor implements SamplingSettings {
  readonly temperature: number;
  readonly topK: number;
  readonly topP: number;
  readonly minP: number;
  readonly typicalP: number;
  /** The seed in use, also when it was chosen at random: give it again to repeat a run. */
  readonly seed: number;
  readonly repetitionPenalty: number;
  readonly frequencyPenalty: number;
  readonly presencePenalty: number;
  readonly repetitionWindow: number;
  readonly logitBias: Readonly<Record<number, number>>;
  private readonly random: Random;
  /** Random numbers of the next tokens that were looked at and not taken yet. */
  private readonly drawn: number[] = [];
  private readonly biases: ReadonlyMap<number, number>;

  /** @throws TransformersError INVALID_OPTION */
  constructor(options: SamplingOptions = {}) {
    const settings = samplingSettings(options);
    this.temperature = settings.temperature;
    this.topK = settings.topK;
    this.topP = settings.topP;
    this.minP = settings.minP;
    this.typicalP = settings.typicalP;
    this.seed = settings.seed;
    this.repetitionPenalty = settings.repetitionPenalty;
    this.frequencyPenalty = settings.frequencyPenalty;
    this.presencePenalty = settings.presencePenalty;
    this.repetitionWindow = settings.repetitionWindow;
    this.logitBias = settings.logitBias;
    this.biases = new Map(Object.entries(settings.logitBias).map(([id, bias]) => [Number(id), bias]));
    this.random = Random.fromSeed(this.seed);
  }

  /**
   * The next token's id.
   * @param logits one row, [vocab]; not modified
   * @param history the tokens so far, prompt included; only penalties read it
   * @throws TransformersError BAD_LOGITS when logits hold NaN, +Infinity or no finite value; CandleError INVALID_ARGUMENT for a tensor
   */
  sample(logits: Float32Array, history: readonly number[] = []): number {
    kinds.check('sample', 'logits', logits, NUMBERS);
    const choice = choose(logits, this.sampler(history));
    if (!choice) throw badLogits(logits.length);
    return choice.id;
  }

  /** How the next token is to be chosen; takes a random number where there is one to be drawn. */
  sampler(history: readonly number[], extras: SamplerExtras = {}): Sampler {
    const sampler = this.samplerAhead(history, [], extras);
    this.take(1);
    return sampler;
  }

  /**
   * How the token behind `history` and `drafts` would be chosen, were these drafts chosen before: with the random number that it
   * will have. Takes none; {@link take} does, when it is known how many tokens were chosen.
   */
  samplerAhead(
    history: readonly number[],
    drafts: readonly number[],
    { mask, logprob = false, top = 0 }: SamplerExtras = {},
  ): Sampler {
    const { temperature, topK, topP, minP, typicalP } = this;
    const isGreedy = temperature < LEAST_TEMPERATURE || topK === 1;
    return {
      kind: isGreedy ? 'greedy' : 'draw',
      inverseTemperature: isGreedy ? 1 : fround(1 / temperature),
      topK: Math.min(topK, 2 ** 32 - 1),
      topP: fraction(topP),
      leastLogit: minP > 0 ? fround(temperature * Math.log(minP)) : Number.NEGATIVE_INFINITY,
      typicalP: fraction(typicalP),
      uniform: isGreedy ? 0 : this.uniform(drafts.length),
      edits: this.edits(history, drafts),
      ...(mask && { mask }),
      logprob: logprob || top > 0,
      top,
    };
  }

  /** Takes the random numbers of so many tokens. */
  take(tokens: number): void {
    this.drawn.splice(0, tokens);
  }

  /** That of the token so many places ahead. */
  private uniform(ahead: number): number {
    while (this.drawn.length <= ahead) this.drawn.push(this.random.nextUint32());
    return this.drawn[ahead];
  }

  private edits(history: readonly number[], drafts: readonly number[]): Edit[] {
    const { repetitionPenalty, frequencyPenalty, presencePenalty, repetitionWindow, biases } = this;
    const edits = new Map<number, Edit>();
    const isPenalised = repetitionPenalty !== 1 || frequencyPenalty !== 0 || presencePenalty !== 0;
    if (isPenalised) {
      const counts = new Map<number, number>();
      const total = history.length + drafts.length;
      for (let i = Math.max(0, total - repetitionWindow); i < total; i++) {
        const id = i < history.length ? history[i] : drafts[i - history.length];
        counts.set(id, (counts.get(id) ?? 0) + 1);
      }
      const factors = { positive: fround(1 / repetitionPenalty), negative: fround(repetitionPenalty) };
      for (const [id, count] of counts)
        edits.set(id, { id, ...factors, add: fround(-count * frequencyPenalty - presencePenalty) });
    }
    for (const [id, bias] of biases) {
      const edit = edits.get(id) ?? { id, positive: 1, negative: 1, add: 0 };
      edits.set(id, { ...edit, add: fround(edit.add + bias) });
    }
    return [...edits.values()];
  }
}

/** In 2^-32; 0 for 1, which is off. */
function fraction(p: number): number {
  return p < 1 ? Math.min(2 ** 32 - 1, Math.max(1, Math.round(p * 2 ** 32))) : 0;
}
