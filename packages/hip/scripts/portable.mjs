// What a binary may ask of the machine that runs it, and how it is linked so that it asks no more.
//
// A linker binds a symbol to the newest version that the build machine's glibc has of it. Here it sees libraries without
// code in their place, which offer each symbol in the newest version that glibc 2.28 (RHEL 8, Debian 10, Amazon Linux 2023)
// has too; the C++ runtime is linked in. A symbol that glibc 2.28 lacks is then an error of the link.
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { readElf } from './elf.mjs';

/** The newest versions that a binary for glibc may ask for. */
export const NEWEST = { GLIBC: [2, 28], GLIBCXX: [3, 4, 22], CXXABI: [1, 3, 9], GCC: [7, 0, 0] };

/** Libraries that every process of Node has loaded, or that come with glibc. */
const LIBRARIES = {
  gnu: /^(libc\.so\.6|libm\.so\.6|libmvec\.so\.1|libdl\.so\.2|libpthread\.so\.0|libgcc_s\.so\.1|ld-linux-(x86-64\.so\.2|aarch64\.so\.1))$/,
  musl: /^(libc\.so|libc\.musl-x86_64\.so\.1)$/,
};

/**
 * What is too new, or not there, on the oldest machine that a binary is for.
 *
 * @param {string} path
 * @param {'gnu' | 'musl'} libc
 * @returns {string[]} One line a finding; empty when it is portable.
 */
export function portabilityProblems(path, libc) {
  const { needed, symbols } = readElf(path);
  const problems = needed.filter((name) => !LIBRARIES[libc].test(name)).map((name) => `it needs ${name}`);
  for (const { name, version, defined } of symbols) {
    if (defined || version === undefined) continue;
    if (libc === 'musl') problems.push(`${name} has the version ${version}, and musl has none`);
    else if (!isOld(version))
      problems.push(`${name} has the version ${version}, and the newest allowed is ${allowed(version)}`);
  }
  return problems;
}

function isOld(version) {
  const [family, numbers] = split(version);
  const limit = NEWEST[family];
  if (!limit || numbers.length === 0) return false;
  for (let i = 0; i < Math.max(limit.length, numbers.length); i++) {
    const difference = (numbers[i] ?? 0) - (limit[i] ?? 0);
    if (difference !== 0) return difference < 0;
  }
  return true;
}

function allowed(version) {
  const [family] = split(version);
  return NEWEST[family] ? `${family}_${NEWEST[family].join('.')}` : 'none of that name';
}

function split(version) {
  const at = version.lastIndexOf('_');
  const numbers = version.slice(at + 1);
  return [version.slice(0, at), /^\d+(\.\d+)*$/.test(numbers) ? numbers.split('.').map(Number) : []];
}

function newer(a, b) {
  const [x, y] = [split(a)[1], split(b)[1]];
  for (let i = 0; i < Math.max(x.length, y.length); i++) if (x[i] !== y[i]) return (x[i] ?? -1) > (y[i] ?? -1);
  return false;
}

/**
 * Writes the libraries to link against and returns their paths, or a string that says why it cannot be done.
 *
 * @param {string} compiler g++ or clang++ for the target.
 * @param {string} directory Where they are written.
 */
export function writeOldLibraries(compiler, directory) {
  mkdirSync(directory, { recursive: true });
  const offered = {};
  for (const name of ['libc.so.6', 'libm.so.6', 'libgcc_s.so.1', 'ld-linux-x86-64.so.2', 'ld-linux-aarch64.so.1']) {
    const path = spawnSync(compiler, [`-print-file-name=${name}`], { encoding: 'utf8' }).stdout.trim();
    // A name that the compiler does not find comes back as it is.
    if (path === name || !existsSync(path)) continue;
    for (const [symbol, chosen] of oldestCommon(readElf(path).symbols)) {
      const library = homeOf(symbol, name, chosen);
      offered[library] ??= [];
      offered[library].push([symbol, chosen]);
    }
  }
  if (!offered['libc.so.6']) return `${compiler} has no libc.so.6 (glibc) to link with`;
  if (!offered['libgcc_s.so.1']) return `${compiler} has no libgcc_s.so.1 to link with`;
  const paths = [];
  for (const [library, symbols] of Object.entries(offered)) {
    const path = join(directory, library);
    const failure = writeLibrary(compiler, path, library, symbols);
    if (failure) return failure;
    paths.push(path);
  }
  return paths;
}

/** Of each symbol the newest version that is not too new. */
function oldestCommon(symbols) {
  const chosen = new Map();
  const defaults = new Map();
  for (const symbol of symbols) {
    const { name, version, defined, type } = symbol;
    if (!defined || version === undefined || !['function', 'object', 'none', 'other'].includes(type)) continue;
    if (symbol.isDefault) defaults.set(name, version);
    if (!isOld(version)) continue;
    const known = chosen.get(name);
    if (!known || newer(version, known.version)) chosen.set(name, symbol);
  }
  for (const [name, symbol] of chosen) chosen.set(name, { ...symbol, moved: defaults.get(name) !== symbol.version });
  return chosen;
}

/** glibc 2.34 took libdl and libpthread into libc; before, their symbols are found only where those libraries are named. */
function homeOf(symbol, library, { moved }) {
  if (library !== 'libc.so.6' || !moved) return library;
  if (/^dl(open|close|sym|vsym|error|addr|addr1|info|mopen)$/.test(symbol)) return 'libdl.so.2';
  return /^(pthread|sem)_/.test(symbol) ? 'libpthread.so.0' : library;
}

function writeLibrary(compiler, path, name, symbols) {
  const versions = new Set(symbols.map(([, { version }]) => version));
  const lines = symbols.flatMap(([symbol, { version, type, size }], i) => [
    `.globl s${i}`,
    `.type s${i}, ${type === 'object' ? '%object' : '%function'}`,
    ...(type === 'object' ? [`.size s${i}, ${size}`] : []),
    `.symver s${i}, ${symbol}@@@${version}`,
    `s${i}:`,
    `.zero ${type === 'object' ? Math.max(size, 1) : 1}`,
  ]);
  writeFileSync(`${path}.s`, `.data\n${lines.join('\n')}\n.section .note.GNU-stack,"",%progbits\n`);
  writeFileSync(`${path}.map`, [...versions].map((version) => `${version} { };`).join('\n'));
  const flags = ['-shared', '-nostdlib', `-Wl,-soname,${name}`, `-Wl,--version-script,${path}.map`];
  const { status, stderr } = spawnSync(compiler, [...flags, `${path}.s`, '-o', path], { encoding: 'utf8' });
  return status === 0
    ? undefined
    : `${compiler} cannot link a library in place of ${name}: ${stderr.trim().split('\n')[0]}`;
}
