/**
 * What packages export, as types: one file a package in tools/release/api, so that a change of it is seen where changes are
 * reviewed. Written from the built d.ts: every export of every entry in name order, without comments.
 *
 *   tsx tools/release/api.ts           compares; fails with the lines that differ
 *   tsx tools/release/api.ts --update  writes the files
 */
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';
import { ROOT } from './prebuilt';

const FOLDER = join(ROOT, 'tools/release/api');

interface PackageManifest {
  name: string;
  private?: boolean;
  exports?: Record<string, string | { import?: { types?: string } }>;
}

/** By package folder, the text of its snapshot. */
export function apiTexts(): Record<string, string> {
  const entries = readdirSync(join(ROOT, 'packages')).flatMap((folder) => {
    const path = join(ROOT, 'packages', folder);
    const manifest = JSON.parse(readFileSync(join(path, 'package.json'), 'utf8')) as PackageManifest;
    if (manifest.private) return [];
    return Object.entries(manifest.exports ?? {}).flatMap(([entry, conditions]) => {
      const types = typeof conditions === 'object' ? conditions.import?.types : undefined;
      return types ? [{ folder, specifier: `${manifest.name}${entry.slice(1)}`, file: join(path, types) }] : [];
    });
  });
  const absent = entries.find(({ file }) => !existsSync(file));
  if (absent) throw new Error(`${absent.file} is not there: build the packages first (pnpm build).`);
  const program = ts.createProgram(
    entries.map(({ file }) => file),
    {
      module: ts.ModuleKind.NodeNext,
      moduleResolution: ts.ModuleResolutionKind.NodeNext,
      skipLibCheck: true,
      target: ts.ScriptTarget.ESNext,
    },
  );
  const texts: Record<string, string> = {};
  for (const { folder, specifier, file } of entries) {
    texts[folder] = `${texts[folder] ?? ''}// ${specifier}\n\n${exportsOf(program, file).join('\n')}\n`;
  }
  return texts;
}

function exportsOf(program: ts.Program, file: string): string[] {
  const checker = program.getTypeChecker();
  const source = program.getSourceFile(file)!;
  const printer = ts.createPrinter({ removeComments: true });
  const exported = checker.getExportsOfModule(checker.getSymbolAtLocation(source)!);
  return exported
    .map((symbol) => {
      const origin = symbol.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol;
      const declarations = (origin.declarations ?? []).filter((node) => !isForeign(node));
      const texts = declarations.map((node) => {
        if (ts.isSourceFile(node)) return '(every export of another entry)';
        const whole = ts.isVariableDeclaration(node) ? node.parent.parent : node;
        return printer.printNode(ts.EmitHint.Unspecified, whole, whole.getSourceFile());
      });
      return `### ${symbol.name}\n${texts.join('\n') || '(of another package)'}\n`;
    })
    .sort();
}

/** What another package declares is that one's to show. */
function isForeign(node: ts.Declaration): boolean {
  return /\/node_modules\//.test(node.getSourceFile().fileName);
}

/** Lines that say which snapshots differ, with the first lines that do. */
export function apiDifferences(): string[] {
  const found: string[] = [];
  for (const [folder, text] of Object.entries(apiTexts())) {
    const path = join(FOLDER, `${folder}.txt`);
    const before = existsSync(path) ? readFileSync(path, 'utf8') : '';
    if (before === text) continue;
    const [old, now] = [new Set(before.split('\n')), new Set(text.split('\n'))];
    const gone = [...old].filter((line) => !now.has(line)).map((line) => `- ${line}`);
    const added = [...now].filter((line) => !old.has(line)).map((line) => `+ ${line}`);
    found.push(
      `packages/${folder} exports something else than tools/release/api/${folder}.txt says:`,
      ...[...gone, ...added].slice(0, 20),
    );
  }
  return found;
}

function main(): void {
  if (process.argv.includes('--update')) {
    mkdirSync(FOLDER, { recursive: true });
    for (const [folder, text] of Object.entries(apiTexts())) writeFileSync(join(FOLDER, `${folder}.txt`), text);
    return;
  }
  const found = apiDifferences();
  for (const line of found) console.error(line);
  if (found.length > 0)
    console.error('Where that is meant: pnpm build && tsx tools/release/api.ts --update, and a changeset.');
  process.exitCode = found.length === 0 ? 0 : 1;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) main();
