/** Sources for processes and threads that tests start: as one file they start in a fourth of what they take through tsx. */
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

/** Emptied by tools/test.mjs: a worker of vitest does not see its end. */
const SCRATCH = fileURLToPath(new URL('../../../.cache/test/bundles', import.meta.url));
const WRITER = fileURLToPath(new URL('./write-bundle.mjs', import.meta.url));
const bundles = new Map<string, Record<string, string>>();

/** What SCRATCH holds of the bundle of some sources, for the test files after the one that made it. */
interface Kept {
  directory: string;
  /** When the bundle was begun, in milliseconds. */
  begun: number;
  /** Every file that is part of it. */
  inputs: string[];
}

/**
 * URLs of modules that are the given sources with all that they import, once between them. Made when first asked for, and again when
 * one of its files has changed: it takes more than two seconds of a processor. Leave the files as they are, others run them too.
 * @param sources paths by names
 */
export function bundled<K extends string>(sources: Record<K, string>): Record<K, string> {
  const pairs = Object.entries<string>(sources).map(([name, path]) => `${name}=${path}`);
  const key = pairs.join();
  let urls = bundles.get(key);
  if (urls === undefined) {
    const index = join(SCRATCH, `${hash(key)}.json`);
    const directory = kept(index) ?? make(index, pairs);
    urls = Object.fromEntries(
      Object.keys(sources).map((name) => [name, pathToFileURL(join(directory, `${name}.mjs`)).href]),
    );
    bundles.set(key, urls);
  }
  return urls as Record<K, string>;
}

function kept(index: string): string | undefined {
  if (!existsSync(index)) return undefined;
  const { directory, begun, inputs } = JSON.parse(readFileSync(index, 'utf8')) as Kept;
  const isOlder = (path: string) => (statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? begun) < begun;
  return existsSync(directory) && inputs.every(isOlder) ? directory : undefined;
}

function make(index: string, pairs: readonly string[]): string {
  mkdirSync(SCRATCH, { recursive: true });
  const begun = Date.now();
  const written = mkdtempSync(join(SCRATCH, 'written-'));
  const printed = execFileSync(process.execPath, [WRITER, written, ...pairs], { encoding: 'utf8', maxBuffer: 2 ** 24 });
  const { inputs, digest } = JSON.parse(printed) as { inputs: string[]; digest: string };
  // The same text has the same path, by which Node finds it compiled. Another process may have put it there already.
  const directory = join(SCRATCH, digest);
  if (existsSync(directory)) rmSync(written, { recursive: true });
  else renameSync(written, directory);
  writeFileSync(`${index}.${process.pid}`, JSON.stringify({ directory, begun, inputs: [...inputs, WRITER] }));
  renameSync(`${index}.${process.pid}`, index);
  return directory;
}

function hash(text: string): string {
  return createHash('sha256').update(text).digest('hex').slice(0, 16);
}
