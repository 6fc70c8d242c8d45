#!/usr/bin/env node
// The rules that no formatter knows: a package imports only from layers below it, and by their names; modules of a package
// import each other in no circle (types aside, which are gone when it runs); and nothing awaits at the top level of a module
// (a CommonJS `require` of such a module fails). Exits non-zero with one line a violation.
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';

const root = join(dirname(fileURLToPath(import.meta.url)), '../..');

// What each package may import of ours. An arrow only ever points down (docs/architecture.md).
const BELOW = {
  core: [],
  hip: [],
  kernels: [],
  'rocm-backend': ['core', 'hip', 'kernels'],
  quantized: ['core'],
  nn: ['core'],
  transformers: ['core', 'nn', 'quantized'],
  grammar: ['core'],
  hub: ['core'],
  engine: ['core', 'nn', 'quantized', 'transformers', 'grammar', 'hub'],
  server: ['core', 'transformers', 'engine'],
  testing: ['core', 'hip', 'kernels', 'rocm-backend', 'quantized', 'nn', 'transformers', 'engine', 'server', 'candle'],
  candle: [
    'core',
    'hip',
    'kernels',
    'rocm-backend',
    'quantized',
    'nn',
    'transformers',
    'grammar',
    'hub',
    'engine',
    'server',
  ],
};
// Tests may use every package: a behaviour test of core's ops runs on the devices of rocm-backend.
const isTest = (file) => /\.test\.ts$|\/test\/|^packages\/testing\//.test(file);

const problems = [];
// Of every module: the modules of its package whose values it imports.
const imports = new Map();
for (const name of readdirSync(join(root, 'packages'))) {
  if (!(name in BELOW)) problems.push(`packages/${name}: not in the table of layers in tools/lint/layers.mjs`);
  const manifest = JSON.parse(readFileSync(join(root, 'packages', name, 'package.json'), 'utf8'));
  for (const dependency of Object.keys({ ...manifest.dependencies, ...manifest.peerDependencies })) {
    checkImport(`packages/${name}/package.json`, name, dependency);
    if (name === 'core' && !dependency.startsWith('@x/'))
      problems.push(`packages/core: depends on ${dependency}; core has no dependencies`);
  }
  for (const part of ['src', 'test'])
    for (const file of sources(join(root, 'packages', name, part))) checkFile(file, name, manifest);
}
for (const circle of circles()) problems.push(`import in a circle: ${circle.join(' -> ')}`);
for (const problem of problems) console.error(problem);
console.log(`layers: ${problems.length === 0 ? 'clean' : `${problems.length} problems`}`);
process.exit(problems.length === 0 ? 0 : 1);

function checkFile(file, name, manifest) {
  const path = relative(root, file);
  const source = ts.createSourceFile(path, readFileSync(file, 'utf8'), ts.ScriptTarget.ES2022, true);
  imports.set(path, []);
  const visit = (node, insideFunction) => {
    const specifier = specifierOf(node);
    if (specifier && !isTest(path)) {
      checkImport(path, name, specifier);
      checkDeclared(path, manifest, specifier);
      if (specifier.startsWith('.')) {
        const target = moduleAt(path, specifier);
        if (!target.startsWith(`packages/${name}/`)) problems.push(`${path}: imports ${target} of another package`);
        if (importsValues(node)) imports.get(path).push(target);
      }
    }
    const awaits = ts.isAwaitExpression(node) || (ts.isForOfStatement(node) && node.awaitModifier);
    if (awaits && !insideFunction && !isTest(path)) {
      const { line } = source.getLineAndCharacterOfPosition(node.getStart());
      problems.push(`${path}:${line + 1}: top-level await`);
    }
    node.forEachChild((child) =>
      visit(child, insideFunction || ts.isFunctionLike(node) || ts.isClassStaticBlockDeclaration(node)),
    );
  };
  visit(source, false);
}

// The module that an import or export, a call of import or a type of a module names, if the node is one.
function specifierOf(node) {
  if (ts.isImportDeclaration(node) || ts.isExportDeclaration(node)) return node.moduleSpecifier?.text;
  const isCall = ts.isCallExpression(node) && node.expression.kind === ts.SyntaxKind.ImportKeyword;
  const named = isCall ? node.arguments[0] : ts.isImportTypeNode(node) && node.argument.literal;
  return named && ts.isStringLiteralLike(named) ? named.text : undefined;
}

// Whether an import or export of another module is more than types, and runs before the module does.
function importsValues(node) {
  if (!ts.isImportDeclaration(node) && !ts.isExportDeclaration(node)) return false;
  const clause = ts.isImportDeclaration(node) ? node.importClause : node;
  if (!clause) return true;
  if (clause.isTypeOnly) return false;
  const named = ts.isImportDeclaration(node) ? clause.namedBindings : clause.exportClause;
  const isList = named && (ts.isNamedImports(named) || ts.isNamedExports(named));
  return !isList || clause.name !== undefined || named.elements.some((element) => !element.isTypeOnly);
}

function moduleAt(path, specifier) {
  const base = join(dirname(path), specifier);
  return [`${base}.ts`, join(base, 'index.ts'), base].find((file) => existsSync(join(root, file))) ?? base;
}

// One circle of each group of modules that import each other, from a module back to itself.
function circles() {
  const found = [];
  const done = new Set();
  const walk = (path, trail) => {
    const at = trail.indexOf(path);
    if (at >= 0) found.push([...trail.slice(at), path]);
    if (at >= 0 || done.has(path)) return;
    for (const next of imports.get(path) ?? []) walk(next, [...trail, path]);
    done.add(path);
  };
  for (const path of imports.keys()) walk(path, []);
  return found;
}

function checkImport(path, name, specifier) {
  const [, target] = /^@x\/([^/]+)/.exec(specifier) ?? [];
  // Compiled code, of which a manifest may say that it belongs to a package.
  if (target?.startsWith(`${name}-`) || (name === 'candle' && target?.startsWith('kernels-'))) return;
  if (target && target !== name && !BELOW[name]?.includes(target))
    problems.push(`${path}: @x/${name} may not import @x/${target}`);
}

function checkDeclared(path, manifest, specifier) {
  if (specifier.startsWith('.') || specifier.startsWith('node:')) return;
  const dependency = specifier
    .split('/')
    .slice(0, specifier.startsWith('@') ? 2 : 1)
    .join('/');
  if (!(dependency in (manifest.dependencies ?? {})) && !(dependency in (manifest.peerDependencies ?? {}))) {
    problems.push(`${path}: imports ${dependency}, which ${manifest.name} does not declare`);
  }
}

function* sources(directory) {
  if (!existsSync(directory)) return;
  for (const entry of readdirSync(directory, { withFileTypes: true })) {
    const path = join(directory, entry.name);
    if (entry.isDirectory()) yield* sources(path);
    else if (entry.name.endsWith('.ts')) yield path;
  }
}
