// A newer Node for the tests than the oldest that packages take: programs take a sixth less time in it, and import TypeScript by its own
// loader (tools/test/typescript.mjs). From the npm registry, which has it as a package; what runs in it is in tools/test.mjs.
import { spawnSync } from 'node:child_process';
import { existsSync, rmSync } from 'node:fs';
import module from 'node:module';
import { delimiter, dirname, join } from 'node:path';
import { root, say, step } from './steps.mjs';

export const NODE_24 = '24.21.0';
const FOLDER = join(root, '.cache/tools/node24');
const PACKAGE = `node-linux-${process.arch}`;
const PROGRAM = join(FOLDER, 'node_modules', PACKAGE, 'bin/node');

/** PATH on which `node` is the installed one; PATH as it is where the Node at hand will do, or there is no other. */
export function newerPath() {
  const path = process.env.PATH ?? '';
  return !module.registerHooks && existsSync(PROGRAM) ? `${dirname(PROGRAM)}${delimiter}${path}` : path;
}

/** Without it the tests take longer. */
export async function ensureNewerNode() {
  if (module.registerHooks || process.platform !== 'linux' || !['x64', 'arm64'].includes(process.arch)) return;
  await step('node24', { text: NODE_24, outputs: [PROGRAM] }, `Node ${NODE_24} from the npm registry`, () => {
    const options = ['--no-save', '--no-audit', '--no-fund', '--ignore-scripts'];
    const { status } = spawnSync('npm', ['install', '--prefix', FOLDER, ...options, `${PACKAGE}@${NODE_24}`], {
      stdio: ['ignore', process.stderr, process.stderr],
    });
    if (status === 0 && spawnSync(PROGRAM, ['--version']).status === 0) return;
    rmSync(FOLDER, { recursive: true, force: true });
    say(`Node ${NODE_24} cannot be had: tests run in ${process.version}, which takes longer`);
  });
}
