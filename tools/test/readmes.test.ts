/**
 * The TypeScript blocks of READMEs and guides: each is a program whose types are right and that Node 20 can parse once types
 * are stripped. `using` is a syntax error before Node 24. guides.test.ts runs those of README and the guides.
 */
import { join } from 'node:path';
import ts from 'typescript';
import { expect, test } from 'vitest';
import { blocksOf, GUIDES, PACKAGE_READMES, ROOT, SHEET, sheetProgram } from './blocks';

const blocks = [...GUIDES, ...PACKAGE_READMES]
  .flatMap(blocksOf)
  .filter(({ language }) => ['ts', 'typescript', 'js', 'mjs'].includes(language))
  .map(({ title, path, before, code }) => ({ title, path, code: before + code }));
// Its expressions are lines of one program.
blocks.push({ title: SHEET, path: join(ROOT, 'docs/guide/sheet.ts'), code: sheetProgram(SHEET) });

test('there are blocks to check', () => expect(blocks.length).toBeGreaterThan(50));

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
  const { config } = ts.readConfigFile(join(ROOT, 'tsconfig.base.json'), ts.sys.readFile);
  const { options } = ts.parseJsonConfigFileContent({ ...config, files: [] }, ts.sys, ROOT);
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
