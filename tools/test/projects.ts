/**
 * Test files by the process that they run in. Importing the sources takes a second, so that files share a process unless they
 * change or measure it. Those whose imports lead to the kernels' backend are apart from those without it, to which a backend
 * that others have registered would give devices.
 */
import { existsSync, readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { filesBelow } from './files-below.mjs';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const BACKEND = join(ROOT, 'packages/rocm-backend/src/');

/** What takes minutes or nearly one begins first: last, it would leave a core with nothing to do. */
export const LONG =
  /(hiprtc-\w+|same-family|runtime-modules|nvcc|speculative|faults|cli|parallel|architectures)\.test\.ts$/;

/** What a test does to its process, counts in it or asks of it. */
const OWN =
  /process\.(env|on|emit|chdir|exit)|globalThis|vi\.(mock|stub|spyOn|use)|child_process|worker_threads|testing\/ranks|FAKE_|fake-hip|memoryStats|memoryUsage|gc\(|registerBackend/;

/** `import … from 'x'`, `export … from 'x'`, `import 'x'` and `import('x')`; types alone are not there when a program runs. */
const IMPORTS = /(?<!import type [^;]*)\b(?:from|import)\s*\(?\s*'([^']+)'/g;

/** Paths from the root. */
export function testFiles(): Record<'own' | 'backend' | 'plain', string[]> {
  const found: ReturnType<typeof testFiles> = { own: [], backend: [], plain: [] };
  for (const folder of ['packages', 'tools']) {
    for (const path of filesBelow(join(ROOT, folder))) {
      const file = relative(ROOT, path);
      if (!/^(packages\/[^/]+\/(src|test)|tools)\/(.*\/)?[^/]*\.test\.ts$/.test(file)) continue;
      if (LONG.test(file) || OWN.test(readFileSync(join(ROOT, file), 'utf8'))) found.own.push(file);
      else found[reachesBackend(join(ROOT, file)) ? 'backend' : 'plain'].push(file);
    }
  }
  return found;
}

const imported = new Map<string, string[]>();

function reachesBackend(file: string): boolean {
  const reached = new Set([file]);
  for (const each of reached) {
    if (each.startsWith(BACKEND)) return true;
    if (!imported.has(each)) imported.set(each, importsOf(each));
    for (const next of imported.get(each)!) reached.add(next);
  }
  return false;
}

/** The modules of this repository that a module imports. */
function importsOf(file: string): string[] {
  const found: string[] = [];
  for (const [, name] of readFileSync(file, 'utf8').matchAll(IMPORTS)) {
    const [, folder, part = ''] = /^@x\/([^/]+)\/?(.*)/.exec(name) ?? [];
    if (!folder && !name.startsWith('.')) continue;
    const base = folder ? join(ROOT, 'packages', folder, 'src', part) : join(dirname(file), name);
    const module = [`${base}.ts`, join(base, 'index.ts'), base].find(
      (path) => /\.m?ts$/.test(path) && existsSync(path),
    );
    if (module) found.push(module);
  }
  return found;
}
