// Builds the addon into prebuilds/<platform>-<arch>/hip.node, and skips when nothing that it depends on has changed (sources, these
// scripts, node's headers, the compiler). Downloads nothing: node's own headers and the machine's compiler are used.
//
//   node scripts/build.mjs [--target linux-x64-gnu|linux-arm64-gnu|linux-x64-musl] [--portable] [--force]
//
// The result runs wherever Node 20 does: glibc 2.28 and later, without a C++ library (scripts/portable.mjs). Where the
// machine's tools do not allow that, it is built for this machine alone and says so; with --portable that is an error.
//
// Environment: npm_config_nodedir (a prefix with include/node), CXX.
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { createRequire } from 'node:module';
import { availableParallelism } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { readElf } from './elf.mjs';
import { portabilityProblems, writeOldLibraries } from './portable.mjs';
import { nativeTarget, TARGETS } from './targets.mjs';

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const native = join(root, 'native');
const require = createRequire(import.meta.url);
const requireOfProject = createRequire(join(process.cwd(), 'package.json'));

const COMPILE = [
  ...['-std=c++17', '-O3', '-fPIC', '-fexceptions', '-fvisibility=hidden', '-fvisibility-inlines-hidden'],
  ...['-ffunction-sections', '-fdata-sections', '-Wall', '-Wextra', '-Wno-unused-parameter'],
  ...['-DNAPI_VERSION=9', '-DNODE_ADDON_API_CPP_EXCEPTIONS_ALL', '-DNODE_API_SWALLOW_UNTHROWABLE_EXCEPTIONS'],
];
const LINK = ['-shared', '-s', '-Wl,--gc-sections', '-Wl,-z,noexecstack', '-Wl,-z,relro'];
// The C++ runtime inside is nobody else's: only what Node asks for can be seen from outside.
const EXPORTS = '{ global: napi_register_module_v1; node_api_module_get_api_version_v1; local: *; };\n';

function fail(message) {
  console.error(`@x/hip: ${message}`);
  process.exit(1);
}

function option() {
  try {
    const { values } = parseArgs({
      options: { target: { type: 'string' }, portable: { type: 'boolean' }, force: { type: 'boolean' } },
    });
    return values;
  } catch (error) {
    return fail(`${error.message}. Use: node scripts/build.mjs [--target NAME] [--portable] [--force]`);
  }
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
  return fail(`${file.split('/')[0]} is not installed. Run: npm install --no-save node-addon-api`);
}

/** The directory of this node's headers. */
function findHeaders() {
  const prefixes = [process.env.npm_config_nodedir, dirname(dirname(realpathSync(process.execPath)))].filter(Boolean);
  const found = prefixes
    .map((prefix) => join(prefix, 'include/node'))
    .find((path) => existsSync(join(path, 'node_api.h')));
  if (found) return found;
  return fail(
    `node's headers were not found under ${prefixes.map((p) => `${p}/include/node`).join(' or ')}. Install them (Debian: libnode-dev or the nodejs.org archive) or set npm_config_nodedir to a prefix that has them`,
  );
}

function compilerVersion(compiler) {
  const arguments_ = /(^|\/)zig$/.test(compiler) ? ['version'] : ['--version'];
  try {
    return execFileSync(compiler, arguments_, { encoding: 'utf8' }).split('\n')[0];
  } catch {
    return fail(`the C++ compiler '${compiler}' cannot be run. Install ${compiler} (C++17), or set CXX to another`);
  }
}

function sources() {
  return ['.', 'host'].flatMap((directory) =>
    readdirSync(join(native, directory))
      .filter((file) => file.endsWith('.cc'))
      .sort()
      .map((file) => join(directory, file)),
  );
}

function stampOf({ name, compiler, headers, addonApi, portable }) {
  const hash = createHash('sha256');
  hash.update([name, compiler, compilerVersion(compiler), portable, ...COMPILE, ...LINK].join('\n'));
  const inNative = ['.', 'host'].flatMap((directory) =>
    readdirSync(join(native, directory))
      .filter((file) => /\.(cc|h)$/.test(file))
      .map((file) => join(native, directory, file)),
  );
  const scripts = readdirSync(join(root, 'scripts')).map((file) => join(root, 'scripts', file));
  for (const file of [...inNative, ...scripts].sort()) hash.update(file.slice(root.length)).update(readFileSync(file));
  for (const file of [join(headers, 'js_native_api.h'), join(addonApi, 'napi.h')]) hash.update(readFileSync(file));
  return hash.digest('hex');
}

/** One compilation a source, as many at once as there are cores. Returns the objects; ends the program where one fails. */
async function compileAll({ compiler, target, headers, addonApi, build }) {
  const files = sources();
  const objects = files.map((file) => join(build, `${file.replace(/[/\\]/g, '-')}.o`));
  let next = 0;
  const worker = async () => {
    while (next < files.length) {
      const i = next++;
      const args = [...target.arguments, ...COMPILE, `-I${headers}`, `-I${addonApi}`, '-c', files[i], '-o', objects[i]];
      const status = await new Promise((resolve) => {
        spawn(compiler, args, { cwd: native, stdio: ['ignore', 'inherit', 'inherit'] })
          .on('error', () => resolve(1))
          .on('close', resolve);
      });
      if (status !== 0) fail(`${compiler} failed on native/${files[i]}; its output is above`);
    }
  };
  await Promise.all(Array.from({ length: availableParallelism() }, worker));
  return objects;
}

/** Links what runs on old machines too, or says in a line why that is not possible here. */
function linkPortable({ compiler, target, objects, build, output }) {
  const map = join(build, 'exports.map');
  writeFileSync(map, EXPORTS);
  const link = (libraries) => {
    const args = [...target.arguments, ...LINK, `-Wl,--version-script=${map}`, ...objects, ...libraries, '-o', output];
    const { status, stderr } = spawnSync(compiler, args, { encoding: 'utf8' });
    return status === 0 ? undefined : stderr.trim();
  };
  if (target.libc === 'musl') return link([]);
  const old = writeOldLibraries(compiler, join(build, 'old'));
  if (typeof old === 'string') return old;
  const runtime = execFileSync(compiler, ['-print-file-name=libstdc++.a'], { encoding: 'utf8' }).trim();
  if (!existsSync(runtime)) return `${compiler} has no libstdc++.a`;
  return link(['-nodefaultlibs', runtime, ...old, '-lgcc']);
}

const options = option();
const name = options.target ?? nativeTarget();
// Where no package is shipped (another processor or libc), the sources may still build.
const target = TARGETS[name] ?? {
  directory: `${process.platform}-${process.arch}`,
  libc: undefined,
  machine: process.arch,
  compilers: ['g++'],
  arguments: [],
};
if (options.target && !TARGETS[options.target])
  fail(`there is no target '${options.target}'. Use one of ${Object.keys(TARGETS).join(', ')}`);
if (!name) fail(`the addon is for Linux; this is ${process.platform}. The js device of @x/core needs none`);
const compiler = process.env.CXX ?? (name === nativeTarget() ? 'g++' : target.compilers[0]);
const headers = findHeaders();
const addonApi = dirname(resolveTool('node-addon-api/package.json'));
const output = join(root, 'prebuilds', target.directory, 'hip.node');
const stamp = stampOf({ name, compiler, headers, addonApi, portable: options.portable ?? false });
if (
  !options.force &&
  existsSync(output) &&
  existsSync(`${output}.stamp`) &&
  readFileSync(`${output}.stamp`, 'utf8') === stamp
) {
  console.log(`@x/hip: the addon for ${name} is up to date`);
} else {
  const build = join(native, 'build', name);
  rmSync(build, { recursive: true, force: true });
  mkdirSync(build, { recursive: true });
  mkdirSync(dirname(output), { recursive: true });
  const arguments_ = target.arguments.length > 0 && !/(^|\/)zig$/.test(compiler) ? [] : target.arguments;
  const job = {
    compiler,
    target: { ...target, arguments: arguments_ },
    headers,
    addonApi,
    build,
    output: `${output}.new`,
  };
  const objects = await compileAll(job);
  let problem = target.libc ? linkPortable({ ...job, objects }) : `nothing is known of ${name}`;
  if (!problem) problem = portabilityProblems(job.output, target.libc).join('; ') || undefined;
  if (problem && options.portable) fail(`the addon for ${name} is not portable: ${problem}`);
  if (problem) {
    console.error(`@x/hip: this addon runs on this machine and newer ones only: ${problem}`);
    const args = [...arguments_, ...LINK, ...objects, '-ldl', '-lpthread', '-o', job.output];
    if (spawnSync(compiler, args, { stdio: 'inherit' }).status !== 0) fail('linking failed; the output is above');
  }
  const { machine } = readElf(job.output);
  if (machine !== target.machine) fail(`${compiler} builds for ${machine}, and ${name} is for ${target.machine}`);
  // A process that has the old file mapped keeps it: the new one takes its name.
  renameSync(job.output, output);
  writeFileSync(`${output}.stamp`, stamp);
  console.log(`@x/hip: built ${output.slice(root.length + 1)}`);
}
