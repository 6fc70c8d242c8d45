#!/usr/bin/env node
// Packs every package as it is released (tools/release/stage.ts), installs each alone (with its own dependencies) from a
// registry on this machine into an empty project and loads it as ESM and as CommonJS. Catches missing files, undeclared dependencies and top-level
// await. What the package exports beside its main entry is loaded too, and the core is bundled for a browser. The umbrella,
// installed by npm and by pnpm, generates text with no compiler around, and what is missing is named.
// In one more project: their sizes and manifests (quality), TypeScript, threads, several copies (uses), bundles, other runtimes
// and package managers (runtimes), and the projects of deploy/ (samples).
//
//   node tools/test/packages.mjs [NAME...]   of a package, or compiled, pnpm, quality, uses, bundles, samples, runtimes
import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { root } from '../setup/steps.mjs';
import { checkBundles } from './pack/bundles.mjs';
import { bare, failed, GPU_KERNELS, install, isCompiledCode, node, pack, report, work } from './pack/project.mjs';
import { checkQuality } from './pack/quality.mjs';
import { checkRuntimes } from './pack/runtimes.mjs';
import { checkSamples } from './pack/samples.mjs';
import { checkUses } from './pack/uses.mjs';

const chosen = process.argv.slice(2);
try {
  const tarballs = await pack();
  const wanted = (name) => chosen.length === 0 || chosen.includes(name);
  for (const name of Object.keys(tarballs)) if (!isCompiledCode(name) && wanted(name)) check(name);
  if (wanted('quality')) await checkQuality(tarballs);
  const shared = ['uses', 'bundles', 'runtimes', 'samples', 'compiled'].filter(wanted);
  if (shared.length > 0) await checkTogether(shared);
  if (wanted('pnpm')) checkPnpm();
} finally {
  rmSync(work, { recursive: true, force: true });
}
process.exit(failed() === 0 ? 0 : 1);

// What one installation serves; the last check takes packages away.
async function checkTogether(checks) {
  const project = join(work, 'projects', 'together');
  install(project, ['@x/candle', GPU_KERNELS]);
  cpSync(join(root, 'models/tiny-tales/tiny-tales-q8_0.gguf'), join(project, 'model.gguf'));
  if (checks.includes('uses')) checkUses(project);
  if (checks.includes('bundles')) await checkBundles(project);
  if (checks.includes('runtimes')) checkRuntimes(project);
  if (checks.includes('samples')) await checkSamples(project);
  if (checks.includes('compiled')) checkCompiledCode(project);
}

function check(name) {
  const project = join(work, 'projects', name.replace('/', '-'));
  install(project, [name]);
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

// What the umbrella and a package of kernels do together, and what is said when a part is not there or does not fit.
function checkCompiledCode(project) {
  const inside = (...path) => join(project, 'node_modules', '@x', ...path);
  report('kernels of an installed package', inspectKernels(project));
  const index = inside(GPU_KERNELS.slice('@x/'.length), 'index.json');
  const original = readFileSync(index, 'utf8');
  const refused = (label, text, pattern) => {
    writeFileSync(index, text);
    const { stderr } = node(project, "import { AFFINE } from '@x/kernels'; AFFINE.codeObjectFor('gfx1100');");
    report(label, pattern.test(stderr) || `expected ${pattern}, got:\n${stderr}`);
    writeFileSync(index, original);
  };
  const command = 'npm install @x/kernels-gfx11@\\d';
  refused(
    'kernels of another version',
    original.replace(/"version": "[^"]*"/, '"version": "99.0.0"'),
    new RegExp(`KERNEL_PACKAGE_VERSION|99\\.0\\.0.*${command}`, 's'),
  );
  refused(
    'kernels of another format',
    original.replace(/"format": "[^"]*"/, '"format": "9.0.0"'),
    new RegExp(`format 9\\.0\\.0.*${command}`, 's'),
  );
  refused(
    'kernels that were cut',
    original.replace(/"sha256": "[0-9a-f]{8}/g, '"sha256": "00000000'),
    new RegExp(`KERNEL_OBJECT_CORRUPT|cannot be read.*${command}`, 's'),
  );
  rmSync(inside(GPU_KERNELS.slice('@x/'.length)), { recursive: true });
  refusedWithout(
    project,
    'kernels that are missing',
    "import { AFFINE } from '@x/kernels'; AFFINE.codeObjectFor('gfx1100');",
    new RegExp(command),
  );
  const addon = inside(`hip-linux-${process.arch}-gnu`, 'hip.node');
  truncateSync(addon, 5000);
  refusedWithout(
    project,
    'an addon that was cut',
    "import { openDevice } from '@x/hip'; openDevice('host');",
    /hip\.node was cut: it has 5000 of \d+ bytes\. Install it: `npm install @x\/hip-linux-/,
  );
  rmSync(inside(`hip-linux-${process.arch}-gnu`), { recursive: true });
  refusedWithout(
    project,
    'an addon that is missing',
    "import { openDevice } from '@x/hip'; openDevice('host');",
    /npm install @x\/hip-linux-(x64|arm64)-gnu@\d/,
  );
}

function refusedWithout(project, label, program, pattern) {
  const { stderr } = node(project, program);
  report(label, pattern.test(stderr) || `expected ${pattern}, got:\n${stderr}`);
}

// pnpm shows a package only what it declares.
function checkPnpm() {
  const project = join(work, 'projects', 'pnpm');
  install(project, ['@x/candle', '@x/kernels', GPU_KERNELS], { pnpm: true });
  report('pnpm: kernels of an installed package', inspectKernels(project));
  checkProgram(project, 'pnpm: ');
}

function inspectKernels(project) {
  return node(
    project,
    `import { ALL_MODULES, installedKernels, listTargets, parseCodeObject } from '@x/kernels';
    const [gpu, host] = [listTargets().includes('gfx1100'), listTargets().some((target) => !target.startsWith('gfx'))];
    if (!gpu || !host) throw new Error(JSON.stringify([listTargets(), installedKernels()]));
    for (const module of ALL_MODULES) {
      const { bytes, kernels } = module.codeObjectFor('gfx1100:xnack-');
      const parsed = Object.keys(parseCodeObject(bytes).kernels);
      if (parsed.join() !== Object.keys(kernels).join()) throw new Error(module.name);
    }`,
  );
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

// The installed umbrella must generate text, with no workspace around it.
function checkProgram(project, prefix = '') {
  cpSync(join(root, 'models/tiny-tales/tiny-tales-q8_0.gguf'), join(project, 'model.gguf'));
  const args = [
    'node_modules/@x/candle/bin/candle.js',
    'run',
    'model.gguf',
    '--json',
    '--device',
    'cpu',
    '--temperature',
    '0',
    '--max-tokens',
    '4',
  ];
  const result = spawnSync(process.execPath, args, { cwd: project, encoding: 'utf8', env: bare() });
  const good = result.status === 0 && JSON.parse(result.stdout).tokens === 4 && result.stderr === '';
  report(`${prefix}installed candle run`, good || `${result.stdout}${result.stderr}`);
}
