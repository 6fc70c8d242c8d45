// TypeScript for Node's own loader, so that tests import modules as programs do: vite's way, a function around each module that reads
// every import as a property, takes nearly a second a file and a quarter of what tests of the engine take. Each module is translated once, into
// .cache/test/js, with a map by which errors name its own lines. A Node without `registerHooks` has vite's way. `vi.mock` and
// `vi.resetModules` are vite's and do nothing here: take a copy by `bundled` of @x/testing/bundle.
import { existsSync, mkdirSync, readFileSync, renameSync, statSync, writeFileSync } from 'node:fs';
import module from 'node:module';
import { basename, dirname, join, relative } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { filesBelow } from './files-below.mjs';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const OUT = join(ROOT, '.cache/test/js');
const REGISTERED = Symbol.for('x.test.typescript');
const OPTIONS = {
  loader: 'ts',
  format: 'esm',
  target: 'node20',
  sourcemap: 'inline',
  tsconfigRaw: { compilerOptions: { verbatimModuleSyntax: true, useDefineForClassFields: true } },
};

/** Whether this Node can import TypeScript so. */
export const available = typeof module.registerHooks === 'function';

/** Translates what is new or has changed. */
export async function prepare() {
  const files = ['packages', 'tools'].flatMap((folder) => filesBelow(join(ROOT, folder)));
  await Promise.all(
    files.map(async (path) => {
      if (!/(?<!\.d)\.ts$/.test(path)) return;
      if (!fresh(path)) keep(path, (await esbuild().transform(readFileSync(path, 'utf8'), optionsFor(path))).code);
    }),
  );
}

const placeOf = (path) => `${join(OUT, relative(ROOT, path))}.js`;
// The map's source is beside the module.
const optionsFor = (path) => ({ ...OPTIONS, sourcefile: basename(path) });
// Loaded when it is needed: it takes the directory of that moment for its own, and a test may change it before it asks for it too.
const esbuild = () => module.createRequire(import.meta.url)('esbuild');

function fresh(path) {
  const place = statSync(placeOf(path), { throwIfNoEntry: false });
  return place !== undefined && place.mtimeMs > statSync(path).mtimeMs;
}

// Whole or not at all, for other processes may read it.
function keep(path, code) {
  const place = placeOf(path);
  mkdirSync(dirname(place), { recursive: true });
  writeFileSync(`${place}.${process.pid}`, code);
  renameSync(`${place}.${process.pid}`, place);
}

function translated(path) {
  if (!fresh(path)) keep(path, esbuild().transformSync(readFileSync(path, 'utf8'), optionsFor(path)).code);
  return readFileSync(placeOf(path), 'utf8');
}

const found = new Map();

/** The module that `base` names: itself, with its extension left out, or a folder's index. */
function moduleAt(base) {
  if (!found.has(base)) {
    const paths = [base, `${base}.ts`, join(base, 'index.ts')];
    found.set(
      base,
      paths.find((path) => /\.(ts|json)$/.test(path) && existsSync(path)),
    );
  }
  return found.get(base);
}

/** What sources import under these names and tests have something else for: vitest.config.ts says the same to vite. */
const INSTEAD = { './thread-program': join(ROOT, 'packages/testing/src/thread-program') };

// vitest asks for a test file again under another address each time.
const ASKED = /(%3F|\?)vitest=/;

function resolve(specifier, context, next) {
  const parent = context.parentURL ?? '';
  if (/^file:.*\.ts(%3F|\?|$)/.test(specifier)) {
    return { url: specifier.replace(ASKED, '?vitest='), format: 'module', shortCircuit: true };
  }
  const own = specifier.startsWith('@x/') ? specifier.slice('@x/'.length).split('/') : undefined;
  if (!own && !(specifier.startsWith('.') && /\.ts(\?|$)/.test(parent))) return next(specifier, context);
  const base = own
    ? join(ROOT, 'packages', own[0], 'src', ...own.slice(1))
    : (INSTEAD[specifier] ?? join(dirname(fileURLToPath(parent)), specifier));
  const path = moduleAt(base);
  if (!path) return next(specifier, context);
  const url = pathToFileURL(path).href;
  return { url: path.endsWith('.json') ? `${url}?named` : url, format: 'module', shortCircuit: true };
}

function load(url, context, next) {
  if (!url.startsWith('file:')) return next(url, context);
  if (url.endsWith('.json?named')) return { format: 'module', source: namedJson(url), shortCircuit: true };
  const path = /\.ts(\?|$)/.test(url) ? fileURLToPath(url) : undefined;
  if (!path?.startsWith(ROOT) || path.includes('/node_modules/')) return next(url, context);
  return { format: 'module', source: translated(path), shortCircuit: true };
}

/** As bundlers give it: a name for each key that can be one, and all as the default. */
function namedJson(url) {
  const value = JSON.parse(readFileSync(fileURLToPath(url), 'utf8'));
  const names = Object.keys(value).filter((key) => /^[a-zA-Z_$][\w$]*$/.test(key) && key !== 'default');
  const constants = names.map((key, i) => `const v${i} = all.${key};`);
  const exported = ['all as default', ...names.map((key, i) => `v${i} as ${key}`)];
  return `const all = ${JSON.stringify(value)};\n${constants.join('\n')}\nexport { ${exported.join(', ')} };\n`;
}

// Of a process that many files share, each asks again.
if (available && !globalThis[REGISTERED]) {
  globalThis[REGISTERED] = true;
  module.registerHooks({ resolve, load });
}
