/**
 * Inlines the project's headers into a kernel file, each once, so that run-time compilers need one string. `#line`
 * directives keep messages pointing at the real file.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';

const INCLUDE = /^\s*#\s*include\s+"([^"]+)"/;

/** Modules that exist: kernels/<module>.hip, in name order. */
export function listModules(kernels: string): string[] {
  return readdirSync(kernels)
    .filter((file) => file.endsWith('.hip'))
    .map((file) => file.slice(0, -'.hip'.length))
    .sort();
}

/** `file` (relative to kernels/) with every header that it includes. */
export function amalgamate(kernels: string, file: string): string {
  const seen = new Set<string>();

  const resolve = (name: string, from: string): string => {
    const candidates = [dirname(from), join(kernels, 'include'), kernels].map((directory) => join(directory, name));
    const found = candidates.find((path) => existsSync(path));
    if (found === undefined)
      throw new Error(`${relative(dirname(kernels), from)} includes "${name}", which is not under kernels/.`);
    return found;
  };

  const inline = (path: string): string[] => {
    const shown = relative(dirname(kernels), path);
    const output = [`#line 1 "${shown}"`];
    readFileSync(path, 'utf8')
      .replace(/\n$/, '')
      .split('\n')
      .forEach((line, index) => {
        const name = INCLUDE.exec(line)?.[1];
        if (name === undefined) {
          output.push(/^\s*#\s*pragma\s+once\b/.test(line) ? '' : line);
          return;
        }
        const included = resolve(name, path);
        if (!seen.has(included)) {
          seen.add(included);
          output.push(...inline(included));
        }
        output.push(`#line ${index + 2} "${shown}"`);
      });
    return output;
  };

  return `${inline(join(kernels, file)).join('\n')}\n`;
}
