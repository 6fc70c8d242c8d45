/**
 * The TypeScript blocks of the READMEs: each is a program whose types are right and that Node 20 can parse once types are
 * stripped. `using` is a syntax error before Node 24. tools/test/programs.mjs also runs the first of them.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';
import { expect, test } from 'vitest';

const root = fileURLToPath(new URL('../..', import.meta.url));
const packages = readdirSync(join(root, 'packages')).map((name) => `packages/${name}/README.md`);

interface Block {
  /** README and line, for messages. */
  title: string;
  /** Where the program would be, so that its imports are found. */
  path: string;
  code: string;
}

function blocksOf(readme: string): Block[] {
  const text = readFileSync(join(root, readme), 'utf8');
  let before = '';
  return [...text.matchAll(/^```(?:ts|typescript|js|mjs)\n([\s\S]*?)^```$/gm)].map(({ 1: block, index }) => {
    const line = text.slice(0, index).split('\n').length;
    // A block without imports goes on where the one before it ended.
    const code = /^import /m.test(block) ? block : `${before}${block}`;
    before = code;
    return { title: `${readme}:${line}`, path: join(root, readme, `../readme-${line}.ts`), code };
  });
}

const blocks = ['README.md', ...packages].flatMap(blocksOf);

test('there are blocks to check', () => expect(blocks.length).toBeGreaterThan(12));

test.each(blocks)('$title is ES2022 without its types', ({ code }) => {
  const file = ts.createSourceFile('block.ts', code, ts.ScriptTarget.ES2022, true);
  const visit = (node: ts.Node): void => {
    // The flag of `await using` has that of `using` in it.
    if (ts.isVariableDeclarationList(node) && (node.flags & ts.NodeFlags.Using) === ts.NodeFlags.Using)
      throw new Error(`a using declaration, which Node 20 and 22 do not know: ${node.getText()}`);
    ts.forEachChild(node, visit);
  };
  visit(file);
  const { diagnostics } = ts.transpileModule(code, {
    reportDiagnostics: true,
    compilerOptions: { target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.ESNext },
  });
  expect(diagnostics?.map(({ messageText }) => messageText)).toEqual([]);
});

test('types are right', { timeout: 300_000 }, () => {
  const { config } = ts.readConfigFile(join(root, 'tsconfig.base.json'), ts.sys.readFile);
  const { options } = ts.parseJsonConfigFileContent({ ...config, files: [] }, ts.sys, root);
  const byPath = new Map(blocks.map((block) => [block.path, block]));
  const host = ts.createCompilerHost(options);
  const { getSourceFile, fileExists, readFile } = host;
  host.fileExists = (path) => byPath.has(path) || fileExists(path);
  host.readFile = (path) => byPath.get(path)?.code ?? readFile(path);
  host.getSourceFile = (path, languageVersion, ...rest) => {
    const block = byPath.get(path);
    // An export makes a module of a block without imports.
    if (block) return ts.createSourceFile(path, `${block.code}\nexport {};`, languageVersion, true);
    return getSourceFile(path, languageVersion, ...rest);
  };
  const program = ts.createProgram([...byPath.keys()], options, host);
  const wrong = [...byPath].flatMap(([path, { title }]) => {
    const file = program.getSourceFile(path)!;
    const found = [...program.getSyntacticDiagnostics(file), ...program.getSemanticDiagnostics(file)];
    return found.map(({ messageText, start }) => {
      const { line } = file.getLineAndCharacterOfPosition(start ?? 0);
      return `${title} line ${line + 1}: ${ts.flattenDiagnosticMessageText(messageText, ' ')}`;
    });
  });
  expect(wrong).toEqual([]);
});
