/** Options of generating text, once for all commands: as flags, and by their names in a chat's `/set`. */
import type { CacheDType, GenerateOptions } from '@x/engine';
import { type Command, InvalidArgumentError } from 'commander';
import { addDeviceFlags, type DeviceFlags } from './devices';
import { type AdapterSource, adapterSource } from './merge-adapters';
import { cacheDtypeOption, decimal, someText, wholeNumber } from './option-values';

export interface GenerateFlags extends DeviceFlags {
  maxTokens?: number;
  temperature: number;
  topK?: number;
  topP?: number;
  minP?: number;
  typicalP?: number;
  seed?: number;
  repetitionPenalty?: number;
  frequencyPenalty?: number;
  presencePenalty?: number;
  repetitionWindow?: number;
  logitBias?: Record<number, number>;
  stop?: string[];
  maxContext?: number;
  cacheDtype?: CacheDType;
  lora?: AdapterSource;
}

/** An option whose value is one word. */
export interface Setting {
  key: keyof GenerateOptions;
  flag: string;
  value: string;
  short?: string;
  description: string;
  parse(text: string): unknown;
}

/** For `--lora`, which texts have once. */
function oneAdapter(text: string, before: AdapterSource | undefined): AdapterSource {
  if (before) throw new InvalidArgumentError('Give one adapter; candle quantize --lora merges several into a model.');
  return adapterSource(text);
}

/** What the adapter of `--lora` is called. */
export const ADAPTER = 'lora';

const share = decimal({ from: 0, to: 1, above: true });
const penalty = decimal({ from: -100, to: 100 });

export const SETTINGS: readonly Setting[] = [
  {
    key: 'maxTokens',
    short: '-n',
    flag: 'max-tokens',
    value: 'count',
    description: 'tokens to generate at most',
    parse: wholeNumber(1),
  },
  {
    key: 'temperature',
    short: '-t',
    flag: 'temperature',
    value: 'value',
    description: '0 takes the likeliest token each time',
    parse: decimal({ from: 0, to: 100 }),
  },
  { key: 'topK', flag: 'top-k', value: 'count', description: 'keep the k likeliest tokens', parse: wholeNumber(1) },
  {
    key: 'topP',
    flag: 'top-p',
    value: 'value',
    description: 'keep the likeliest tokens that make up this probability',
    parse: share,
  },
  {
    key: 'minP',
    flag: 'min-p',
    value: 'value',
    description: 'keep tokens of at least this share of the likeliest one',
    parse: decimal({ from: 0, to: 1 }),
  },
  {
    key: 'typicalP',
    flag: 'typical-p',
    value: 'value',
    description: 'keep the most typical tokens that make up this probability',
    parse: share,
  },
  { key: 'seed', flag: 'seed', value: 'number', description: 'seed of the sampler', parse: wholeNumber(0) },
  {
    key: 'repetitionPenalty',
    flag: 'repetition-penalty',
    value: 'value',
    description: 'above 1 avoids recent tokens',
    parse: decimal({ from: 0, to: 100, above: true }),
  },
  {
    key: 'frequencyPenalty',
    flag: 'frequency-penalty',
    value: 'value',
    description: 'above 0 avoids recent tokens, the more often they came',
    parse: penalty,
  },
  {
    key: 'presencePenalty',
    flag: 'presence-penalty',
    value: 'value',
    description: 'above 0 avoids recent tokens',
    parse: penalty,
  },
  {
    key: 'repetitionWindow',
    flag: 'repetition-window',
    value: 'tokens',
    description: 'how many tokens are recent, default 64',
    parse: wholeNumber(0),
  },
];

/** Adds the flags of {@link GenerateFlags}. @param defaults of options that have one */
export function addGenerateFlags(command: Command, defaults: { maxTokens?: number; temperature: number }): Command {
  addDeviceFlags(command);
  for (const { key, short, flag, value, description, parse } of SETTINGS) {
    const flags = `${short === undefined ? '' : `${short}, `}--${flag} <${value}>`;
    command.option(flags, description, parse, defaults[key as keyof typeof defaults]);
  }
  return command
    .option('--logit-bias <id=bias...>', 'add to the logits of tokens; -Infinity excludes one', logitBias)
    .option('--stop <text...>', 'end at any of these texts', (text: string, all: string[] = []) => [
      ...all,
      someText('Give some text.')(text),
    ])
    .option('--lora <path[=scale]>', 'compute with this LoRA adapter, a folder of PEFT or a .gguf file', oneAdapter)
    .option('--max-context <tokens>', 'size of the KV cache, default the model’s own, at most 4096', wholeNumber(1))
    .addOption(cacheDtypeOption());
}

function logitBias(text: string, all: Record<number, number> = {}): Record<number, number> {
  const [, id, bias] = /^(\d+)=([+-]?(?:\d+\.?\d*|\.\d+|Infinity))$/.exec(text) ?? [];
  if (id === undefined || Number(bias) === Number.POSITIVE_INFINITY)
    throw new InvalidArgumentError('Give ID=BIAS, such as 5=-2.5 or 5=-Infinity.');
  return { ...all, [Number(id)]: Number(bias) };
}

/** What the flags say for `generate` and `chat`. */
export function generateOptionsOf(flags: GenerateFlags): GenerateOptions {
  const options: Record<string, unknown> = {};
  for (const key of [...SETTINGS.map((setting) => setting.key), 'logitBias', 'stop'] as const) {
    const value = flags[key as keyof GenerateFlags];
    if (value !== undefined) options[key] = value;
  }
  if (flags.lora) options.adapter = { name: ADAPTER, scale: flags.lora.scale };
  return options;
}
