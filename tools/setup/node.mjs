// A newer Node for the tests than the oldest that packages take: programs in it run a third faster, and import TypeScript by its own
// loader (tools/test/typescript.mjs). From the npm registry, which has it as a package; what runs in it is in tools/test.mjs.
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import module from 'node:module';
import { dirname, join } from 'node:path';
import { root, say, step } from './steps.mjs';

export const NODE_24 = '24.21.0';
const FOLDER = join(root, '.cache/tools/node24');
const PACKAGE = `node-linux-${process.arch}`;
const PROGRAM = join(FOLDER, 'node_modules', PACKAGE, 'bin/node');

/** The path of one that has what tests ask for: this one, or what was installed; this one too where neither is there. */
export function newerNode() {
  return !module.registerHooks && existsSync(PROGRAM) ? PROGRAM : process.execPath;
}

/** PATH on which `node` is that one. */
export function newerPath() {
  return `${dirname(newerNode())}:${process.env.PATH}`;
}

/** Without it the tests take longer. */
export async function ensureNewerNode() {
  if (module.registerHooks || process.platform !== 'linux' || !['x64', 'arm64'].includes(process.arch)) return;
  await step('node24', { text: NODE_24, outputs: [PROGRAM] }, `Node ${NODE_24} from the npm registry`, () => {
    const options = ['--no-save', '--no-audit', '--no-fund', '--ignore-scripts'];
    const { status } = spawnSync('npm', ['install', '--prefix', FOLDER, ...options, `${PACKAGE}@${NODE_24}`], {
      stdio: ['ignore', process.stderr, process.stderr],
    });
    const works = status === 0 && spawnSync(PROGRAM, ['--version']).status === 0;
    if (!works) say(`Node ${NODE_24} cannot be had: tests run in ${process.version}, which takes longer`);
  });
}
