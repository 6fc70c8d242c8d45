/** How tokens are sampled: what users give, and what it becomes with its defaults. */
import { kinds } from '@x/core';
import { TransformersError } from '@x/transformers';
import { checkOptions } from '../options';

export interface SamplingOptions {
  /**
   * Divides the logits, 0 to 1e30: below 1 sharpens the distribution, above 1 flattens it; 0 always takes the most likely token.
   * Default: 0, or 1 when a filter (`topK`, `topP`, `minP`, `typicalP`) is given.
   */
  temperature?: number;
  /** Keep only this many most likely tokens. Default 0: all. */
  topK?: number;
  /** Keep the smallest set of most likely tokens whose probability reaches this, in (0, 1]. Default 1: all. */
  topP?: number;
  /** Drop tokens less likely than this fraction of the most likely one, in [0, 1]. Default 0: none. */
  minP?: number;
  /**
   * Keep the smallest set of tokens whose log probability is nearest to what is expected of it (locally typical sampling) and
   * whose probability reaches this, in (0, 1]. Default 1: all.
   */
  typicalP?: number;
  /** An integer in [0, 2^53). The same seed, options and logits give the same tokens. Default: a random one. */
  seed?: number;
  /** Divides positive and multiplies negative logits of recent tokens. From 1e-30 to 1e30. Default 1: off. Usual: 1.05 to 1.3. */
  repetitionPenalty?: number;
  /** Subtracted from a token's logit for each time that it is among the recent ones, -1e30 to 1e30. Default 0; below, it favours them. */
  frequencyPenalty?: number;
  /** Subtracted once from the logits of recent tokens, -1e30 to 1e30. Default 0. */
  presencePenalty?: number;
  /** How many of the last tokens (prompt included) are recent. Default 64; `Infinity`: all. */
  repetitionWindow?: number;
  /** Added to the logits of tokens, by their ids: -1e30 to 1e30, or -Infinity to make one impossible. Default: none. */
  logitBias?: Readonly<Record<number, number>>;
}

export type SamplingSettings = Required<SamplingOptions>;

const OP = 'sampling';

/** @throws TransformersError INVALID_OPTION naming the first option that means nothing */
export function samplingSettings(options: SamplingOptions): SamplingSettings {
  const { topK = 0, topP = 1, minP = 0, typicalP = 1, logitBias = {} } = options;
  const filtered = topK > 0 || topP < 1 || minP > 0 || typicalP < 1;
  const settings: SamplingSettings = {
    temperature: options.temperature ?? (filtered ? 1 : 0),
    topK,
    topP,
    minP,
    typicalP,
    seed: options.seed ?? Math.floor(Math.random() * Number.MAX_SAFE_INTEGER),
    repetitionPenalty: options.repetitionPenalty ?? 1,
    frequencyPenalty: options.frequencyPenalty ?? 0,
    presencePenalty: options.presencePenalty ?? 0,
    repetitionWindow: options.repetitionWindow ?? 64,
    logitBias,
  };
  checkOptions(OP, settings, KINDS);
  for (const [id, bias] of Object.entries(logitBias)) {
    const isId = /^\d+$/.test(id);
    if (isId && BIAS.test(bias)) continue;
    const message = isId
      ? BIAS.refuse({ op: OP, name: `logitBias of token ${id}`, value: bias, args: [bias] }).message
      : `${OP}: logitBias is for ${kinds.show(id)}; give ids of tokens, whole numbers from 0 on.`;
    throw new TransformersError('INVALID_OPTION', message, { option: 'logitBias' });
  }
  return settings;
}

/**
 * Logits are f32. So far from the end of its range they stay finite when these numbers multiply, divide and count what a model
 * gives and a text repeats.
 */
const MOST = 1e30;
const ADDENDS = 'a number from -1e30 to 1e30';
const isAddend = (x: number) => Math.abs(x) <= MOST;

const number = (test: (value: number) => boolean, remedy: string) =>
  kinds.kind((value) => typeof value === 'number' && test(value), remedy);
const SHARE = number((x) => x > 0 && x <= 1, 'give a number above 0 and at most 1 (off)');
const ADDEND = number(isAddend, `give ${ADDENDS} (0 is off)`);
const BIAS = number(
  (x) => isAddend(x) || x === Number.NEGATIVE_INFINITY,
  `give ${ADDENDS}, or -Infinity to exclude the token`,
);

const KINDS: Record<keyof SamplingSettings, kinds.Kind> = {
  topK: number((x) => Number.isInteger(x) && x >= 0, 'give an integer of 0 (off) or more'),
  topP: SHARE,
  minP: number((x) => x >= 0 && x <= 1, 'give a number from 0 (off) to 1'),
  typicalP: SHARE,
  temperature: number((x) => x >= 0 && x <= MOST, 'give a number from 0 (greedy) to 1e30'),
  seed: number((x) => Number.isSafeInteger(x) && x >= 0, 'give an integer from 0 to 2^53 - 1'),
  repetitionPenalty: number((x) => x >= 1e-30 && x <= MOST, 'give a number from 1e-30 to 1e30 (1 is off)'),
  frequencyPenalty: ADDEND,
  presencePenalty: ADDEND,
  repetitionWindow: number(
    (x) => x >= 0 && (Number.isInteger(x) || x === Number.POSITIVE_INFINITY),
    'give an integer of 0 or more, or Infinity',
  ),
  logitBias: kinds.kind(kinds.isObject, 'give an object of biases by token id'),
};
