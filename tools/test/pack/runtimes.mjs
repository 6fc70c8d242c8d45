// Other runtimes and package managers: each loads the packages and generates on the kernels.
import { mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { root } from '../../setup/steps.mjs';
import { APP, checkBunCompile } from './bundles.mjs';
import { must, report, work } from './project.mjs';
import { ran, TEXT } from './uses.mjs';

const NODE = `npm:node-linux-${process.arch}`;
/** As npm has them, by the names they are installed under. */
const RUNTIMES = {
  node20: `${NODE}@20.20.2`,
  node22: `${NODE}@22.23.3`,
  node24: `${NODE}@24.21.0`,
  bun: `npm:@oven/bun-linux-${process.arch === 'x64' ? 'x64-baseline' : 'aarch64'}@1.4.5`,
  deno: `npm:@deno/linux-${process.arch}-glibc@2.9.5`,
  yarn: '1.22.22',
  '@yarnpkg/cli-dist': '4.9.2',
};

/** @param project with the packages and the model */
export function checkRuntimes(project, tarballs) {
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
  const managers = {
    'yarn 1': [
      tool('yarn/bin/yarn.js'),
      'install',
      '--silent',
      '--ignore-scripts',
      '--ignore-optional',
      '--no-lockfile',
    ],
    'yarn 4': [tool('@yarnpkg/cli-dist/bin/yarn.js'), 'install'],
  };
  for (const [label, args] of Object.entries(managers)) {
    const folder = join(work, 'projects', label.replace(' ', ''));
    mkdirSync(folder, { recursive: true });
    const files = Object.fromEntries(Object.entries(tarballs).map(([name, tarball]) => [name, `file:${tarball}`]));
    const resolutions = { ...files, ...standIns(folder, tarballs) };
    writeFileSync(
      join(folder, 'package.json'),
      JSON.stringify({ name: 'consumer', private: true, dependencies: files, resolutions }),
    );
    writeFileSync(join(folder, 'app.mjs'), APP);
    writeFileSync(
      join(folder, '.yarnrc.yml'),
      'nodeLinker: node-modules\nenableScripts: false\nenableTelemetry: false\n',
    );
    writeFileSync(join(folder, 'yarn.lock'), '');
    must(process.execPath, args, folder, { ...process.env, YARN_ENABLE_IMMUTABLE_INSTALLS: 'false' });
    runs(label, [process.execPath], folder);
  }
}

/** What stands in for the packages of other platforms, which are not packed here: managers want to find them somewhere. */
function standIns(folder, tarballs) {
  const names = readdirSync(join(root, 'prebuilt')).map((name) => `@x/${name}`);
  const missing = names.filter((name) => !(name in tarballs));
  const entries = missing.map((name) => {
    const place = join(folder, 'stand-ins', name);
    mkdirSync(place, { recursive: true });
    writeFileSync(join(place, 'package.json'), JSON.stringify({ name, version: '0.0.0' }));
    return [name, `file:${place}`];
  });
  return Object.fromEntries(entries);
}
