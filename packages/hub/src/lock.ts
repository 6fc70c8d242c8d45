/**
 * One download of a blob at a time, over all processes. The lock is `flock(2)` on the file that huggingface_hub locks, so
 * each waits for the other. Node cannot ask for it, so the `flock` program of util-linux or busybox holds it: it ends when
 * its standard input does, and with it the lock, however this process ends.
 *
 * Where there is no such program a marker beside the file says who has the lock. It is renewed while it is held, and
 * taken over when its process is gone or it was not renewed for a minute. Downloads stay right without any lock: blobs are
 * moved into place when their hash is known to be right.
 */
import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { readlinkSync } from 'node:fs';
import { lstat, mkdir, readFile, rm, stat, utimes, writeFile } from 'node:fs/promises';
import { hostname } from 'node:os';
import { dirname } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';

export interface LockOptions {
  signal?: AbortSignal;
  /** Gives up at once when another has the lock. */
  wait?: boolean;
  /** Called once, when another has the lock. */
  onWait?: () => void;
  /** `marker` as if there were no `flock` program; for tests. */
  by?: 'flock' | 'marker';
}

/** Gives the lock back. */
export type Release = () => Promise<void>;

/** Waits for the lock on `path`. @returns undefined if another has it and `wait` is false */
export async function acquire(path: string, options: LockOptions = {}): Promise<Release | undefined> {
  options.signal?.throwIfAborted();
  await mkdir(dirname(path), { recursive: true });
  const { by = 'flock', wait = true } = options;
  if (by === 'flock') {
    const first = await flock(path, false, options.signal);
    if (typeof first === 'function') return first;
    if (first === 'busy') {
      if (!wait) return undefined;
      options.onWait?.();
      const second = await flock(path, true, options.signal);
      if (typeof second === 'function') return second;
    }
  }
  return marker(`${path}.owner`, options);
}

/** `flock -n` ends with 1 when another has the lock; any other end is that of a system or a disk without such locks. */
const BUSY = 1;

function flock(path: string, wait: boolean, signal?: AbortSignal): Promise<Release | 'busy' | 'none'> {
  return new Promise((resolve, reject) => {
    // In a session of its own, so that Ctrl-C leaves it to us.
    const child = spawn('flock', [...(wait ? [] : ['-n']), '-x', path, 'cat'], {
      stdio: ['pipe', 'pipe', 'ignore'],
      detached: true,
    });
    const ended = new Promise<void>((resolveEnd) => child.once('close', () => resolveEnd()));
    const stop = () => child.kill('SIGKILL');
    const settle = () => signal?.removeEventListener('abort', stop);
    signal?.addEventListener('abort', stop);
    child.stdin.on('error', () => {});
    child.once('error', () => {
      settle();
      resolve('none');
    });
    child.once('close', (code) => {
      settle();
      if (signal?.aborted) reject(signal.reason);
      else resolve(code === BUSY && !wait ? 'busy' : 'none');
    });
    // What `cat` sends back says that it runs, and so that the lock is held.
    child.stdout.once('data', () => {
      settle();
      resolve(async () => {
        child.stdin.end();
        await ended;
      });
    });
    child.stdin.write('\n');
  });
}

const POLL_MS = 200;
const RENEW_MS = 10_000;
const STALE_MS = 60_000;
/** Removing a marker takes no time: a process that does so for longer has ended. */
const GUARD_MS = 10_000;
const GUARD_POLL_MS = 5;

async function marker(path: string, { signal, wait = true, onWait }: LockOptions): Promise<Release | undefined> {
  const own = `${process.pid}\n${machine()}\n${randomBytes(8).toString('hex')}\n`;
  for (let turn = 0; ; turn++) {
    signal?.throwIfAborted();
    try {
      await writeFile(path, own, { flag: 'wx' });
      const renewal = setInterval(() => void utimes(path, new Date(), new Date()).catch(() => {}), RENEW_MS).unref();
      return async () => {
        clearInterval(renewal);
        // Somebody else's by now, if this process was stopped for a minute.
        if ((await readFile(path, 'utf8').catch(() => '')) === own) await rm(path, { force: true });
      };
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    }
    if (await takeAway(path)) continue;
    if (!wait) return undefined;
    if (turn === 0) onWait?.();
    await pause(POLL_MS, undefined, { signal }).catch((error) => {
      throw signal?.aborted ? signal.reason : error;
    });
  }
}

/** Removes a marker that nobody holds any more. */
async function takeAway(path: string): Promise<boolean> {
  const state = await stateOf(path);
  if (state !== 'abandoned') return state === 'gone';
  // Of several that find it, one at a time looks again and removes it: what is there then, nobody else replaces.
  const guard = `${path}.removing`;
  try {
    await writeFile(guard, '', { flag: 'wx' });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    const since = Date.now() - ((await stat(guard).catch(() => undefined))?.mtimeMs ?? Date.now());
    // Of a process that ended in between.
    if (since > GUARD_MS) await rm(guard, { force: true });
    else await pause(GUARD_POLL_MS);
    return true;
  }
  try {
    if ((await stateOf(path)) === 'abandoned') await rm(path, { force: true });
  } finally {
    await rm(guard, { force: true });
  }
  return true;
}

/** Of a marker. One that cannot be read, such as a directory, counts by its age alone. */
async function stateOf(path: string): Promise<'gone' | 'held' | 'abandoned'> {
  const [pid, where] = (await readFile(path, 'utf8').catch(() => '')).split('\n');
  let since = Date.now();
  try {
    // Not `stat`: a link to nothing is there.
    since = (await lstat(path)).mtimeMs;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return 'gone';
  }
  const isGone = where === machine() && /^\d+$/.test(pid) && !isAlive(Number(pid));
  return isGone || Date.now() - since >= STALE_MS ? 'abandoned' : 'held';
}

/** Where a process id means something: this host, and there this container. */
function machine(): string {
  try {
    return `${hostname()} ${readlinkSync('/proc/self/ns/pid')}`;
  } catch {
    return hostname();
  }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== 'ESRCH';
  }
}
