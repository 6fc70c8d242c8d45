/**
 * Which clang++ compiles kernels: the newest of version 19 or later among `clang++` and `clang++-N` on PATH and ROCm's own
 * (ROCM_PATH, /opt/rocm), or the one that X_CLANG names. Used by `compileProgram`, by the kernel build and by the set-up,
 * which runs before anything is installed: hence plain JavaScript on Node's own modules. Types are in clang.d.mts.
 */

import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, realpathSync } from 'node:fs';
import { basename, delimiter, dirname, isAbsolute, join } from 'node:path';
import { clangPath } from './settings.mjs';

export const OLDEST_CLANG = 19;

export function searchClang({ rocmFirst = false } = {}) {
  const named = clangPath();
  if (named) {
    const clang = probe(named);
    if (!clang.reason) return { ...clang, candidates: [clang], searched: [named] };
    const reason =
      `X_CLANG=${named} cannot be used: ${clang.reason}. Set it to the path of a clang++ of version ${OLDEST_CLANG} ` +
      'or later, or unset it to search PATH and ROCm';
    return { candidates: [clang], searched: [named], reason };
  }
  const rocm = rocmPaths();
  const searched = [`clang++ and clang++-N with N from ${OLDEST_CLANG} on PATH`, ...rocm];
  const fromRocm = distinct(rocm.filter((path) => existsSync(path))).map(probe);
  const fromPath = distinct(pathCandidates()).map(probe);
  const all = [...fromPath, ...fromRocm];
  const best = (rocmFirst && newest(fromRocm)) || newest(all);
  const candidates = all.map((candidate) =>
    candidate.reason || candidate === best ? candidate : { ...candidate, reason: whyNot(candidate, best) },
  );
  if (best) return { ...best, candidates, searched };
  const refused = candidates.map(({ path, reason }) => `${path}: ${reason}`).join('; ');
  const reason =
    `no clang++ of version ${OLDEST_CLANG} or later was found (${refused || `looked for ${searched.join(', ')}`}). ` +
    'Install one (Debian, Ubuntu: apt install clang-22; any version from 19 on will do), or set X_CLANG to its path';
  return { candidates, searched, reason };
}

/** One that does not answer for half a minute is as good as none. */
const PROBE_MS = 30_000;

function probe(path) {
  const { status, signal, error, stdout } = spawnSync(path, ['--version'], { encoding: 'utf8', timeout: PROBE_MS });
  if (error) return { path, reason: `it cannot be run (${error.code ?? error.message})` };
  if (status !== 0) return { path, reason: `\`--version\` ended with ${signal ?? `exit status ${status}`}` };
  const version = stdout.split('\n')[0].trim();
  const release = /clang version (\d+(?:\.\d+)*)/.exec(version)?.[1];
  if (!release) return { path, version, reason: `it is no clang: \`--version\` says '${version}'` };
  const major = Number.parseInt(release, 10);
  if (major >= OLDEST_CLANG) return { path, version, release, major };
  return { path, version, release, major, reason: `version ${release} is older than ${OLDEST_CLANG}` };
}

/** In the order of PATH, in a directory the plain name first. Old versions too, to say why they are not taken. */
function pathCandidates() {
  const directories = (process.env.PATH ?? '').split(delimiter).filter(isAbsolute);
  return directories.flatMap((directory) => {
    let names = [];
    try {
      names = readdirSync(directory).filter((name) => /^clang\+\+(-\d+)?$/.test(name));
    } catch {
      // A directory on PATH need not exist or be readable.
    }
    return names.sort().map((name) => join(directory, name));
  });
}

/** /bin may be another name of /usr/bin. Files are not followed: several names may be links to one wrapper (ccache). */
function distinct(paths) {
  const seen = new Set();
  return paths.filter((path) => {
    const key = join(realpathSync(dirname(path)), basename(path));
    return !seen.has(key) && seen.add(key);
  });
}

function rocmPaths() {
  const roots = new Set([process.env.ROCM_PATH, '/opt/rocm'].filter(Boolean));
  return [...roots].flatMap((root) => [join(root, 'llvm/bin/clang++'), join(root, 'lib/llvm/bin/clang++')]);
}

function newest(candidates) {
  return candidates
    .filter(({ reason }) => !reason)
    .reduce((best, next) => (best && compare(next, best) <= 0 ? best : next), undefined);
}

function compare(a, b) {
  return a.release.localeCompare(b.release, 'en', { numeric: true });
}

function whyNot(candidate, best) {
  const order = compare(candidate, best);
  if (order === 0) return `${best.path} has the same version and comes first`;
  return order < 0 ? `${best.path} is newer` : `ROCm's ${best.path} comes first for AMD's GPUs`;
}

/** Which tool of its LLVM clang would run; one of an older LLVM that happens to be on PATH does not know the targets. */
export function toolOf(clang, name) {
  const { stdout } = spawnSync(clang.path, [`-print-prog-name=${name}`], { encoding: 'utf8', timeout: PROBE_MS });
  const path = (stdout ?? '').trim();
  if (!isAbsolute(path) || !existsSync(path)) return undefined;
  const version = spawnSync(path, ['--version'], { encoding: 'utf8', timeout: PROBE_MS }).stdout ?? '';
  const major = Number(/(?:LLD|LLVM version) (\d+)/.exec(version)?.[1] ?? 0);
  return major >= clang.major ? path : undefined;
}
