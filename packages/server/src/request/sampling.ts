/** The fields that say how tokens are chosen and when a text ends: OpenAI's, and those that other servers have added. */
import { kinds } from '@x/core';
import type { GenerateOptions } from '@x/engine';
import { badField } from '../errors';
import type { ResolvedOptions } from '../options';
import type { Fields } from './fields';

const MAX_STOPS = 16;
const MAX_STOP_LENGTH = 512;
const MAX_BIASES = 1024;
export const MAX_TOP_LOGPROBS = 20;
/** Seeds of the engine are below this. */
const SEEDS = 2 ** 53;

/** How a text is to be generated; `seed` is that of the first choice. */
export type Sampling = Pick<
  GenerateOptions,
  | 'temperature'
  | 'topP'
  | 'topK'
  | 'minP'
  | 'typicalP'
  | 'seed'
  | 'repetitionPenalty'
  | 'frequencyPenalty'
  | 'presencePenalty'
  | 'logitBias'
  | 'stop'
  | 'ignoreEos'
>;

/** @throws ApiError 400 */
export function readSampling(fields: Fields): Sampling {
  const seed = fields.integer('seed', -(SEEDS - 1), SEEDS - 1);
  const sampling: Sampling = {
    temperature: fields.number('temperature', 0, 100) ?? 1,
    topP: share(fields, 'top_p'),
    topK: fields.integer('top_k', -1, 2 ** 31),
    minP: fields.number('min_p', 0, 1),
    typicalP: share(fields, 'typical_p'),
    seed: seed === undefined ? undefined : seedOf(seed),
    repetitionPenalty: positive(fields, 'repetition_penalty'),
    frequencyPenalty: fields.number('frequency_penalty', -2, 2),
    presencePenalty: fields.number('presence_penalty', -2, 2),
    logitBias: readBias(fields),
    stop: readStop(fields),
    ignoreEos: fields.boolean('ignore_eos'),
  };
  // Elsewhere -1 means that all are kept.
  if (sampling.topK === -1) sampling.topK = 0;
  for (const name of Object.keys(sampling) as (keyof Sampling)[])
    if (sampling[name] === undefined) delete sampling[name];
  return sampling;
}

/** A sampling of the same request's choice number `index`. */
export function forChoice(sampling: Sampling, index: number): Sampling {
  return sampling.seed === undefined ? sampling : { ...sampling, seed: (sampling.seed + index) % SEEDS };
}

/** Tokens to generate at most: the smaller of what is wished and allowed. @throws ApiError 400 */
export function readMaxTokens(
  fields: Fields,
  names: readonly string[],
  { maxTokens }: Pick<ResolvedOptions, 'maxTokens'>,
  byDefault = Number.POSITIVE_INFINITY,
): number {
  const wished = names.map((name) => fields.integer(name, 1, 2 ** 31)).find((value) => value !== undefined);
  return Math.min(wished ?? byDefault, maxTokens);
}

/** @throws ApiError 400 */
export function readStream(fields: Fields): { stream: boolean; includeUsage: boolean } {
  const stream = fields.boolean('stream') ?? false;
  const options = fields.object('stream_options');
  const includeUsage = options?.boolean('include_usage') ?? false;
  if (options && !stream) throw badField('stream_options', 'is for streams; send "stream": true with it');
  return { stream, includeUsage };
}

function share(fields: Fields, name: string): number | undefined {
  const value = fields.number(name, 0, 1);
  return value === undefined ? undefined : keptShare(value);
}

/** Some clients send 0 for the most likely token alone. */
export function keptShare(value: number): number {
  return value === 0 ? Number.MIN_VALUE : value;
}

/** The engine counts seeds from 0. */
export function seedOf(seed: number): number {
  return seed < 0 ? seed + SEEDS : seed;
}

function positive(fields: Fields, name: string): number | undefined {
  const value = fields.number(name, 0, 100);
  if (value === 0) throw badField(fields.at(name), 'is 0; give a number above 0, 1 for none');
  return value;
}

function readStop(fields: Fields): string[] | undefined {
  const raw = fields.raw('stop');
  if (raw === undefined) return undefined;
  const stops = typeof raw === 'string' ? [raw] : fields.list('stop', MAX_STOPS)!;
  for (const stop of stops) {
    if (typeof stop !== 'string' || stop === '' || stop.length > MAX_STOP_LENGTH)
      throw badField(
        fields.at('stop'),
        `holds ${kinds.showField(stop)}; give strings of 1 to ${MAX_STOP_LENGTH} characters`,
      );
  }
  return stops as string[];
}

function readBias(fields: Fields): Record<number, number> | undefined {
  const given = fields.object('logit_bias');
  if (!given) return undefined;
  const names = given.names();
  if (names.length > MAX_BIASES) throw badField('logit_bias', `has ${names.length} tokens; give at most ${MAX_BIASES}`);
  const bias: Record<number, number> = {};
  for (const name of names) {
    if (!/^\d{1,9}$/.test(name))
      throw badField('logit_bias', `has the name ${kinds.showField(name)}; give ids of tokens`);
    bias[Number(name)] = given.number(name, -100, 100)!;
  }
  return bias;
}
