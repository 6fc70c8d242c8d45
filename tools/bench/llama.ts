/**
 * Prompts and decode of one sequence on the host beside llama.cpp (node-llama-cpp, CPU), in turn on the same number of threads:
 *
 *   npm i --prefix /tmp/js --ignore-scripts node-llama-cpp
 *   tsx tools/bench/llama.ts --peer /tmp/js [--prompt 256] [--gen 64] [--rounds 3] MODEL.gguf ...
 *
 * A figure is the median of the rounds, each a process of either side that has the model to itself; tokens are random, greedily
 * continued. `ratio` is ours over theirs.
 */
import { spawn } from 'node:child_process';
import { availableParallelism } from 'node:os';
import { basename, join } from 'node:path';
import { performance } from 'node:perf_hooks';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    peer: { type: 'string' },
    prompt: { type: 'string', default: '256' },
    gen: { type: 'string', default: '64' },
    rounds: { type: 'string', default: '3' },
    /** This process measures llama.cpp and ends. */
    theirs: { type: 'boolean', default: false },
  },
});

interface Rates {
  prompt: number;
  decode: number;
}

async function theirs(peer: string, modelPath: string): Promise<Rates> {
  const entry = join(peer, 'node_modules/node-llama-cpp/dist/index.js');
  const { getLlama } = await import(pathToFileURL(entry).href);
  // Those that this process may use.
  const threads = availableParallelism();
  const llama = await getLlama({ gpu: false, build: 'never', maxThreads: threads, logLevel: 'error' });
  const model = await llama.loadModel({ modelPath });
  const [prompt, gen] = [Number(values.prompt), Number(values.gen)];
  const context = await model.createContext({ contextSize: prompt + gen + 64, batchSize: prompt, threads });
  const sequence = context.getSequence();
  const tokens = (seed: number) => Array.from({ length: prompt }, (_, i) => 1000 + ((i * 7919 + seed) % 20000));
  await sequence.evaluateWithoutGeneratingNewTokens(tokens(1));
  await sequence.clearHistory();
  let begin = performance.now();
  await sequence.evaluateWithoutGeneratingNewTokens(tokens(2));
  const read = performance.now() - begin;
  let made = 0;
  for await (const _ of sequence.evaluate([1234], { temperature: 0, yieldEogToken: true })) {
    if (made === 0) begin = performance.now();
    if (made++ === gen) break;
  }
  return { prompt: (prompt / read) * 1000, decode: (gen / (performance.now() - begin)) * 1000 };
}

/** What a process printed last, as JSON. */
function runs(args: string[]): Promise<unknown> {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, [...process.execArgv, ...args], { stdio: ['ignore', 'pipe', 'inherit'] });
    let text = '';
    child.stdout.on('data', (part) => {
      text += part;
    });
    child.on('error', reject);
    child.on('close', (code) => {
      if (code !== 0) reject(new Error(`${basename(args[0])} ended with ${code}`));
      else resolve(JSON.parse(text.slice(text.indexOf('{'))));
    });
  });
}

async function ours(path: string): Promise<Rates> {
  const cli = fileURLToPath(new URL('../../packages/candle/src/cli.ts', import.meta.url));
  const workload = ['--prompt', values.prompt, '--gen', values.gen, '--batch', '1', '--repeat', '1'];
  const report = await runs([cli, 'bench', path, '--device', 'cpu', '--json', ...workload]);
  const [run] = (report as { runs: Record<string, { median: number }>[] }).runs;
  return { prompt: run.prefillTokensPerSecond.median, decode: run.decodeTokensPerSecond.median };
}

async function main(): Promise<void> {
  const { peer } = values;
  if (peer === undefined || positionals.length === 0) throw new Error('Give --peer DIR and files of models.');
  if (values.theirs) {
    console.log(JSON.stringify(await theirs(peer, positionals[0])));
    process.exit(0);
  }
  const self = fileURLToPath(import.meta.url);
  const passed = ['--peer', peer, '--prompt', values.prompt, '--gen', values.gen, '--theirs'];
  for (const path of positionals) {
    const [own, other]: Rates[][] = [[], []];
    for (let round = 0; round < Number(values.rounds); round++) {
      own.push(await ours(path));
      other.push((await runs([self, ...passed, path])) as Rates);
    }
    for (const figure of ['prompt', 'decode'] as const) {
      const [a, b] = [own, other].map((rates) => rates.map((rate) => rate[figure]).sort((x, y) => x - y));
      const [mine, llama] = [a, b].map((sorted) => sorted[sorted.length >> 1]);
      const figures = { ours: mine.toFixed(1), llama: llama.toFixed(1), ratio: (mine / llama).toFixed(2) };
      console.log(JSON.stringify({ model: basename(path), figure, ...figures }));
    }
  }
}

await main();
