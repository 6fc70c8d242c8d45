/**
 * The code of README and the guides, run as a reader would: programs, commands, kernels and the expressions of the sheets of
 * tensors.md, in a folder like that of a project with @x/candle installed. blocks.ts says which are not run, and why.
 */
import { spawnSync } from 'node:child_process';
import { chmodSync, mkdirSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { format } from 'node:util';
import { Device } from '@x/candle';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { type Block, blocksOf, fenceProblems, GUIDES, ROOT, SHEET, sheetOf, sheetProgram } from './blocks';

const CANDLE = join(ROOT, 'packages/candle/bin/candle.js');
const project = join(ROOT, '.cache/test/guides');
const home = process.cwd();
const all = GUIDES.flatMap(blocksOf);
const runs = (language: string) => all.filter((block) => block.language === language && block.attributes.length === 0);

beforeAll(() => {
  rmSync(project, { recursive: true, force: true });
  for (const folder of ['node_modules/@x', 'bin']) mkdirSync(join(project, folder), { recursive: true });
  for (const name of ['models', 'examples']) symlinkSync(join(ROOT, name), join(project, name));
  for (const name of readdirSync(join(ROOT, 'node_modules')))
    symlinkSync(join(ROOT, 'node_modules', name), join(project, 'node_modules', name));
  for (const name of readdirSync(join(ROOT, 'packages')))
    symlinkSync(join(ROOT, 'packages', name), join(project, 'node_modules/@x', name));
  // A project of its own, to which the repository's settings mean nothing.
  for (const name of ['package.json', 'tsconfig.json']) writeFileSync(join(project, name), '{}');
  const npx = join(project, 'bin/npx');
  writeFileSync(npx, `#!/bin/sh\n[ "$1" = candle ] || exit 127\nshift\nexec "${process.execPath}" "${CANDLE}" "$@"\n`);
  chmodSync(npx, 0o755);
  process.chdir(project);
});
afterAll(() => process.chdir(home));

test('every fence says what is done with its block', () => expect(GUIDES.flatMap(fenceProblems)).toEqual([]));

describe('programs', () => {
  test.each(runs('ts'))('$title', { timeout: 120_000 }, async (block) => {
    const file = join(project, `${block.title.replace(/\W/g, '-')}.ts`);
    writeFileSync(file, `${block.before}process.stdout.write('\\0');\n${block.code}\nexport {};\n`);
    const printed = await printedBy(() => import(file));
    expectOutput(block, printed.slice(printed.lastIndexOf('\0') + 1));
  });
});

describe('commands', () => {
  test.each(runs('sh'))('$title', { timeout: 120_000 }, (block) => {
    const { status, stdout, stderr } = spawnSync('sh', ['-e', '-c', block.code], {
      cwd: project,
      encoding: 'utf8',
      input: '',
      env: { ...process.env, PATH: `${join(project, 'bin')}:${process.env.PATH}`, HF_HUB_OFFLINE: '1' },
    });
    expect(status, `${stdout}\n${stderr}`).toBe(0);
    expectOutput(block, stdout);
  });

  test('those that are not run are known to the command', () => {
    const lines = all.flatMap(({ code, language, title }) =>
      language === 'ts' ? [] : code.split('\n').map((line) => ({ title, words: wordsOf(line) })),
    );
    const help = new Map<string, string>();
    for (const { title, words } of lines.filter(({ words }) => words.length > 0)) {
      const [command, ...rest] = words;
      if (!help.has(command)) {
        const { stdout, status } = spawnSync(process.execPath, [CANDLE, command, '--help'], { encoding: 'utf8' });
        expect(status, `${title}: candle ${command}`).toBe(0);
        help.set(command, stdout);
      }
      for (const option of rest.filter((word) => word.startsWith('--')))
        expect(help.get(command)!.split(/[\s,=]+/), `${title}: candle ${command}`).toContain(option);
    }
    expect([...help.keys()].sort()).toEqual(
      expect.arrayContaining(['batch', 'chat', 'doctor', 'quantize', 'run', 'serve']),
    );
  });
});

describe('kernels', () => {
  const kernels = runs('cpp');
  test.each(kernels)('$title', { timeout: 60_000 }, ({ code }) => {
    const names = [...code.matchAll(/KERNEL\((\w+)/g)].map(([, name]) => name);
    expect(names).not.toEqual([]);
    const program = Device.cpu().compile(code);
    for (const name of names) expect(program.kernel(name)).toBeDefined();
  });
});

test.each(runs('json'))('$title', ({ code }) => {
  for (const line of code.trim().split('\n')) expect(typeof JSON.parse(line)).toBe('object');
});

describe('sheets', () => {
  const sheet = sheetOf(SHEET);
  test('are there', () => expect(sheet.length).toBeGreaterThan(60));

  test('every expression gives something', { timeout: 120_000 }, async () => {
    const file = join(project, 'sheet.ts');
    writeFileSync(file, sheetProgram(SHEET));
    const { rows: checks } = (await import(file)) as { rows: [number, () => Promise<unknown>][] };
    const wrong: string[] = [];
    await printedBy(async () => {
      for (const [line, check] of checks)
        await check().catch((error: Error) => wrong.push(`${SHEET}:${line}: ${error.message}`));
    });
    expect(wrong).toEqual([]);
  });
});

test('the prelude of the sheets is what the guide says', () => {
  const text = readFileSync(join(ROOT, SHEET), 'utf8');
  expect(text).toContain(
    '`a` and `b` of shape [2, 3] in f32, `w` of shape [3, 4], `ids` of shape\n[2] in u32, a `device`',
  );
});

/** The candle command of a line of shell or of a Dockerfile, without `npx candle`. */
function wordsOf(line: string): string[] {
  const words = line.replace(/["[\],]/g, ' ').split(/\s+/);
  const at = words.findIndex((word, i) => word === 'candle' && (i === 0 || words[i - 1] === 'npx'));
  if (at < 0) return [];
  const rest = words.slice(at + 1).filter(Boolean);
  const end = rest.findIndex((word) => ['#', '|', '>', '&&'].includes(word));
  return end < 0 ? rest : rest.slice(0, end);
}

/** All that is written to standard output meanwhile. */
async function printedBy(action: () => Promise<unknown>): Promise<string> {
  let printed = '';
  const log = vi.spyOn(console, 'log').mockImplementation((...values) => {
    printed += `${format(...values)}\n`;
  });
  const write = vi.spyOn(process.stdout, 'write').mockImplementation((chunk) => {
    printed += String(chunk);
    return true;
  });
  try {
    await action();
  } finally {
    log.mockRestore();
    write.mockRestore();
  }
  return printed;
}

function expectOutput({ output }: Block, printed: string): void {
  if (output === undefined) return;
  const pattern = output.split('…').map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'));
  expect(printed.trimEnd()).toMatch(new RegExp(`^${pattern.join('[^]*')}$`));
}
