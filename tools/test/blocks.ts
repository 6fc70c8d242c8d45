/**
 * The code blocks of READMEs and guides. The words behind a fence's language say what is done with a block:
 *
 *   ts, sh, cpp            run; a program of TypeScript without imports goes on where the one before it ended
 *   json                   read, a value a line
 *   text output            what the block before it prints; … stands for anything
 *   ts gpu, ts hub         types only: it needs a GPU, or a model of the hub
 *   ts within=FOLDER       types only, as a file of that folder
 *   sh gpu, hub            needs a GPU, or the hub
 *   sh install             changes the machine, or downloads packages
 *   sh serving             does not end by itself
 *   sh slow                takes minutes; other checks run it
 *
 * The commands of those that are not run are checked too: that `candle` knows them and their options.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const ROOT = fileURLToPath(new URL('../..', import.meta.url));

export interface Block {
  /** File and line, for messages. */
  title: string;
  /** Where a program would be, so that its imports are found. */
  path: string;
  language: string;
  attributes: string[];
  code: string;
  /** Programs before it that it goes on from. */
  before: string;
  /** What it prints, where the document says so. */
  output?: string;
}

/** Words that may stand behind a language. */
const KNOWN: Record<string, RegExp> = {
  ts: /^(gpu|hub|within=.+)$/,
  sh: /^(gpu|hub|install|serving|slow)$/,
  cpp: /^$/,
  json: /^$/,
  dockerfile: /^$/,
  text: /^output$/,
};

export const PACKAGE_READMES = readdirSync(join(ROOT, 'packages')).map((name) => `packages/${name}/README.md`);
export const GUIDES = [
  'README.md',
  'docs/index.md',
  'docs/replicas-and-batches.md',
  'docs/kernels.md',
  ...readdirSync(join(ROOT, 'docs/guide'))
    .filter((name) => name.endsWith('.md'))
    .map((name) => `docs/guide/${name}`),
];

/** The guide whose tables put PyTorch, candle and this side by side. */
export const SHEET = 'docs/guide/tensors.md';

/** All blocks of a document in order. */
export function blocksOf(document: string): Block[] {
  const text = readFileSync(join(ROOT, document), 'utf8');
  const blocks: Block[] = [];
  let before = '';
  for (const { 1: info, 2: code, index } of text.matchAll(/^```(.*)\n([\s\S]*?)^```$/gm)) {
    const line = text.slice(0, index).split('\n').length;
    const [language, ...attributes] = info.trim().split(/\s+/);
    if (language === 'text' && attributes.includes('output')) {
      const printing = blocks.at(-1);
      if (!printing) throw new Error(`${document}:${line}: no block before it prints this`);
      printing.output = code.trimEnd();
      continue;
    }
    const folder = attributes.map((word) => /^within=(.+)/.exec(word)?.[1]).find(Boolean) ?? join(document, '..');
    const path = join(ROOT, folder, `block-${line}.ts`);
    const isProgram = language === 'ts' || language === 'typescript' || language === 'js' || language === 'mjs';
    const goesOn = isProgram && !/^import /m.test(code);
    blocks.push({ title: `${document}:${line}`, path, language, attributes, code, before: goesOn ? before : '' });
    if (isProgram) before = goesOn ? before + code : code;
  }
  return blocks;
}

/** What is wrong with the fences of a document. */
export function fenceProblems(document: string): string[] {
  return blocksOf(document).flatMap(({ title, language, attributes }) => {
    const known = KNOWN[language];
    if (!known) return [`${title}: no check knows the language "${language}"`];
    return attributes.filter((word) => !known.test(word)).map((word) => `${title}: ${language} has no "${word}"`);
  });
}

/** The expressions of tables whose last column is `here`: each stands for a line that a reader may copy. */
export function sheetOf(document: string): { line: number; code: string }[] {
  const found: { line: number; code: string }[] = [];
  let inSheet = false;
  for (const [index, line] of readFileSync(join(ROOT, document), 'utf8').split('\n').entries()) {
    const cells = line.split('|').map((cell) => cell.trim());
    if (cells.length < 3) inSheet = false;
    else if (cells.at(-2) === 'here') inSheet = true;
    else if (inSheet) {
      for (const [, code] of cells.at(-2)!.matchAll(/`([^`]+)`/g)) found.push({ line: index + 1, code });
    }
  }
  return found;
}

/** A program with each expression of a document's sheets as a function, by its line. */
export function sheetProgram(document: string): string {
  const rows = sheetOf(document).map(({ line, code }) => `  [${line}, async () => (${code})],\n`);
  return `${SHEET_PRELUDE}export const rows: [number, () => Promise<unknown>][] = [\n${rows.join('')}];\n`;
}

/** What the guide says that its expressions may use. */
const SHEET_PRELUDE = `import { core, Device, noGrad, Tensor, Var } from '@x/candle';
const device = Device.cpu();
const make = () => Tensor.arange(1, 7, 'f32', device).reshape([2, 3]);
const [a, b] = [make(), make()];
const w = Tensor.ones([3, 4], 'f32', device);
const ids = Tensor.from([0, 1], { dtype: 'u32', device });
`;
