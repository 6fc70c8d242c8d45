/**
 * The directory in which compiled kernels are kept between processes. What is read from it is executed, so it is trusted
 * only as far as nobody else can have written it: directory and file must belong to this user or to root and be writable
 * by their owner alone, and a link is followed only where one of these made it. The open file is what is checked, so that
 * it cannot change between the check and the read. What fails is not loaded, with a warning; the kernel is compiled.
 *
 * Files are the 64 hex digits of the object's hash followed by the object. They are written under a random name and
 * renamed, so that processes may write the same one at once.
 */

import { createHash, randomBytes } from 'node:crypto';
import {
  chmodSync,
  closeSync,
  constants,
  existsSync,
  fchmodSync,
  fstatSync,
  lstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  type Stats,
  statSync,
  writeFileSync,
} from 'node:fs';
import { homedir, userInfo } from 'node:os';
import { dirname, isAbsolute, join } from 'node:path';
import { settings, warnOnce } from '@x/core';
import { debug } from './debug';
import { messageOf } from './errors';

/** What was found under a key; `refused` is a file or directory that somebody else may have written. */
export type CacheRead = { state: 'hit'; bytes: Uint8Array } | { state: 'miss' | 'damaged' | 'refused' };

/** Temporary files older than this were left by a process that died while it wrote. */
const ABANDONED_MS = 60 * 60 * 1000;
const TEMPORARY = /^[0-9a-f]{64}\..+\.tmp$/;
/** Links are not followed, and a pipe in the file's place does not wait for a writer. Zero where the system has no such flag. */
const READ = constants.O_RDONLY | (constants.O_NOFOLLOW ?? 0) | (constants.O_NONBLOCK ?? 0);

/** Directories that were looked through for abandoned files. */
const cleaned = new Set<string>();

class Refusal extends Error {}

/**
 * Where compiled objects are kept: `X_CACHE_DIR`, else `x-candle` in the user's cache directory (`XDG_CACHE_HOME`, else
 * `.cache` in the home directory). Undefined where there is none: `X_CACHE_DIR` is relative, or the user has no home.
 */
export function cacheDirectory(): string | undefined {
  const named = settings.cacheDirectory();
  if (named) return isAbsolute(named) ? named : undefined;
  const shared = process.env.XDG_CACHE_HOME;
  // Of relative paths the XDG specification says that they are to be ignored.
  if (shared && isAbsolute(shared)) return join(shared, 'x-candle');
  const home = [homedir, () => userInfo().homedir].map(attempt).find((path) => path && isAbsolute(path));
  return home && join(home, '.cache', 'x-candle');
}

/** What `get` gives, or undefined: a user without an entry in the system's list has no home. */
function attempt(get: () => string): string | undefined {
  try {
    return get();
  } catch {
    return undefined;
  }
}

export function readCache(key: string): CacheRead {
  let file: Buffer;
  try {
    const directory = place();
    if (!existsSync(directory)) return { state: 'miss' };
    checkDirectory(directory);
    file = readChecked(join(directory, `${key}.bin`));
  } catch (error) {
    if (!(error instanceof Refusal)) return { state: 'miss' };
    warnOnce('KERNEL_CACHE_REFUSED', error.message);
    return { state: 'refused' };
  }
  const bytes = new Uint8Array(file.subarray(64));
  if (file.length > 64 && hash(bytes) === file.toString('latin1', 0, 64)) return { state: 'hit', bytes };
  debug(1, () => `cache file ${key}.bin is damaged, compiling again`);
  return { state: 'damaged' };
}

/** Whether the object was kept. A directory that cannot be written costs time, not results: a warning. */
export function writeCache(key: string, bytes: Uint8Array): boolean {
  let directory = 'the cache directory';
  let temporary: string | undefined;
  try {
    directory = place();
    makeDirectory(directory);
    checkDirectory(directory);
    removeAbandoned(directory);
    temporary = join(directory, `${key}.${randomBytes(12).toString('hex')}.tmp`);
    writePrivate(temporary, Buffer.concat([Buffer.from(hash(bytes), 'latin1'), bytes]));
    renameSync(temporary, join(directory, `${key}.bin`));
    return true;
  } catch (error) {
    if (temporary) removeQuietly(temporary);
    if (error instanceof Refusal) warnOnce('KERNEL_CACHE_REFUSED', error.message);
    else
      warnOnce(
        'KERNEL_CACHE_UNWRITABLE',
        `compiled kernels cannot be kept in ${directory}: ${messageOf(error)}. ` +
          'Every process compiles them again; set X_CACHE_DIR to a directory that can be written',
        directory,
      );
    return false;
  }
}

/** Forgets which directories were cleaned. */
export function forgetCleaned(): void {
  cleaned.clear();
}

function place(): string {
  const directory = cacheDirectory();
  if (directory) return directory;
  const named = settings.cacheDirectory();
  const why = named
    ? `X_CACHE_DIR=${named} is relative, so that every working directory would have a cache of its own`
    : 'this user has no home directory';
  throw new Refusal(`compiled kernels are not kept: ${why}. Set X_CACHE_DIR to an absolute path`);
}

function checkDirectory(directory: string): void {
  const target = statSync(directory);
  const problem = linkProblem(directory) ?? (target.isDirectory() ? problemOf(target) : undefined);
  if (problem)
    throw new Refusal(
      `the kernel cache ${directory} is not used, because others may have written what it holds: ${problem}. ` +
        'Kernels are compiled again in every process. Remove it, ' +
        `make it yours alone (chown -R "$(id -un)" and chmod -R go-w), or set X_CACHE_DIR to another directory`,
    );
}

/** The bytes of a file that only this user or root can have written. */
function readChecked(path: string): Buffer {
  let file: number;
  try {
    file = openSync(path, READ);
  } catch (error) {
    // What Linux and BSD say of a link that is not to be followed.
    if (/^(ELOOP|EMLINK)$/.test((error as NodeJS.ErrnoException).code ?? '')) throw refusedFile(path, 'it is a link');
    throw error;
  }
  try {
    const stats = fstatSync(file);
    const problem = stats.isFile() ? problemOf(stats) : 'it is no file';
    if (problem) throw refusedFile(path, problem);
    return readFileSync(file);
  } finally {
    closeSync(file);
  }
}

function refusedFile(path: string, problem: string): Refusal {
  return new Refusal(
    `${path} in the kernel cache is not loaded, because others may have written it: ${problem}. ` +
      'The kernel is compiled again and the file replaced; if that is repeated, remove the directory or set X_CACHE_DIR to another',
  );
}

function problemOf(stats: Stats): string | undefined {
  const problem = ownerProblem(stats);
  if (problem || process.geteuid === undefined || (stats.mode & 0o022) === 0) return problem;
  return `mode ${(stats.mode & 0o777).toString(8).padStart(3, '0')} lets group or others write`;
}

/** Of links on the way: who made one decides what lies behind it. */
function linkProblem(path: string): string | undefined {
  const stats = lstatSync(path);
  const problem = stats.isSymbolicLink() ? ownerProblem(stats) : undefined;
  if (problem) return `${path} is a link, and ${problem}`;
  const parent = dirname(path);
  return parent === path ? undefined : linkProblem(parent);
}

/** Systems without user numbers have no such check. */
function ownerProblem(stats: Stats): string | undefined {
  const user = process.geteuid?.();
  if (user === undefined || stats.uid === user || stats.uid === 0) return undefined;
  return `it belongs to user ${stats.uid}, and this process is user ${user}`;
}

/** Each directory that is missing, for this user alone whatever the umask. */
function makeDirectory(directory: string): void {
  if (existsSync(directory)) return;
  makeDirectory(dirname(directory));
  try {
    mkdirSync(directory, { mode: 0o700 });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return; // another process was faster
    throw error;
  }
  if ((lstatSync(directory).mode & 0o777) !== 0o700) chmodSync(directory, 0o700);
}

/** A new file that this user alone can read and write whatever the umask. */
function writePrivate(path: string, bytes: Uint8Array): void {
  const file = openSync(path, 'wx', 0o600);
  try {
    fchmodSync(file, 0o600);
    writeFileSync(file, bytes);
  } finally {
    closeSync(file);
  }
}

/** Removes what writers that died have left, once a process and directory. */
function removeAbandoned(directory: string): void {
  if (cleaned.has(directory)) return;
  cleaned.add(directory);
  for (const name of readdirSync(directory).filter((entry) => TEMPORARY.test(entry))) {
    const path = join(directory, name);
    const age = Date.now() - (lstatSync(path, { throwIfNoEntry: false })?.mtimeMs ?? Date.now());
    if (age > ABANDONED_MS) removeQuietly(path);
  }
}

function removeQuietly(path: string): void {
  try {
    rmSync(path, { force: true });
  } catch (error) {
    debug(1, () => `cannot remove ${path}: ${messageOf(error)}`);
  }
}

function hash(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex');
}
