// Trains a small transformer on fairy tales, character by character, until it writes something like them. See README.md.
// Run from the repository: tsx examples/train-char-lm/main.ts [--device cpu] [--steps N] [--minutes N] [--seed N]
//   [--out DIR] [--max-perplexity N] [--json]; on several devices with --devices cuda:0,cuda:1
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { core, Device, nn, noGrad, scope, Tensor } from '@x/candle';
import { DEVICE, JSON_FLAG, readFlags, runExample } from '../flags';
import { type Curve, lossChart } from './chart';
import { CharModel } from './model';
import { endRanks, ownRank, startRanks } from './ranks';
import { type Batch, batchAt, type Corpus, countingPerplexity, readCorpus, windows } from './text';

const MODEL = { context: 64, width: 128, heads: 4, layers: 3 };
const BATCH = 24;
const LEARNING_RATE = 3e-3;
const WARMUP = 50;
/** Steps between lines of progress; the chart has a point for each. */
const REPORT = 50;
/** Windows of the held-out text that are looked at on the way; the last figure is of all of it. */
const GLIMPSE = 96;

const NO_LIMIT = { default: Number.POSITIVE_INFINITY, from: 0, fractions: true };
const values = readFlags(import.meta.url, {
  device: DEVICE,
  devices: { type: 'text', help: 'devices that train together, such as cuda:0,cuda:1, in place of --device' },
  steps: { type: 'number', help: 'steps of training', default: 900, from: 1 },
  minutes: { type: 'number', help: 'minutes to train at most, default no limit', ...NO_LIMIT },
  seed: { type: 'number', help: 'seed of the random numbers', default: 1, from: 0 },
  out: {
    type: 'text',
    help: 'directory for weights and curve',
    default: fileURLToPath(new URL('out', import.meta.url)),
  },
  'max-perplexity': { type: 'number', help: 'fail when the result is above this, default no limit', ...NO_LIMIT },
  json: JSON_FLAG,
});
const say = values.json || ownRank !== undefined ? () => {} : (line: string) => console.log(line);

async function main(): Promise<void> {
  const names = values.devices?.split(',');
  if (names && BATCH % names.length !== 0)
    throw new Error(`a batch of ${BATCH} does not go into ${names.length} parts`);
  const rank = ownRank?.rank ?? 0;
  const devices = names?.map((name) => Device.parse(name));
  const device = devices?.[rank] ?? (values.device ? Device.parse(values.device) : await Device.auto());
  // The first rank is this thread; it starts the others.
  const ranks =
    names && !ownRank ? startRanks(new URL(import.meta.url), core.Communicator.uniqueId(device), names.length) : [];
  const id = ownRank?.id ?? ranks[0]?.id;
  using communicator =
    names && id ? await core.Communicator.join(device, { id, rank, size: names.length, timeoutMs: 60_000 }) : undefined;
  const corpus = readCorpus(new URL('grimm.txt', import.meta.url));
  const baseline = countingPerplexity(corpus);
  device.setSeed(values.seed);
  using vars = new nn.VarMap();
  const config = { ...MODEL, alphabet: corpus.alphabet.length };
  const model = new CharModel(config, nn.VarBuilder.fromVarMap(vars, { dtype: 'f32', device }));
  const parameters = vars.allVars().reduce((sum, { elemCount }) => sum + elemCount, 0);
  say(`${parameters} parameters on ${device}; ${corpus.train.length} characters, ${corpus.alphabet.length} different`);
  say(`held-out perplexity of counting characters ${baseline.unigram.toFixed(2)}, pairs ${baseline.bigram.toFixed(2)}`);

  const { curve, steps, seconds } = await train(model, vars, corpus, communicator);
  if (ownRank) return;
  await endRanks(ranks);
  const perplexity = Math.exp(await meanLoss(model, windows(corpus.heldOut, MODEL.context, BATCH)));
  const sample = await write(model, corpus.alphabet, 'Once upon a time', 300);

  mkdirSync(values.out, { recursive: true });
  await vars.save(join(values.out, 'model.safetensors'));
  writeFileSync(join(values.out, 'loss.svg'), lossChart(curve, Math.log(baseline.bigram)));
  const good = perplexity <= values['max-perplexity'];
  if (values.json) {
    console.log(JSON.stringify({ device: `${device}`, parameters, steps, seconds, perplexity, baseline, sample }));
  } else {
    say(`\n${sample}\n\n${steps} steps in ${seconds.toFixed(1)} s; held-out perplexity ${perplexity.toFixed(3)}`);
    say(`weights and curve are in ${values.out}`);
  }
  if (!good) {
    console.error(`held-out perplexity ${perplexity} is above --max-perplexity ${values['max-perplexity']}`);
    process.exitCode = 1;
  }
}

async function train(model: CharModel, vars: nn.VarMap, { train: text, heldOut }: Corpus, group?: core.Communicator) {
  const [total, limitMs] = [values.steps, values.minutes * 60_000];
  const together = group && new nn.DistributedDataParallel(vars.allVars(), group);
  // Every rank draws the places of the whole batch, and reads its own.
  const [rank, part] = [group?.rank ?? 0, BATCH / (group?.size ?? 1)];
  using optimizer = new nn.AdamW(vars.allVars(), { weightDecay: 0.1, beta2: 0.99 });
  const schedule = nn.warmup(
    WARMUP,
    nn.cosineAnnealingLr(LEARNING_RATE, Math.max(1, total - WARMUP), LEARNING_RATE / 20),
  );
  const curve: Curve = { train: [], heldOut: [] };
  const random = uniform(values.seed);
  const started = performance.now();
  let sum = Tensor.zeros([], 'f32', model.device);
  let step = 0;
  for (; step < total && performance.now() - started < limitMs; ) {
    // A limit of time that comes before the last step makes the schedule go faster.
    const elapsed = performance.now() - started;
    optimizer.learningRate = schedule(Math.max(step, total * (elapsed / limitMs)));
    const starts = Array.from({ length: BATCH }, () => Math.floor(random() * (text.length - MODEL.context - 1)));
    const next = scope(() => {
      const own = starts.slice(rank * part, (rank + 1) * part);
      const error = lossOf(model, batchAt(text, own, MODEL.context));
      const grads = error.backward();
      together?.averageGradients(grads);
      nn.clipGradNorm(grads, optimizer.vars, 1);
      optimizer.step(grads);
      return sum.add(error.detach());
    });
    sum.dispose();
    sum = next;
    if (++step % REPORT !== 0 && step !== total) continue;
    const since = step - (curve.train.at(-1)?.step ?? 0);
    const failure = group?.failure();
    if (failure) throw failure;
    curve.train.push({ step, loss: Number(await sum.toScalar()) / since });
    curve.heldOut.push({ step, loss: await meanLoss(model, windows(heldOut, MODEL.context, BATCH, GLIMPSE)) });
    sum.dispose();
    sum = Tensor.zeros([], 'f32', model.device);
    say(progress(step, total, curve, performance.now() - started));
  }
  sum.dispose();
  return { curve, steps: step, seconds: (performance.now() - started) / 1000 };
}

/** Mean of -log p of the characters that follow, a scalar. */
function lossOf(model: CharModel, { inputs, targets, count }: Batch): Tensor {
  const { device } = model;
  const ids = Tensor.from(inputs, { shape: [count, inputs.length / count], device });
  const logits = model.forward(ids);
  return nn.loss.crossEntropy(logits.reshape([inputs.length, logits.dim(-1)]), Tensor.from(targets, { device }));
}

async function meanLoss(model: CharModel, batches: Iterable<Batch>): Promise<number> {
  let [sum, rows] = [0, 0];
  for (const batch of batches) {
    using mean = noGrad(() => scope(() => lossOf(model, batch)));
    sum += Number(await mean.toScalar()) * batch.count;
    rows += batch.count;
  }
  return sum / rows;
}

/** Continues a text by `count` characters, each drawn from what the model expects. */
async function write(model: CharModel, alphabet: readonly string[], prompt: string, count: number): Promise<string> {
  const ids = [...prompt].map((character) => alphabet.indexOf(character));
  for (let i = 0; i < count; i++) {
    using drawn = noGrad(() =>
      scope(() => {
        const seen = Uint32Array.from(ids.slice(-MODEL.context));
        const logits = model.forward(Tensor.from(seen, { shape: [1, seen.length], device: model.device }));
        return nn.gumbelSoftmax(logits.get(0).get(seen.length - 1), 0.8, 0);
      }),
    );
    ids.push(Number(await drawn.toScalar()));
  }
  return ids.map((id) => alphabet[id]).join('');
}

function progress(step: number, total: number, { train, heldOut }: Curve, ms: number): string {
  const done = Math.round((20 * step) / total);
  const [last, held] = [train.at(-1)!.loss, heldOut.at(-1)!.loss];
  const bar = '█'.repeat(done) + '░'.repeat(20 - done);
  const figures = `loss ${last.toFixed(3)}  held out ${held.toFixed(3)} (perplexity ${Math.exp(held).toFixed(2)})`;
  return `${bar} ${String(step).padStart(String(total).length)}/${total}  ${figures}  ${(ms / 1000).toFixed(1)} s`;
}

/** Numbers in [0, 1) that are the same for the same seed: Mulberry32. */
function uniform(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let x = Math.imul(state ^ (state >>> 15), state | 1);
    x ^= x + Math.imul(x ^ (x >>> 7), x | 61);
    return ((x ^ (x >>> 14)) >>> 0) / 2 ** 32;
  };
}

runExample(main);
