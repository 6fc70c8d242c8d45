/**
 * What Node has and browsers lack. This package imports no module of Node, so that it runs and bundles everywhere as it
 * is; where Node is, its modules are there for the asking, at the first use.
 */
import { UnsupportedError } from './errors';

interface NodeModules {
  async_hooks: typeof import('node:async_hooks');
  crypto: typeof import('node:crypto');
  fs: typeof import('node:fs');
  'fs/promises': typeof import('node:fs/promises');
  path: typeof import('node:path');
  stream: typeof import('node:stream');
  'timers/promises': typeof import('node:timers/promises');
  url: typeof import('node:url');
  worker_threads: typeof import('node:worker_threads');
  zlib: typeof import('node:zlib');
}

/** Node's process, and undefined in a browser. */
export const nodeProcess: NodeJS.Process | undefined =
  typeof globalThis.process?.getBuiltinModule === 'function' ? globalThis.process : undefined;

/** A module of Node, and undefined in a browser. */
export function ifNode<Name extends keyof NodeModules>(name: Name): NodeModules[Name] | undefined {
  return nodeProcess?.getBuiltinModule(name) as NodeModules[Name] | undefined;
}

/**
 * A module of Node, for files that are named by a path.
 * @throws UnsupportedError in a browser
 */
export function node<Name extends keyof NodeModules>(name: Name): NodeModules[Name] {
  const found = ifNode(name);
  if (found) return found;
  throw new UnsupportedError(
    'UNSUPPORTED',
    'only Node reads and writes files by their path; in a browser, give the bytes of a file to read, as new Uint8Array(await (await fetch(url)).arrayBuffer()).',
  );
}

/** Callers of this, the nearest first, and itself before them: at most `frames`, or Node's 10 where its objects are frozen. */
export function stackLines(frames: number): string[] {
  const limit = Error.stackTraceLimit;
  const isSet = Reflect.set(Error, 'stackTraceLimit', frames + 1);
  const lines = String(new Error('here').stack).split('\n').slice(1);
  if (isSet) Error.stackTraceLimit = limit;
  return lines;
}

/** A warning as Node shows them, or on the console of a browser. */
export function warn(message: string, code: string): void {
  if (nodeProcess) nodeProcess.emitWarning(message, { type: 'CandleWarning', code });
  else console.warn(`${code}: ${message}`);
}
