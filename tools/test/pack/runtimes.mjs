// Other runtimes and package managers: each loads the packages and generates on the kernels.
import { spawnSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { NODE_24 } from '../../setup/node.mjs';
import { APP, checkBunCompile } from './bundles.mjs';
import { must, newProject, report, work } from './project.mjs';
import { ran, TEXT } from './uses.mjs';

const NODE = `npm:node-linux-${process.arch}`;
/** As npm has them, by the names they are installed under. */
const RUNTIMES = {
  node18: `${NODE}@18.20.8`,
  node20: `${NODE}@20.20.2`,
  node22: `${NODE}@22.23.3`,
  node24: `${NODE}@${NODE_24}`,
  bun: `npm:@oven/bun-linux-${process.arch === 'x64' ? 'x64-baseline' : 'aarch64'}@1.4.5`,
  deno: `npm:@deno/linux-${process.arch}-glibc@2.9.5`,
  yarn: '1.22.22',
  '@yarnpkg/cli-dist': '4.9.2',
};

/** @param project with the packages and the model */
export function checkRuntimes(project) {
  const tools = join(work, 'runtimes');
  mkdirSync(tools, { recursive: true });
  writeFileSync(join(tools, 'package.json'), JSON.stringify({ private: true, dependencies: RUNTIMES }));
  must('npm', ['install', '--no-audit', '--no-fund', '--silent', '--ignore-scripts', '--force'], tools);
  const tool = (...path) => join(tools, 'node_modules', ...path);
  const model = join(project, 'model.gguf');
  writeFileSync(join(project, 'app.mjs'), APP);
  const bun = tool('bun/bin/bun');
  const commands = {
    'Node 20': [tool('node20/bin/node')],
    'Node 22': [tool('node22/bin/node')],
    'Node 24': [tool('node24/bin/node')],
    Bun: [bun],
    Deno: [tool('deno/deno'), 'run', '-A'],
  };
  const runs = (label, [program, ...args], cwd = project) => {
    const result = ran(program, [...args, 'app.mjs', model], cwd);
    const good = result.text === TEXT && !/plain TypeScript/.test(result.on);
    report(label, good || `${JSON.stringify(result)}\n${result.stderr}`);
  };
  for (const [label, command] of Object.entries(commands)) runs(label, command);
  checkBunCompile(bun, project);
  const command = join(project, 'node_modules/@x/candle/bin/candle.js');
  const old = spawnSync(tool('node18/bin/node'), [command, '--version'], { cwd: project, encoding: 'utf8' });
  const told = old.status === 1 && old.stderr === 'candle: Node 18.20.8 is too old: install Node 20.19 or newer.\n';
  report('Node 18 is told to be too old', told || `${old.stdout}${old.stderr}`);
  const managers = {
    'yarn 1': [tool('yarn/bin/yarn.js'), 'add', '--silent'],
    'yarn 4': [tool('@yarnpkg/cli-dist/bin/yarn.js'), 'add'],
  };
  for (const [label, args] of Object.entries(managers)) {
    const folder = join(work, 'projects', label.replace(' ', ''));
    newProject(folder);
    writeFileSync(join(folder, 'app.mjs'), APP);
    // A project of its own, whatever is above it.
    writeFileSync(join(folder, 'yarn.lock'), '');
    // Its own would keep the tarballs of another run for those of this version.
    const cache = { YARN_CACHE_FOLDER: join(work, 'yarn'), YARN_GLOBAL_FOLDER: join(work, 'yarn4') };
    const settings = { ...process.env, ...cache, YARN_ENABLE_IMMUTABLE_INSTALLS: 'false' };
    must(process.execPath, [...args, '@x/candle'], folder, settings);
    runs(label, [process.execPath], folder);
  }
}
