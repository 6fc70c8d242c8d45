/** Sources for processes and threads that tests start: as one file they start in a fourth of what they take through tsx. */
import { execFileSync } from 'node:child_process';
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

const bundles = new Map<string, Record<string, string>>();

/**
 * URLs of modules that are the given sources with all that they import, once between them. Made when first asked for, in
 * a temporary directory that is left there: a worker of vitest does not see its end.
 * @param sources paths by names
 */
export function bundled<K extends string>(sources: Record<K, string>): Record<K, string> {
  const pairs = Object.entries<string>(sources).map(([name, path]) => `${name}=${path}`);
  const key = pairs.join();
  let urls = bundles.get(key);
  if (urls === undefined) {
    const directory = mkdtempSync(join(tmpdir(), 'x-bundle-'));
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
