/** Sources for processes and threads that tests start: as one file they start in a fourth of what they take through tsx. */
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

/** Emptied by tools/test.mjs: a worker of vitest does not see its end. */
const SCRATCH = fileURLToPath(new URL('../../../.cache/test/bundles', import.meta.url));
const bundles = new Map<string, Record<string, string>>();

/**
 * URLs of modules that are the given sources with all that they import, once between them. Made when first asked for.
 * @param sources paths by names
 */
export function bundled<K extends string>(sources: Record<K, string>): Record<K, string> {
  const pairs = Object.entries<string>(sources).map(([name, path]) => `${name}=${path}`);
  const key = pairs.join();
  let urls = bundles.get(key);
  if (urls === undefined) {
    mkdirSync(SCRATCH, { recursive: true });
    const directory = mkdtempSync(join(SCRATCH, 'sources-'));
    execFileSync(process.execPath, [
      fileURLToPath(new URL('./write-bundle.mjs', import.meta.url)),
      directory,
      ...pairs,
    ]);
    urls = Object.fromEntries(
      Object.keys(sources).map((name) => [name, pathToFileURL(join(directory, `${name}.mjs`)).href]),
    );
    bundles.set(key, urls);
  }
  return urls as Record<K, string>;
}
