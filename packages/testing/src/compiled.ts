/** Libraries in C++ that tests put in the place of others: compiled once of the same sources, whichever test asks. */
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const KEPT = fileURLToPath(new URL('../../../.cache/stand-ins', import.meta.url));

/**
 * Writes a shared library of a C++ source, which is compiled unless one was made of the same before.
 * @param flags beside those of every such library
 * @param headers texts by name, which the source includes beside what lies in its directory
 */
export function compileLibrary(
  source: string,
  output: string,
  flags: readonly string[],
  headers: Record<string, string> = {},
): void {
  const compiler = process.env.CXX ?? 'g++';
  const directory = dirname(source);
  const args = ['-shared', '-fPIC', '-std=c++17', ...flags, `-I${directory}`, source];
  const hash = createHash('sha256').update(JSON.stringify([compiler, args, headers]));
  for (const file of readdirSync(directory).sort())
    if (/\.(cc|h)$/.test(file)) hash.update(file).update(readFileSync(join(directory, file)));
  const kept = join(KEPT, `${hash.digest('hex').slice(0, 32)}.so`);
  if (!existsSync(kept)) {
    mkdirSync(KEPT, { recursive: true });
    const scratch = mkdtempSync(join(KEPT, 'making-'));
    try {
      for (const [name, text] of Object.entries(headers)) writeFileSync(join(scratch, name), text);
      const made = join(scratch, 'library.so');
      execFileSync(compiler, [`-I${scratch}`, ...args, '-o', made]);
      // Whole, for other tests may ask at the same time.
      renameSync(made, kept);
    } finally {
      rmSync(scratch, { recursive: true });
    }
  }
  copyFileSync(kept, output);
}
