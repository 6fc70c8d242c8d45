/**
 * The examples in doc comments, run. Every block fenced as ts in the sources of this package is a program with the whole
 * public API in scope, and a line that ends in `// => value` (or is followed by such a line) is checked: what the expression
 * gives, awaited, must equal the value; of a tensor its nested values are compared.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';
import { describe, expect, test } from 'vitest';
import * as core from '../src';

const root = fileURLToPath(new URL('../src', import.meta.url));

interface Example {
  title: string;
  code: string;
}

/** The fenced blocks of all doc comments of a file, named after the line they begin at. */
function examplesOf(file: string): Example[] {
  const text = readFileSync(file, 'utf8');
  const found: Example[] = [];
  for (const comment of text.matchAll(/\/\*\*.*?\*\//gs)) {
    for (const block of comment[0].matchAll(/^ *\* *```ts\n(.*?)^ *\* *```$/gms)) {
      const line = text.slice(0, comment.index + block.index).split('\n').length + 1;
      const code = block[1].replace(/^ *\* ?/gm, '');
      found.push({ title: `${relative(root, file)}:${line}`, code });
    }
  }
  return found;
}

/** JavaScript in which every expression with an expected value is a call of `check`. */
function instrument(code: string): { body: string; checks: number } {
  const source = ts.createSourceFile('example.ts', code, ts.ScriptTarget.ES2022, true);
  let body = '';
  let at = 0;
  let checks = 0;
  for (const statement of source.statements) {
    const wanted = /^[ \t]*\n?[ \t]*\/\/ => (.+)/.exec(code.slice(statement.end))?.[1];
    if (wanted === undefined) continue;
    if (!ts.isExpressionStatement(statement)) throw new Error(`"${statement.getText()}" is no expression to check`);
    body += `${code.slice(at, statement.getStart())};check(await (${statement.expression.getText()}), (${wanted}));`;
    at = statement.end;
    checks++;
  }
  body += code.slice(at);
  const { outputText } = ts.transpileModule(body, {
    compilerOptions: { target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.ESNext },
  });
  return { body: outputText, checks };
}

async function run(code: string): Promise<number> {
  const { body, checks } = instrument(code);
  const check = (actual: unknown, wanted: unknown) => {
    expect(actual instanceof core.Tensor ? actual.toVecSync() : actual).toEqual(wanted);
  };
  // An import would only name what is in scope already.
  const program = body.replace(/^import .* from '@x\/core';$/gm, '');
  const AsyncFunction = (async () => undefined).constructor as new (
    ...args: string[]
  ) => (...args: unknown[]) => unknown;
  await new AsyncFunction(...Object.keys(core), 'check', program)(...Object.values(core), check);
  return checks;
}

const files = readdirSync(root, { recursive: true, encoding: 'utf8' })
  .filter((name) => name.endsWith('.ts') && !name.endsWith('.test.ts'))
  .map((name) => join(root, name))
  .sort();
const examples = files.flatMap(examplesOf);

describe('examples in doc comments', () => {
  test.each(examples)('$title', async ({ code }) => {
    await core.scope(async () => void (await run(code)));
  });

  test('are there, and a wrong one fails', async () => {
    expect(examples.length).toBeGreaterThan(40);
    expect(instrument('Tensor.ones([2]); // => [1, 1]\nconst x = 1;').checks).toBe(1);
    expect(await run('Tensor.ones([2])\n  .add(1);\n// => [2, 2]')).toBe(1);
    await expect(run('Tensor.ones([2]); // => [1, 2]')).rejects.toThrow();
    await expect(run('nothing.here')).rejects.toThrow('nothing is not defined');
    expect(() => instrument('const x = 1; // => 1')).toThrow(/no expression/);
  });
});
