/**
 * What a text that is being written feels of what goes on beside it, one JSON line a measure:
 *
 *   tsx tools/bench/decode-gaps.ts MODEL [--device cpu] [--prompt 4096] [--repeat 5]
 *
 * `sampling`: tokens a second greedily and with temperature 0.8, top-k 40 and top-p 0.95, in turn, and their ratio.
 * `joining`: milliseconds from one token to the next while a prompt of `--prompt` tokens is read beside it, the median and the longest,
 * and what reading took. Both after a warm-up.
 */
import { parseArgs } from 'node:util';
import { loadModel } from '@x/candle';
import type { GenerateOptions, LanguageModel } from '@x/engine';

/** Tokens before anything is counted, and of a text. */
const [BEFORE, TOKENS] = [50, 300];

const idsOf = (length: number, seed: number, vocabSize: number) =>
  Array.from({ length }, (_, i) => (i * 7919 + seed * 31) % vocabSize);

async function main(): Promise<void> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      device: { type: 'string', default: 'cpu' },
      prompt: { type: 'string', default: '4096' },
      repeat: { type: 'string', default: '5' },
    },
  });
  const [path] = positionals;
  const [prompt, repeat] = [Number(values.prompt), Number(values.repeat)];
  if (!path || !(Number.isInteger(prompt) && prompt > 0) || !(Number.isInteger(repeat) && repeat > 0))
    throw new Error('usage: decode-gaps MODEL [--device cpu] [--prompt 4096] [--repeat 5]');
  using model = await loadModel(path, { device: values.device, maxContext: prompt + TOKENS });
  await model.warmUp({ sequences: 2, positions: 2 * (prompt + TOKENS) });
  const pairs: { greedy: number; sampled: number; ratio: number }[] = [];
  for (let i = 0; i <= repeat; i++) {
    const greedy = await rate(model, i, { temperature: 0 });
    const sampled = await rate(model, i, { temperature: 0.8, topK: 40, topP: 0.95, seed: i });
    // The first pair counts for nothing.
    if (i > 0) pairs.push({ greedy, sampled, ratio: sampled / greedy });
  }
  const middle = (name: 'greedy' | 'sampled' | 'ratio') => median(pairs.map((pair) => pair[name]));
  const sampling = { greedy: round(middle('greedy')), sampled: round(middle('sampled')) };
  console.log(JSON.stringify({ sampling: { ...sampling, ratio: Number(middle('ratio').toFixed(3)) } }));
  for (let i = 0; i < repeat; i++) console.log(JSON.stringify({ joining: await joining(model, i, prompt) }));
}

/** Tokens a second, once the first ones are there. */
async function rate(model: LanguageModel, seed: number, options: GenerateOptions): Promise<number> {
  const times = await timesOf(model, seed, options);
  return (times.length - 1 - BEFORE) / ((times[times.length - 1] - times[BEFORE]) / 1000);
}

async function joining(model: LanguageModel, seed: number, length: number) {
  const { vocabSize } = model.config;
  const read = { begun: 0, ended: Number.POSITIVE_INFINITY };
  let reading: Promise<void> | undefined;
  const times = await timesOf(model, seed, { temperature: 0 }, (count) => {
    if (count !== BEFORE) return;
    read.begun = performance.now();
    const other = model.generate(idsOf(length, 1000 + seed, vocabSize), { maxTokens: 1, reusePrompt: false });
    reading = other.text().then(() => {
      read.ended = performance.now();
    });
  });
  await reading;
  const gaps = times
    .map((time, i) => ({ time, gap: time - times[i - 1] }))
    .filter(({ time }, i) => i > BEFORE && time - read.begun > 0 && times[i - 1] < read.ended)
    .map(({ gap }) => gap);
  return {
    prompt: length,
    readMs: round(read.ended - read.begun),
    tokens: gaps.length,
    p50: round(median(gaps)),
    longest: round(Math.max(...gaps)),
  };
}

/** When each token of a text came. @param onToken hears how many there are */
async function timesOf(
  model: LanguageModel,
  seed: number,
  options: GenerateOptions,
  onToken: (count: number) => void = () => {},
): Promise<number[]> {
  const times: number[] = [];
  const ids = idsOf(64, seed, model.config.vocabSize);
  for await (const _ of model.generate(ids, { maxTokens: TOKENS, ignoreEos: true, ...options }))
    onToken(times.push(performance.now()));
  return times;
}

function median(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[values.length >> 1];
}

function round(value: number): number {
  return Number(value.toFixed(1));
}

await main();
