// Builds the addon with node-gyp into prebuilds/<platform>-<arch>/hip.node, and skips when nothing that it depends on has
// changed (sources, this script, node's ABI and headers, the compiler). Downloads nothing: node's own headers are used.
//
// binding.gyp stands in native/, where no package manager takes it for an install script.
//
//   node scripts/build.mjs [--force]
//
// Environment: npm_config_nodedir (a prefix with include/node), CXX.
import { execFileSync, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  writeFileSync,
} from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const require = createRequire(import.meta.url);
const requireOfProject = createRequire(join(process.cwd(), 'package.json'));
const target = join(root, 'prebuilds', `${process.platform}-${process.arch}`, 'hip.node');
const stampFile = `${target}.stamp`;

function fail(message) {
  console.error(`@x/hip: ${message}`);
  process.exit(1);
}

/** A file of a package that the build needs; the package depends on none, so that it may stand in the caller's project. */
function resolveTool(file) {
  for (const from of [require, requireOfProject]) {
    try {
      return from.resolve(file);
    } catch {
      // The next place, or the message below.
    }
  }
  return fail(`${file.split('/')[0]} is not installed. Run: npm install --no-save node-gyp node-addon-api`);
}

/** A prefix whose include/node holds this node's headers. */
function findNodedir() {
  const prefixes = [process.env.npm_config_nodedir, dirname(dirname(realpathSync(process.execPath)))].filter(Boolean);
  const found = prefixes.find((prefix) => existsSync(join(prefix, 'include', 'node', 'node_api.h')));
  if (found) return found;
  return fail(
    `node's headers were not found under ${prefixes.map((p) => `${p}/include/node`).join(' or ')}. Install them (Debian: libnode-dev or the nodejs.org archive) or set npm_config_nodedir to a prefix that has them`,
  );
}

function compilerVersion() {
  const compiler = process.env.CXX ?? 'g++';
  try {
    return execFileSync(compiler, ['--version'], { encoding: 'utf8' }).split('\n')[0];
  } catch {
    return fail(`the C++ compiler '${compiler}' cannot be run. Install g++ or clang++ (C++17), or set CXX`);
  }
}

function filesUnder(directory) {
  return readdirSync(directory, { withFileTypes: true, recursive: true })
    .filter((entry) => entry.isFile() && /\.(cc|h)$/.test(entry.name) && !entry.name.includes('test'))
    .map((entry) => join(entry.parentPath ?? entry.path, entry.name))
    .sort();
}

function stampOf(nodedir) {
  const hash = createHash('sha256');
  const addonApi = resolveTool('node-addon-api/package.json');
  hash.update(
    [process.version, process.versions.modules, process.platform, process.arch, nodedir, compilerVersion()].join('\n'),
  );
  const inputs = [
    ...filesUnder(join(root, 'native')),
    join(root, 'native', 'binding.gyp'),
    fileURLToPath(import.meta.url),
    addonApi,
  ];
  inputs.push(join(nodedir, 'include', 'node', 'node_version.h'), join(nodedir, 'include', 'node', 'js_native_api.h'));
  for (const file of inputs) hash.update(file.slice(root.length)).update(readFileSync(file));
  return hash.digest('hex');
}

function build(nodedir) {
  const nodeGyp = resolveTool('node-gyp/bin/node-gyp.js');
  // binding.gyp asks for node-addon-api from native/.
  const env = { ...process.env, NODE_PATH: dirname(dirname(resolveTool('node-addon-api/package.json'))) };
  const args = [nodeGyp, 'rebuild', '--release', '--jobs=max', `--nodedir=${nodedir}`];
  const result = spawnSync(process.execPath, args, { cwd: join(root, 'native'), stdio: 'inherit', env });
  if (result.status !== 0) fail(`node-gyp failed (${result.signal ?? `exit ${result.status}`}); its output is above`);
  mkdirSync(dirname(target), { recursive: true });
  // A process that has the old file mapped keeps it: the new one takes its name.
  copyFileSync(join(root, 'native', 'build', 'Release', 'hip.node'), `${target}.new`);
  renameSync(`${target}.new`, target);
}

const nodedir = findNodedir();
const stamp = stampOf(nodedir);
const current = existsSync(target) && existsSync(stampFile) && readFileSync(stampFile, 'utf8') === stamp;
if (current && !process.argv.includes('--force')) {
  console.log('@x/hip: the addon is up to date');
} else {
  build(nodedir);
  writeFileSync(stampFile, stamp);
  console.log(`@x/hip: built ${target.slice(root.length + 1)}`);
}
