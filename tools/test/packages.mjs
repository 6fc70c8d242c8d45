#!/usr/bin/env node
// Packs every package as npm would publish it, installs each tarball alone (with its own dependencies) into an empty
// project and loads it as ESM and as CommonJS. Catches missing files, undeclared dependencies and top-level await. What
// the package exports beside its main entry is loaded too, and the core is bundled for a browser.
import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { root } from '../setup/steps.mjs';

const pnpm = join(root, '.cache/tools/node_modules/pnpm/bin/pnpm.cjs');
const work = mkdtempSync(join(tmpdir(), 'candle-packages-'));
let failures = 0;
try {
  const tarballs = pack();
  for (const name of Object.keys(tarballs)) check(name, tarballs);
} finally {
  rmSync(work, { recursive: true, force: true });
}
process.exit(failures === 0 ? 0 : 1);

function pack() {
  const tarballs = {};
  for (const directory of readdirSync(join(root, 'packages'))) {
    const source = join(root, 'packages', directory);
    const { name, private: isPrivate } = JSON.parse(readFileSync(join(source, 'package.json'), 'utf8'));
    if (isPrivate) continue;
    const out = join(work, 'tarballs', directory);
    mkdirSync(out, { recursive: true });
    must(process.execPath, [pnpm, 'pack', '--pack-destination', out], source);
    tarballs[name] = join(out, readdirSync(out)[0]);
  }
  return tarballs;
}

function check(name, tarballs) {
  const project = join(work, 'projects', name.replace('/', '-'));
  mkdirSync(project, { recursive: true });
  // Our own packages resolve to their tarballs, everything else to the registry.
  const manifest = {
    name: 'consumer',
    private: true,
    dependencies: { [name]: `file:${tarballs[name]}` },
    overrides: {},
  };
  for (const [other, tarball] of Object.entries(tarballs))
    if (other !== name) manifest.overrides[other] = `file:${tarball}`;
  writeFileSync(join(project, 'package.json'), JSON.stringify(manifest));
  must('npm', ['install', '--no-audit', '--no-fund', '--silent', '--ignore-scripts'], project);
  const { exports } = JSON.parse(readFileSync(join(project, 'node_modules', name, 'package.json'), 'utf8'));
  for (const [entry, conditions] of Object.entries(exports)) {
    if (typeof conditions === 'string') continue;
    const specifier = JSON.stringify(`${name}${entry.slice(1)}`);
    const loads = {
      'load.mjs': `import * as it from ${specifier};\nif (Object.keys(it).length === 0) throw new Error('no exports');\n`,
      'load.cjs': `if (Object.keys(require(${specifier})).length === 0) throw new Error('no exports');\n`,
    };
    for (const [file, program] of Object.entries(loads)) {
      writeFileSync(join(project, file), program);
      report(`${specifier} ${file}`, spawnSync(process.execPath, [file], { cwd: project, encoding: 'utf8' }));
    }
    for (const { types } of Object.values(conditions))
      report(`${specifier} ${types}`, existsSync(join(project, 'node_modules', name, types)));
  }
  if (name === '@x/core') checkBundle(project);
  if (name === '@x/candle') checkProgram(project);
}

// A bundler takes the installed core for a browser, with nothing in place of modules of Node and no warning.
function checkBundle(project) {
  writeFileSync(join(project, 'page.mjs'), "import { Tensor } from '@x/core';\nconsole.log(Tensor.ones([2]).shape);\n");
  const esbuild = join(root, 'node_modules/.bin/esbuild');
  const result = spawnSync(esbuild, ['page.mjs', '--bundle', '--log-level=warning'], {
    cwd: project,
    encoding: 'utf8',
  });
  report('@x/core in a bundle for browsers', result.status === 0 && result.stderr === '' ? result : result.stderr);
}

function report(label, result) {
  const good = result === true || result.status === 0;
  if (!good) failures++;
  console.log(`${good ? 'ok  ' : 'FAIL'} ${label}${good ? '' : `\n${result.stderr ?? result}`}`);
}

// The installed umbrella must generate text, with no workspace around it.
function checkProgram(project) {
  cpSync(join(root, 'models/tiny-tales/tiny-tales-q8_0.gguf'), join(project, 'model.gguf'));
  const args = ['candle', 'run', 'model.gguf', '--json', '--device', 'cpu', '--temperature', '0', '--max-tokens', '4'];
  const result = spawnSync('npx', ['--no-install', ...args], { cwd: project, encoding: 'utf8' });
  const good = result.status === 0 && JSON.parse(result.stdout).tokens === 4;
  if (!good) failures++;
  console.log(`${good ? 'ok  ' : 'FAIL'} installed candle run${good ? '' : `\n${result.stdout}${result.stderr}`}`);
}

function must(program, args, cwd) {
  const result = spawnSync(program, args, { cwd, encoding: 'utf8' });
  if (result.status === 0) return;
  console.error(`${program} ${args.join(' ')} in ${cwd}\n${result.stdout}${result.stderr}`);
  process.exit(1);
}
