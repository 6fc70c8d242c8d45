// System packages: a clang with the AMD and host targets, its linker, AMD's device libraries, a C++ compiler for the addon,
// and for the tests the disassembler of that clang, a browser, a server for queues, and a gateway.
// Installed with apt when root on Debian or Ubuntu; otherwise the exact command is printed.
import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import { OLDEST_CLANG, searchClang, toolOf } from '../../packages/hip/src/clang.mjs';
import { run, say } from './steps.mjs';

const CLANG_VERSIONS = [22, 21, 20, 19];
const DEVICE_LIBRARIES = [
  '/usr/lib/x86_64-linux-gnu/amdgcn/bitcode',
  '/opt/rocm/amdgcn/bitcode',
  '/usr/lib/clang',
  '/usr/lib/rocm',
];

/** Promises: that what compiles is there, and that the rest is, which is installed behind it. */
export function ensureSystemPackages({ purpose, targets }) {
  const required = missingPackages(targets, purpose);
  // For tests only. Debian's HIP runtime finds no device on most machines, but how that is reported is checked; with
  // OpenBLAS the products of the cpu device run through a real library; a browser runs the js device; Redis holds a queue
  // (redis-tools has the server as redis-check-rdb, and starts none by itself), HAProxy stands before servers. Without these
  // their tests do less.
  const optional = {
    libamdhip64: 'libamdhip64-5',
    libopenblas: 'libopenblas0-pthread',
    chromium: 'chromium',
    'redis-check-rdb': 'redis-tools',
    haproxy: 'haproxy',
  };
  const absent = Object.keys(optional).filter((name) => !(name.startsWith('lib') ? hasLibrary(name) : has(name)));
  const wanted = purpose === 'test' && isDebian() ? absent.map((name) => optional[name]) : [];
  if (required.length === 0 && (wanted.length === 0 || !isRoot())) {
    return { compilers: Promise.resolve(), rest: Promise.resolve() };
  }
  if (!isDebian()) {
    fail(
      required,
      'Install a clang of version 19 or newer with lld (and ROCm device libraries for AMD targets, and llvm-objdump for the tests) and g++.',
    );
  }
  if (!isRoot()) fail(required, `Run: sudo apt-get install -y ${resolve(required).join(' ')}`);
  say('system packages from the distribution ...');
  const compilers = run('apt-get', ['update', '-qq']).then(() => install(resolve(required)));
  return { compilers, rest: compilers.then(() => install(wanted.filter(isAvailable))) };
}

async function install(names) {
  if (names.length === 0) return;
  const options = ['-y', '-qq', '--no-install-recommends'];
  await run('apt-get', ['install', ...options, ...names], { DEBIAN_FRONTEND: 'noninteractive' });
}

// Names of what is missing; `clang`, `lld` and `llvm` stand for the newest version that the distribution has. The compilers
// are those that tools/kernels/toolchain.ts takes: ROCm's before others for AMD targets.
function missingPackages(targets, purpose) {
  const missing = new Set();
  const amd =
    /gfx|all|release/.test(targets) || (targets.includes('native') && existsSync('/sys/class/kfd/kfd/topology/nodes'));
  for (const rocmFirst of amd ? [false, true] : [false]) {
    const clang = searchClang({ rocmFirst });
    if (clang.path === undefined) {
      // Installing another would not help: it is not this one that is taken.
      if (process.env.X_CLANG) fail([`clang ${OLDEST_CLANG} or later`], `${clang.reason}.`);
      missing.add('clang').add('lld');
      if (purpose === 'test') missing.add('llvm');
      continue;
    }
    if (!toolOf(clang, 'ld.lld')) missing.add(`lld-${clang.major}`);
    if (purpose === 'test' && !toolOf(clang, 'llvm-objdump')) missing.add(`llvm-${clang.major}`);
  }
  if (!has('g++')) missing.add('g++');
  if (amd && !process.env.ROCM_PATH && !DEVICE_LIBRARIES.some((path) => holdsOcml(path)))
    missing.add('rocm-device-libs');
  return [...missing];
}

function resolve(packages) {
  const version = CLANG_VERSIONS.find((candidate) => isAvailable(`clang-${candidate}`)) ?? CLANG_VERSIONS[0];
  return packages.map((name) => (['clang', 'lld', 'llvm'].includes(name) ? `${name}-${version}` : name));
}

function has(command) {
  return spawnSync('sh', ['-c', `command -v ${command}`]).status === 0;
}

function hasLibrary(name) {
  return spawnSync('sh', ['-c', `ldconfig -p 2>/dev/null | grep -q ${name}`]).status === 0;
}

function holdsOcml(path) {
  if (existsSync(`${path}/ocml.bc`)) return true;
  if (!existsSync(path)) return false;
  return readdirSync(path).some(
    (entry) =>
      existsSync(`${path}/${entry}/amdgcn/bitcode/ocml.bc`) ||
      existsSync(`${path}/${entry}/lib/amdgcn/bitcode/ocml.bc`),
  );
}

function isAvailable(name) {
  return /Candidate: (?!\(none\))/.test(spawnSync('apt-cache', ['policy', name], { encoding: 'utf8' }).stdout ?? '');
}

function isDebian() {
  return existsSync('/etc/debian_version') && has('apt-get');
}

function isRoot() {
  return process.getuid?.() === 0;
}

function fail(required, advice) {
  say(`missing: ${required.join(', ')}. ${advice}`);
  process.exit(1);
}
