#!/usr/bin/env node
// Switches (environment variables X_*) are read in the settings of a package and nowhere else, and docs/switches.md has all of
// them and no other. Exits non-zero with one line a violation.
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = join(dirname(fileURLToPath(import.meta.url)), '../..');
const SETTINGS = [
  'packages/core/src/settings.ts',
  'packages/hip/src/settings.mjs',
  'packages/kernels/src/settings.ts',
  'packages/testing/src/settings.ts',
];
// Read by what tools/gpu/bundle.ts writes, which has no package's settings.
const OF_BUNDLES = 'X_TEST_FILES';
const NAME = /\bX_[A-Z0-9]+(?:_[A-Z0-9]+)*\b/g;

const problems = [];
const defined = new Set(SETTINGS.flatMap((path) => read(path).match(NAME) ?? []));
const documented = new Set(read('docs/switches.md').match(NAME) ?? []);
for (const name of defined) if (!documented.has(name)) problems.push(`${name}: not in docs/switches.md`);
for (const name of documented)
  if (!defined.has(name) && name !== OF_BUNDLES) problems.push(`docs/switches.md: ${name} is in no settings`);
for (const name of readdirSync(join(root, 'packages'))) {
  for (const part of ['src', 'test'])
    for (const file of sources(join(root, 'packages', name, part))) checkFile(relative(root, file));
}
for (const problem of problems) console.error(problem);
console.log(`switches: ${problems.length === 0 ? 'clean' : `${problems.length} problems`}`);
process.exit(problems.length === 0 ? 0 : 1);

function checkFile(path) {
  if (SETTINGS.includes(path)) return;
  // Tests set the packages' switches as well as read them; their own they ask for.
  const isTest = /\.test\.ts$|\/test\/|^packages\/testing\//.test(path);
  // By name, by a computed name, or taken apart.
  const pattern = isTest
    ? /\benv\??\.X_(TEST|FUZZ)_/
    : /\benv\??\.X_|\benv\??\.?\[|\{[^}]*\bX_[A-Z][^}]*\}\s*=\s*process\.env/;
  read(path)
    .split('\n')
    .forEach((line, at) => {
      const reads = pattern.test(line);
      if (reads) problems.push(`${path}:${at + 1}: reads a switch; ask the settings of the package`);
    });
}

function read(path) {
  return readFileSync(join(root, path), 'utf8');
}

function* sources(directory) {
  if (!existsSync(directory)) return;
  for (const entry of readdirSync(directory, { withFileTypes: true })) {
    const path = join(directory, entry.name);
    if (entry.isDirectory()) yield* sources(path);
    else if (/\.m?ts$|\.mjs$/.test(entry.name)) yield path;
  }
}
