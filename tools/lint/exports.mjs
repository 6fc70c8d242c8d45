#!/usr/bin/env node
// What a module of a package exports is imported by another one, or public: a function, class or constant that neither is true
// of is a name too many, or dead code. Types are left alone, since they name what others are given. Statements are found by how
// Biome lays them out. Exits non-zero with one line an export.
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = join(dirname(fileURLToPath(import.meta.url)), '../..');
// What packages are entered by.
const ENTRIES = /^packages\/[^/]+\/src\/(?:.*\/)?index\.ts$/;
// Written by tools/kernels, for all kernels; stands for a module of the engine in tests.
const LEFT_OUT = /\/launchers\/|^packages\/testing\/src\/thread-program\.ts$/;
const { paths } = JSON.parse(readFileSync(join(root, 'tsconfig.base.json'), 'utf8')).compilerOptions;

const modules = new Map();
for (const folder of ['packages', 'tools', 'docs', 'examples'])
  for (const file of sources(join(root, folder))) read(relative(root, file));
// By module, the names that others import; '*' for all.
const used = new Map([...modules.keys()].map((path) => [path, new Set(ENTRIES.test(path) ? ['*'] : [])]));
for (const { imports } of modules.values()) for (const [target, names] of imports) use(target, names);

let problems = 0;
for (const [path, { exports }] of modules) {
  if (!path.startsWith('packages/') || !path.endsWith('.ts') || LEFT_OUT.test(path)) continue;
  const names = used.get(path);
  for (const name of exports) {
    if (names.has(name) || names.has('*')) continue;
    problems++;
    console.error(`${path}: nobody imports ${name}`);
  }
}
console.log(`exports: ${problems === 0 ? 'clean' : `${problems} problems`}`);
process.exit(problems === 0 ? 0 : 1);

// Marks names of a module, and what stands behind those that it passes on.
function use(path, names) {
  const known = used.get(path);
  const news = names.filter((name) => !known?.has(name));
  if (!known || news.length === 0) return;
  for (const name of news) known.add(name);
  for (const target of modules.get(path).passedOn) use(target, news);
}

function read(path) {
  const text = readFileSync(join(root, path), 'utf8');
  const module = { exports: [], imports: [], passedOn: [] };
  modules.set(path, module);
  for (const [, list, rest, specifier] of text.matchAll(
    /^(?:import|export) (?:type )?(?:(?:\w+, )?\{([^}]*)\}|(\* as \w+|\*|\w+)) from '([^']+)'/gm,
  )) {
    const target = resolved(path, specifier);
    if (rest === '*') module.passedOn.push(target);
    else module.imports.push([target, rest ? ['*'] : namesOf(list).map((name) => name.split(' as ')[0])]);
  }
  // Of a module that is loaded later or in a test's place, all.
  for (const [, specifier] of text.matchAll(/\b(?:import|mock)\(\s*(?:import\()?'([^']+)'/g))
    module.imports.push([resolved(path, specifier), ['*']]);
  for (const [, list, name] of text.matchAll(
    /^export (?:declare |abstract |async )*(?:const|let|function\*?|class|enum) (?:\{([^}]*)\}|(\w+))/gm,
  ))
    module.exports.push(...(list === undefined ? [name] : namesOf(list).map((each) => each.split(': ').at(-1))));
}

function namesOf(list) {
  return list
    .split(',')
    .map((name) => name.trim().replace(/^type /, ''))
    .filter((name) => name !== '');
}

// The module that a specifier means, or undefined for one of others.
function resolved(path, specifier) {
  const aliased = paths[specifier] ?? paths[`${specifier.split('/').slice(0, 2).join('/')}/*`];
  const base = specifier.startsWith('.')
    ? join(dirname(path), specifier)
    : aliased?.[0].replace('*', specifier.split('/').slice(2).join('/'));
  if (base === undefined) return undefined;
  const clean = base.replace(/^\.\//, '');
  return [clean, `${clean}.ts`, join(clean, 'index.ts')].find(isFile);
}

function isFile(path) {
  return /\.(?:m?[tj]s)$/.test(path) && existsSync(join(root, path));
}

function* sources(directory) {
  for (const entry of readdirSync(directory, { withFileTypes: true })) {
    if (entry.name === 'node_modules' || entry.name === 'dist' || entry.name.startsWith('.')) continue;
    const path = join(directory, entry.name);
    if (entry.isDirectory()) yield* sources(path);
    else if (/\.m?[tj]s$/.test(entry.name) && !entry.name.endsWith('.d.ts')) yield path;
  }
}
