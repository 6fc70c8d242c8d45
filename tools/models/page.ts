/**
 * The tables of docs/models.md, between marks in it: what is supported of each model that is registered.
 *
 *   tsx tools/models/page.ts            compares; fails with the first line that differs
 *   tsx tools/models/page.ts --write    writes them
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type EncoderFacts, encoderFacts, type ModelFacts, modelFacts, ROOT } from './facts';

export const PAGE = join(ROOT, 'docs/models.md');

const code = (names: readonly string[]) => names.map((name) => `\`${name}\``).join(', ');
const yes = (is: boolean) => (is ? 'yes' : 'no');
const table = (header: readonly string[], rows: readonly (readonly string[])[]) =>
  [header, header.map(() => '---'), ...rows].map((cells) => `| ${cells.join(' | ')} |`).join('\n');

const EXPERTS = /^ffn_(?:gate|up|down)_exps$/;

/** Experts are three matrices, and one thing to say. */
function grouped(names: readonly string[]): string {
  const rest = names.filter((name) => !EXPERTS.test(name));
  return [...(rest.length < names.length ? ['experts'] : []), ...(rest.length > 0 ? [code(rest)] : [])].join(', ');
}

const except = (names: readonly string[]) => (names.length === 0 ? 'all' : `but ${grouped(names)}`);

function modelTable(models: readonly ModelFacts[]): string {
  const header = [
    '`config.json`',
    'GGUF',
    'published as',
    'written as GGUF',
    'saved prompts, drafts',
    'vectors',
    'tool calls',
  ];
  return table(
    header,
    models.map(({ name, gguf = '', published, checked, export: isExported, states, vectors, families }) => [
      // EmbeddingGemma is told from Gemma 3 by a setting.
      code([name === 'gemma_embedding' ? 'gemma3_text' : name]),
      `${code([gguf])}${checked === 'both' ? '' : ' *'}`,
      published,
      yes(isExported),
      name === 'gemma_embedding' ? '–' : yes(!states),
      vectors ? (name === 'gemma_embedding' ? 'only' : 'yes') : 'no',
      families.map((family) => (family === 'plain' ? 'none' : `\`${family}\``)).join(', ') || '–',
    ]),
  );
}

function partsTable(models: readonly ModelFacts[]): string {
  const header = ['`config.json`', 'tensor parallel', 'pipeline', 'LoRA'];
  return table(
    header,
    models
      .filter(({ name }) => name !== 'gemma_embedding')
      .map(({ name, whole, pipeline, unadapted }) => [
        code([name]),
        whole === undefined ? 'embedding and head only' : except(whole),
        yes(pipeline),
        except(unadapted),
      ]),
  );
}

function encoderTable(encoders: readonly EncoderFacts[]): string {
  return table(
    ['`config.json`', 'GGUF', 'published as', 'class with a head for scores'],
    encoders.map(({ name, gguf, published, head }) => [
      code([name]),
      gguf === undefined ? '–' : code([gguf]),
      published,
      head === undefined ? '–' : code([head]),
    ]),
  );
}

/** By the name of the mark in front of it. */
export async function tables(): Promise<Record<string, string>> {
  const models = await modelFacts();
  return { models: modelTable(models), parts: partsTable(models), encoders: encoderTable(encoderFacts()) };
}

/** The page with these tables in the places of those that it has. @throws Error for a page without their marks */
export function withTables(page: string, made: Readonly<Record<string, string>>): string {
  return Object.entries(made).reduce((text, [name, rows]) => {
    const [start, end] = [`<!-- table: ${name} -->`, '<!-- end -->'];
    const from = text.indexOf(start);
    const to = text.indexOf(end, from);
    if (from < 0 || to < 0) throw new Error(`docs/models.md has no ${start} with ${end} behind it`);
    return `${text.slice(0, from + start.length)}\n\n${rows}\n\n${text.slice(to)}`;
  }, page);
}

async function main(): Promise<void> {
  const page = readFileSync(PAGE, 'utf8');
  const wanted = withTables(page, await tables());
  if (process.argv.includes('--write')) return writeFileSync(PAGE, wanted);
  const lines = page.split('\n');
  const at = wanted.split('\n').findIndex((line, i) => line !== lines[i]);
  if (at < 0) return;
  console.error(
    `docs/models.md:${at + 1} should be\n${wanted.split('\n')[at]}\nWrite it: tsx tools/models/page.ts --write`,
  );
  process.exitCode = 1;
}

if (process.argv[1]?.endsWith('tools/models/page.ts')) void main();
