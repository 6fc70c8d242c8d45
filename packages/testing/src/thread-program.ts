/**
 * Stands for packages/engine/src/parallel/thread-program.ts in tests (vitest.config.ts): a thread that is a rank runs the
 * sources in one file. Through tsx each thread would compile all of them anew, which takes a second.
 */
import { fileURLToPath } from 'node:url';
import type { ThreadProgram } from '../../engine/src/parallel/thread-program';
import { bundled } from './bundle';

const WORKER = fileURLToPath(new URL('../../engine/src/parallel/worker.ts', import.meta.url));

export function threadProgram(modules: readonly string[]): ThreadProgram {
  // Together, for they share the core in which backends register.
  const backends = Object.fromEntries(modules.map((url, i) => [`backend${i}`, fileURLToPath(url)]));
  const { worker, ...rest } = bundled<string>({ worker: WORKER, ...backends });
  return { program: new URL(worker), isText: false, modules: Object.values(rest) };
}
