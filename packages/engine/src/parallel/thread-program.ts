/** What a thread runs that is a rank. */
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { UnsupportedError } from '@x/core';

export interface ThreadProgram {
  program: URL | string;
  /** Whether `program` is source text. */
  isText: boolean;
  /** URLs under which the thread imports the modules that register backends. */
  modules: readonly string[];
}

/**
 * The module beside this one, built or as it is written. The project's own tests have @x/testing/thread-program in its place.
 * @param modules URLs of modules that register backends
 */
export function threadProgram(modules: readonly string[]): ThreadProgram {
  const [extension] = /\.(ts|cjs|js)$/.exec(import.meta.url) ?? ['.js'];
  const url = new URL(`./worker${extension}`, import.meta.url);
  if (!existsSync(fileURLToPath(url))) {
    const message = `loadModel: several devices need the thread's program ${url}, which is not there; leave @x/engine out of bundles (external), or load on one device.`;
    throw new UnsupportedError('UNSUPPORTED', message);
  }
  if (extension !== '.ts') return { program: url, isText: false, modules };
  // A thread does not inherit the loader that the program runs TypeScript with.
  const loader = createRequire(import.meta.url)
    .resolve('tsx/esm/api')
    .replace(/\.cjs$/, '.mjs');
  const [api, entry] = [pathToFileURL(loader).href, url.href].map((name) => JSON.stringify(name));
  const program = `import(${api}).then(({ register }) => { register(); return import(${entry}); });`;
  return { program, isText: true, modules };
}
