/**
 * Milliseconds for a million characters of text to become tokens: one JSON line a vocabulary and text.
 *
 *   tsx tools/bench/tokenizers.ts --python PYTHON [--rounds 3] [TOKENIZER.json...]
 *
 * Two vocabularies are trained on this project's sources by the Rust library `tokenizers`, which PYTHON has: byte-level pieces of words, as
 * of Llama 3, and pieces of whole texts, as of Llama 2; others can be named. Texts: what they were trained on, and what is not made
 * of known words; each behind as much of its kind. The sides take turns, in processes of their own; the least of the rounds counts. `library` is `@huggingface/tokenizers`,
 * which ours is built on, where it takes less than a minute in all. The numbers of tokens must be equal.
 */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { performance } from 'node:perf_hooks';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { Tokenizer } from '../../packages/transformers/src';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const PROGRAM = join(ROOT, 'tools/bench/rust_tokenizers.py');
/** Characters that are timed, behind as many others of their kind. */
const LENGTH = 1_000_000;
const SIDES = ['ours', 'library', 'rust'] as const;

interface Took {
  ms: number;
  tokens: number;
}

/** Markdown and TypeScript of the project. */
function sources(): string {
  const below = (folder: string): string[] =>
    readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' })
      .filter((name) => /\.(md|ts)$/.test(name) && !/(node_modules|dist)\//.test(name))
      .map((name) => join(ROOT, folder, name));
  const files = ['docs', 'packages', 'tools', 'models/tiny-tales'].flatMap(below).sort();
  return files.map((file) => readFileSync(file, 'utf8')).join('');
}

function texts(known: string): Record<string, string> {
  let state = 1;
  const next = () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
  const letters = (count: number, of: (x: number) => number) => {
    let text = '';
    for (let i = 0; i < count; i++) text += String.fromCharCode(of(next()));
    return text;
  };
  return {
    'words and code': known.slice(0, 2 * LENGTH),
    'Chinese characters': letters(LENGTH / 2, (x) => (x < 0.07 ? 0x3002 : 0x4e00 + Math.floor(3000 * x * x))),
    'hexadecimal digits': letters(LENGTH / 2, (x) => '0123456789abcdef'.charCodeAt(16 * x)),
  };
}

async function take(side: (typeof SIDES)[number], files: readonly string[], python: string): Promise<Took> {
  if (side === 'rust') return JSON.parse(execFileSync(python, [PROGRAM, 'time', ...files], { encoding: 'utf8' }));
  const options = { encoding: 'utf8', timeout: 60_000 } as const;
  const args = ['--import', 'tsx', fileURLToPath(import.meta.url), '--side', side, ...files];
  return JSON.parse(execFileSync(process.execPath, args, options));
}

/** In a process of its own. */
async function timed(side: string, [definition, ...files]: readonly string[]): Promise<Took> {
  const [before, text] = files.map((file) => readFileSync(file, 'utf8'));
  let encode: (text: string) => readonly unknown[];
  if (side === 'ours') {
    const tokenizer = await Tokenizer.fromFile(definition);
    encode = (part) => tokenizer.encode(part, { addSpecialTokens: false });
  } else {
    const library = createRequire(join(ROOT, 'packages/transformers/package.json'))('@huggingface/tokenizers');
    const tokenizer = new library.Tokenizer(JSON.parse(readFileSync(definition, 'utf8')), {});
    encode = (part) => tokenizer.encode(part, { add_special_tokens: false }).ids;
  }
  encode(before);
  const start = performance.now();
  const tokens = encode(text).length;
  return { ms: performance.now() - start, tokens };
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    python: { type: 'string', default: 'python3' },
    rounds: { type: 'string', default: '3' },
    side: { type: 'string' },
  },
});
if (values.side) {
  console.log(JSON.stringify(await timed(values.side, positionals)));
} else {
  const scratch = mkdtempSync(join(tmpdir(), 'x-tokenizers-'));
  try {
    const known = sources();
    writeFileSync(join(scratch, 'sources'), known);
    execFileSync(values.python, [PROGRAM, 'train', scratch, join(scratch, 'sources')], { stdio: 'inherit' });
    const trained = ['byte-level', 'sentence-piece'].map((name) => join(scratch, `${name}.json`));
    for (const definition of [...trained, ...positionals]) {
      for (const [name, text] of Object.entries(texts(known))) {
        const half = text.length / 2;
        const files = [definition, join(scratch, 'before'), join(scratch, 'text')];
        writeFileSync(files[1], text.slice(0, half));
        writeFileSync(files[2], text.slice(half));
        const least: Partial<Record<string, number>> = {};
        const tokens = new Set<number>();
        for (let round = 0; round < Number(values.rounds); round++) {
          for (const side of SIDES) {
            if (least[side] === Number.POSITIVE_INFINITY) continue;
            const took = await take(side, files, values.python).catch((error) => {
              if (side !== 'library') throw error;
              return undefined;
            });
            least[side] = Math.min(least[side] ?? Number.POSITIVE_INFINITY, took?.ms ?? Number.POSITIVE_INFINITY);
            if (took && side !== 'library') tokens.add(took.tokens);
          }
        }
        if (tokens.size !== 1) throw new Error(`${definition}, ${name}: ${[...tokens].join(' and ')} tokens`);
        const million = (ms = 0) => (Number.isFinite(ms) ? Math.round((ms / half) * 1e6) : null);
        console.log(
          JSON.stringify({
            vocabulary: basename(definition, '.json'),
            text: name,
            tokens: [...tokens][0],
            ours_ms: million(least.ours),
            library_ms: million(least.library),
            rust_ms: million(least.rust),
            ratio: Number((least.rust! / least.ours!).toFixed(2)),
          }),
        );
      }
    }
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}
