/**
 * A server under load, one JSON line for each number of clients:
 *
 *   tsx tools/bench/serve.ts [MODEL] [--device cpu] [--clients 1,4,16,64,256] [--rate 0.5] [--seconds 20]
 *     [--prompt 512] [--output 128] [--spread 0.5] [--max-sequences 64] [--seed 1]
 *   tsx tools/bench/serve.ts --clients 16 --rate 0.1 --seconds 600 --rss 30   # does its memory stay as it is?
 *   tsx tools/bench/serve.ts MODEL --candle PROGRAM …   # a JavaScript program that is `candle`, in place of the one that is built
 *   tsx tools/bench/serve.ts --url http://127.0.0.1:8080 --model NAME [--key KEY] …
 *
 * The load is open: each client sends its requests at times drawn from a Poisson process of `--rate` requests a second,
 * whether or not earlier ones have been answered, so a server that is too slow gets a queue and not less work. Lengths of
 * prompts and answers are lognormal with the medians `--prompt` and `--output` and `--spread` as the standard deviation of
 * the logarithm, at least 1 and at most four medians; 0 makes all alike. Prompts are token ids drawn evenly, different in each
 * request, so no prefix is shared; answers do not end by themselves (`ignore_eos`). The server is one that this program
 * starts in a process of its own, or any that speaks OpenAI's completions at `--url`.
 *
 * After `--seconds` no more requests are sent, and those under way are waited for. `tokensPerSecond` is what was generated,
 * over the time from the first request to the last token; the times between tokens are those between events that hold text.
 *
 * `--rss` looks at the memory of the server that this program started every so many seconds (Linux): `rss.mib` are the values, and
 * `rss.perHour` is how many MiB an hour a straight line through those of the second half rises.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

const SMALLEST_MODEL = fileURLToPath(new URL('../../models/tiny-tales/tiny-tales-q8_0.gguf', import.meta.url));

interface Load {
  url: string;
  key: string;
  model: string | undefined;
  /** Ids are drawn below this. */
  vocabulary: number;
  clients: number;
  rate: number;
  seconds: number;
  prompt: number;
  output: number;
  spread: number;
  /** In [0, 1). */
  random: () => number;
}

interface Outcome {
  error?: string;
  promptTokens: number;
  tokens: number;
  /** Milliseconds from sending to the first text. */
  first?: number;
  /** Milliseconds from one text to the next. */
  between: number[];
}

async function main(): Promise<void> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      url: { type: 'string' },
      model: { type: 'string' },
      key: { type: 'string', default: 'none' },
      vocabulary: { type: 'string', default: '4000' },
      device: { type: 'string', default: 'cpu' },
      candle: {
        type: 'string',
        default: fileURLToPath(new URL('../../packages/candle/bin/candle.js', import.meta.url)),
      },
      clients: { type: 'string', default: '1,4,16,64,256' },
      rate: { type: 'string', default: '0.5' },
      seconds: { type: 'string', default: '20' },
      prompt: { type: 'string', default: '512' },
      output: { type: 'string', default: '128' },
      spread: { type: 'string', default: '0.5' },
      'max-sequences': { type: 'string', default: '64' },
      'max-waiting': { type: 'string', default: '100000' },
      rss: { type: 'string', default: '0' },
      seed: { type: 'string', default: '1' },
    },
  });
  const number = (name: 'vocabulary' | 'rate' | 'seconds' | 'prompt' | 'output' | 'spread' | 'seed' | 'rss') => {
    const value = Number(values[name]);
    if (Number.isFinite(value) && value >= 0) return value;
    throw new Error(`--${name} is ${values[name]}: give a number of 0 or more`);
  };
  const counts = values.clients.split(',').map(Number);
  if (!counts.every((count) => Number.isInteger(count) && count > 0)) throw new Error('--clients: give whole numbers');
  const own = values.url === undefined ? await start(positionals[0] ?? SMALLEST_MODEL, values) : undefined;
  try {
    for (const clients of counts) {
      const load: Load = {
        url: own?.url ?? values.url!,
        key: values.key,
        model: values.model,
        vocabulary: number('vocabulary'),
        clients,
        rate: number('rate'),
        seconds: number('seconds'),
        prompt: number('prompt'),
        output: number('output'),
        spread: number('spread'),
        random: generator(number('seed') + clients),
      };
      if (clients === counts[0]) await request(load, load.prompt, load.output);
      const memory = own && number('rss') > 0 ? new MemoryWatch(own.child.pid!, number('rss')) : undefined;
      const measured = await measure(load);
      console.log(JSON.stringify({ ...measured, ...(memory && { rss: memory.end() }) }));
    }
  } finally {
    own?.child.kill('SIGTERM');
  }
}

/** A server in a process of its own, on a free port. */
async function start(
  model: string,
  values: Record<string, string | undefined>,
): Promise<{ url: string; child: ChildProcess }> {
  const limits = ['--max-sequences', values['max-sequences']!, '--max-waiting', values['max-waiting']!];
  const args = ['serve', model, '--json', '--port', '0', '--device', values.device!, ...limits];
  const child = spawn(process.execPath, [values.candle!, ...args], { stdio: ['ignore', 'pipe', 'inherit'] });
  const [line] = await Promise.race([once(child.stdout, 'data'), once(child, 'close').then(() => [undefined])]);
  if (line === undefined) throw new Error('the server ended before it listened');
  return { url: JSON.parse(String(line)).url, child };
}

async function measure(load: Load) {
  const { clients, rate, seconds } = load;
  const arrivals: number[] = [];
  for (let client = 0; client < clients; client++)
    for (let at = interval(load); at < seconds; at += interval(load)) arrivals.push(at);
  arrivals.sort((a, b) => a - b);
  const begun = performance.now();
  const outcomes = await Promise.all(
    arrivals.map(async (at) => {
      const lengths = [lengthOf(load, load.prompt), lengthOf(load, load.output)] as const;
      await new Promise((resolve) => setTimeout(resolve, Math.max(0, begun + at * 1000 - performance.now())));
      return request(load, ...lengths);
    }),
  );
  const took = (performance.now() - begun) / 1000;
  const sum = (values: number[]) => values.reduce((total, value) => total + value, 0);
  const errors: Record<string, number> = {};
  for (const { error } of outcomes) if (error !== undefined) errors[error] = (errors[error] ?? 0) + 1;
  const tokens = sum(outcomes.map((outcome) => outcome.tokens));
  return {
    clients,
    requestsPerSecond: round(clients * rate),
    requests: outcomes.length,
    errors: sum(Object.values(errors)),
    ...(Object.keys(errors).length > 0 && { byError: errors }),
    seconds: round(took),
    promptTokens: sum(outcomes.map(({ promptTokens }) => promptTokens)),
    tokens,
    tokensPerSecond: round(tokens / took),
    firstMs: percentiles(outcomes.flatMap(({ first }) => first ?? [])),
    betweenMs: percentiles(outcomes.flatMap(({ between }) => between)),
  };
}

async function request(load: Load, promptTokens: number, maxTokens: number): Promise<Outcome> {
  const { url, key, model, vocabulary, random } = load;
  const outcome: Outcome = { promptTokens: 0, tokens: 0, between: [] };
  const prompt = Array.from({ length: promptTokens }, () => 3 + Math.floor(random() * (vocabulary - 3)));
  const options = { stream: true, stream_options: { include_usage: true }, ignore_eos: true, temperature: 0 };
  const sent = performance.now();
  try {
    const response = await fetch(`${url}/v1/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: `Bearer ${key}` },
      body: JSON.stringify({ model, prompt, max_tokens: maxTokens, ...options }),
    });
    if (!response.ok) return { ...outcome, error: `status ${response.status}` };
    let last = 0;
    let rest = '';
    for await (const bytes of response.body!.pipeThrough(new TextDecoderStream())) {
      const lines = (rest + bytes).split('\n');
      rest = lines.pop()!;
      for (const line of lines) {
        if (!line.startsWith('data: ') || line === 'data: [DONE]') continue;
        const event = JSON.parse(line.slice(6));
        if (event.error) return { ...outcome, error: event.error.code ?? event.error.message };
        if (event.usage) {
          outcome.promptTokens = event.usage.prompt_tokens;
          outcome.tokens = event.usage.completion_tokens;
        }
        if (!event.choices?.[0]?.text) continue;
        const now = performance.now();
        if (last === 0) outcome.first = now - sent;
        else outcome.between.push(now - last);
        last = now;
      }
    }
    return outcome;
  } catch (error) {
    return { ...outcome, error: String((error as { cause?: unknown }).cause ?? error) };
  }
}

/** Looks at the resident memory of a process now and then. */
class MemoryWatch {
  private readonly mib: number[] = [];
  private readonly timer: NodeJS.Timeout;

  constructor(
    pid: number,
    private readonly seconds: number,
  ) {
    const look = () => {
      const [, kib] = /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8')) ?? [];
      this.mib.push(round(Number(kib) / 1024));
    };
    look();
    this.timer = setInterval(look, seconds * 1000);
  }

  end(): { everySeconds: number; mib: number[]; perHour: number | null } {
    clearInterval(this.timer);
    const { mib, seconds } = this;
    const half = mib.slice(Math.floor(mib.length / 2));
    const middle = (half.length - 1) / 2;
    const mean = half.reduce((sum, value) => sum + value, 0) / half.length;
    const rise = half.reduce((sum, value, i) => sum + (i - middle) * (value - mean), 0);
    const spread = half.reduce((sum, _, i) => sum + (i - middle) ** 2, 0);
    return { everySeconds: seconds, mib, perHour: half.length < 3 ? null : round((rise / spread) * (3600 / seconds)) };
  }
}

/** Seconds to a client's next request. */
function interval({ rate, random }: Load): number {
  return -Math.log(1 - random()) / rate;
}

function lengthOf({ spread, random }: Load, median: number): number {
  const normal = Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
  return Math.round(Math.min(4 * median, Math.max(1, median * Math.exp(spread * normal))));
}

/** mulberry32: the same load for the same seed. */
function generator(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

function percentiles(values: number[]): { p50: number; p99: number } | undefined {
  if (values.length === 0) return undefined;
  values.sort((a, b) => a - b);
  const at = (share: number) => round(values[Math.min(values.length - 1, Math.floor(share * values.length))]);
  return { p50: at(0.5), p99: at(0.99) };
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}

void main();
