/**
 * Vectors of texts a second beside transformers.js (ONNX Runtime), in turn, on the same number of threads: a BERT of random
 * weights, base by default, in f32 and as q8_0.
 *
 *   npm i --prefix /tmp/js --ignore-scripts @huggingface/transformers
 *   tsx tools/bench/embed.ts [--device cpu] [--peer /tmp/js] [--texts 64] [--length 8:256] [--rounds 3] [--processor-time]
 *
 * Without --peer only ours is measured. Lengths in tokens are log-uniform between the two. transformers.js gets the texts in the
 * batch size of 1, 8 and 32 that is fastest for it.
 */
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { performance } from 'node:perf_hooks';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';
import { Device } from '@x/core';
import { loadEmbeddingModel } from '@x/engine';
import '@x/rocm-backend';
import { BERT_BASE, writeBert } from './embed/checkpoint';

const { values: options } = parseArgs({
  options: {
    device: { type: 'string', default: 'cpu' },
    peer: { type: 'string' },
    texts: { type: 'string', default: '64' },
    length: { type: 'string', default: '8:256' },
    rounds: { type: 'string', default: '3' },
    dtype: { type: 'string', default: 'f32' },
    /** The processor's time that the process was given, of all threads, in place of the clock's: for a CPU that others use too. */
    'processor-time': { type: 'boolean', default: false },
    /** Which of the programs run, by name. */
    only: { type: 'string', default: '' },
    /** Keeps the files there, for the next time. */
    model: { type: 'string' },
  },
});

const tokenizer = fileURLToPath(new URL('../../models/encoders/bert', import.meta.url));
const WORDS = 'the king and his three daughters went into a dark forest where an old wolf was waiting for them'.split(
  ' ',
);

function textOf(words: number, seed: number): string {
  return Array.from({ length: words }, (_, i) => WORDS[(i * 7 + seed * 13 + ((i * seed) % 5)) % WORDS.length]).join(
    ' ',
  );
}

interface Peer {
  name: string;
  embed(texts: readonly string[]): Promise<Float32Array[]>;
  dispose(): void | Promise<void>;
}

async function ours(path: string, device: Device, quantize?: 'q8_0'): Promise<Peer> {
  const dtype = options.dtype as 'f32' | 'bf16';
  const model = await loadEmbeddingModel(path, { device, dtype, quantize, pooling: 'mean' });
  return {
    name: `ours ${quantize ?? options.dtype}`,
    embed: async (texts) => (await model.embed(texts)).map(({ vector }) => vector),
    dispose: () => model.dispose(),
  };
}

async function theirs(directory: string, peer: string, batch: number): Promise<Peer> {
  const entry = join(peer, 'node_modules/@huggingface/transformers/dist/transformers.node.mjs');
  const { pipeline, env } = await import(pathToFileURL(entry).href);
  Object.assign(env, { allowRemoteModels: false, localModelPath: `${dirname(directory)}/` });
  const session_options = { intraOpNumThreads: availableParallelism(), interOpNumThreads: 1 };
  const extract = await pipeline('feature-extraction', basename(directory), {
    dtype: 'fp32',
    device: 'cpu',
    session_options,
  });
  return {
    name: `transformers.js fp32, batches of ${batch}`,
    async embed(texts) {
      const vectors: Float32Array[] = [];
      for (let at = 0; at < texts.length; at += batch) {
        const made = await extract(texts.slice(at, at + batch), { pooling: 'mean', normalize: true });
        const [rows, width] = made.dims as [number, number];
        for (let row = 0; row < rows; row++) vectors.push(made.data.slice(row * width, (row + 1) * width));
      }
      return vectors;
    },
    dispose: () => extract.dispose(),
  };
}

/** Milliseconds: those of the clock, or of the processor over its number of threads. */
function now(): number {
  if (!options['processor-time']) return performance.now();
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000 / availableParallelism();
}

async function main(): Promise<void> {
  const directory = options.model ?? mkdtempSync(join(tmpdir(), 'bench-embed-'));
  try {
    if (!existsSync(join(directory, 'config.json'))) writeBert(directory, BERT_BASE, tokenizer);
    const [shortest, longest] = options.length.split(':').map(Number);
    const count = Number(options.texts);
    const device = Device.of(options.device);
    const open = [() => ours(directory, device), () => ours(directory, device, 'q8_0')];
    const names = [`ours ${options.dtype}`, 'ours q8_0'];
    for (const batch of options.peer ? [1, 8, 32] : []) {
      open.push(() => theirs(directory, options.peer!, batch));
      names.push(`transformers.js ${batch}`);
    }
    const wanted = new RegExp(options.only);
    const peers: Peer[] = [];
    for (const [i, name] of names.entries()) if (wanted.test(name)) peers.push(await open[i]());
    const model = await loadEmbeddingModel(directory, { device: Device.js(), pooling: 'mean' });
    // Words are about one token and a half.
    const texts = Array.from({ length: count }, (_, i) => {
      const tokens = shortest * (longest / shortest) ** (((i * 37) % count) / Math.max(1, count - 1));
      return textOf(Math.max(1, Math.round(tokens / 1.3)), i);
    });
    const tokens = texts.reduce((sum, text) => sum + model.tokenizer.encodeInput(text).ids.length, 0);
    model.dispose();
    const best = peers.map(() => Number.POSITIVE_INFINITY);
    const first: Float32Array[][] = [];
    for (const peer of peers) first.push(await peer.embed(texts.slice(0, 4)));
    for (let round = 0; round < Number(options.rounds); round++) {
      for (const [i, peer] of peers.entries()) {
        const start = now();
        await peer.embed(texts);
        best[i] = Math.min(best[i], now() - start);
      }
    }
    console.log(
      `${device} (${device.description}), ${availableParallelism()} threads; ${count} texts of ${tokens} tokens`,
    );
    for (const [i, { name }] of peers.entries()) {
      const difference = Math.max(...first[i].flatMap((v, t) => Array.from(v, (x, j) => Math.abs(x - first[0][t][j]))));
      const rate = (count / best[i]) * 1000;
      console.log(
        `${name}: ${rate.toFixed(2)} texts/s, ${((tokens / best[i]) * 1000).toFixed(0)} tokens/s, difference ${difference.toExponential(1)}`,
      );
    }
    for (const peer of peers) await peer.dispose();
  } finally {
    if (!options.model) rmSync(directory, { recursive: true, force: true });
  }
}

await main();
