/**
 * Vitest's global set-up: all that tests put beside other programs' files goes to a folder that ends with the run, and what Node
 * compiles of JavaScript is kept, for the processes that tests start run the same few bundles.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const NAME = 'candle-test-';

export default function setup(): () => void {
  // Each project asks for it, and paths of sockets in folders of folders would be too long.
  if (basename(tmpdir()).startsWith(NAME)) return () => {};
  process.env.NODE_COMPILE_CACHE ??= fileURLToPath(new URL('../../.cache/test/compiled', import.meta.url));
  const directory = mkdtempSync(join(tmpdir(), NAME));
  process.env.TMPDIR = directory;
  return () => rmSync(directory, { recursive: true, force: true });
}
