// What the checks of packed packages share: the tarballs, projects that install them, and the lines of the report.
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { root } from '../../setup/steps.mjs';

export const GPU_KERNELS = '@x/kernels-gfx11';
/** Removed at the end. */
export const work = mkdtempSync(join(tmpdir(), 'candle-packages-'));
const pnpm = join(root, '.cache/tools/node_modules/pnpm/bin/pnpm.cjs');
let failures = 0;
let registry;

export function failed() {
  return failures;
}

/**
 * The tarballs by name, with the compiled code of this machine's platform, and of one GPU that CI builds for; from here on a
 * registry has them.
 */
export async function pack() {
  const host = `@x/hip-linux-${process.arch}-gnu,@x/kernels-host-${process.arch},${GPU_KERNELS}`;
  const stage = join(root, 'node_modules/.bin/tsx');
  const out = join(work, 'tarballs');
  must(stage, ['tools/release/stage.ts', '--out', out, '--quality', '5', '--only', host, '--allow-missing'], root);
  const { packages } = JSON.parse(readFileSync(join(out, 'release.json'), 'utf8'));
  // A process of its own, for this one waits for others. It ends with this one.
  const stdio = ['pipe', 'pipe', 'inherit'];
  const server = spawn(process.execPath, [join(root, 'tools/test/pack/registry.mjs'), out], { stdio });
  registry = `${(await once(server.stdout, 'data'))[0]}`.trim();
  for (const handle of [server, server.stdin, server.stdout]) handle.unref();
  return Object.fromEntries(packages.map(({ name, tarball }) => [name, join(out, tarball)]));
}

export function isCompiledCode(name) {
  return /^@x\/(hip|kernels)-/.test(name);
}

/**
 * A project that depends on `names`, whose packages come from {@link pack} and all others from the machine's registry.
 * @param settings `pnpm`: installed by it instead of npm
 */
export function install(project, names, { pnpm: byPnpm = false } = {}) {
  newProject(project);
  if (byPnpm) must(process.execPath, [pnpm, 'add', '--silent', ...names], project);
  else must('npm', ['install', '--no-audit', '--no-fund', '--silent', ...names], project);
}

/** An empty project that asks our registry for our packages, whichever program installs them. */
export function newProject(project) {
  mkdirSync(project, { recursive: true });
  const files = {
    'package.json': JSON.stringify({ name: 'consumer', private: true }),
    '.npmrc': `@x:registry=${registry}\n`,
    '.yarnrc.yml': [
      'nodeLinker: node-modules',
      'enableTelemetry: false',
      'unsafeHttpWhitelist: ["127.0.0.1"]',
      `npmScopes: { x: { npmRegistryServer: "${registry}" } }`,
      '',
    ].join('\n'),
  };
  for (const [file, text] of Object.entries(files)) writeFileSync(join(project, file), text);
}

/** Runs a module's text in a project. */
export function node(project, program) {
  return started(project, ['--input-type=module', '-e', program]);
}

/** Runs Node in a project. */
export function started(project, args) {
  return spawnSync(process.execPath, args, { cwd: project, encoding: 'utf8', env: bare() });
}

/** Without what could compile kernels: all must come from packages. */
export function bare() {
  return { ...process.env, X_CLANG: '/nonexistent', X_CACHE_DIR: join(work, 'cache') };
}

/** @param result true, a sentence that says what is wrong, or a process that is to have ended well */
export function report(label, result) {
  const good = result === true || result.status === 0;
  if (!good) failures++;
  console.log(`${good ? 'ok  ' : 'FAIL'} ${label}${good ? '' : `\n${result.stderr ?? result}${result.stdout ?? ''}`}`);
}

export function must(program, args, cwd, env = process.env) {
  const result = spawnSync(program, args, { cwd, encoding: 'utf8', env });
  if (result.status === 0) return;
  console.error(`${program} ${args.join(' ')} in ${cwd}\n${result.stdout}${result.stderr}${result.error ?? ''}`);
  process.exit(1);
}
