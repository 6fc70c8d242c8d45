/** Vitest's global set-up: all that tests put beside other programs' files goes to a folder that ends with the run. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

export default function setup(): () => void {
  const directory = mkdtempSync(join(tmpdir(), 'candle-test-'));
  process.env.TMPDIR = directory;
  return () => rmSync(directory, { recursive: true, force: true });
}
