// What the checks of packed packages share: the tarballs, projects that install them, and the lines of the report.
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { root } from '../../setup/steps.mjs';

export const GPU_KERNELS = '@x/kernels-gfx11';
/** Removed at the end. */
export const work = mkdtempSync(join(tmpdir(), 'candle-packages-'));
const pnpm = join(root, '.cache/tools/node_modules/pnpm/bin/pnpm.cjs');
let failures = 0;

export function failed() {
  return failures;
}

/** The tarballs by name, with the compiled code of this machine's platform, and of one GPU that CI builds for. */
export function pack() {
  const host = `@x/hip-linux-${process.arch}-gnu,@x/kernels-host-${process.arch},${GPU_KERNELS}`;
  const stage = join(root, 'node_modules/.bin/tsx');
  const out = join(work, 'tarballs');
  must(stage, ['tools/release/stage.ts', '--out', out, '--quality', '5', '--only', host, '--allow-missing'], root);
  const { packages } = JSON.parse(readFileSync(join(out, 'release.json'), 'utf8'));
  return Object.fromEntries(packages.map(({ name, tarball }) => [name, join(out, tarball)]));
}

export function isCompiledCode(name) {
  return /^@x\/(hip|kernels)-/.test(name);
}

/**
 * A project that depends on `names`: our own packages resolve to their tarballs, everything else to the registry.
 * @param settings `pnpm`: installed by it instead of npm
 */
export function install(project, names, tarballs, settings = {}) {
  mkdirSync(project, { recursive: true });
  const dependencies = Object.fromEntries(names.map((name) => [name, `file:${tarballs[name]}`]));
  // npm refuses to override what is asked for directly; pnpm wants every name.
  const others = Object.entries(tarballs).filter(([name]) => settings.pnpm || !names.includes(name));
  const overrides = Object.fromEntries(others.map(([name, tarball]) => [name, `file:${tarball}`]));
  // Those of other platforms are not packed here, and npm leaves them out when it does not find them; pnpm is told to.
  if (settings.pnpm)
    for (const name of readdirSync(join(root, 'prebuilt')).map((folder) => `@x/${folder}`))
      if (!(name in tarballs)) overrides[name] = '-';
  const manifest = {
    name: 'consumer',
    private: true,
    dependencies,
    ...(settings.pnpm ? { pnpm: { overrides } } : { overrides }),
  };
  writeFileSync(join(project, 'package.json'), JSON.stringify(manifest));
  if (settings.pnpm)
    must(process.execPath, [pnpm, 'install', '--ignore-scripts', '--silent', '--no-frozen-lockfile'], project);
  else must('npm', ['install', '--no-audit', '--no-fund', '--silent', '--ignore-scripts'], project);
}

/** Runs a module's text in a project. */
export function node(project, program) {
  return spawnSync(process.execPath, ['--input-type=module', '-e', program], {
    cwd: project,
    encoding: 'utf8',
    env: bare(),
  });
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
