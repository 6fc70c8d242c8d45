/** Builds the stand-in for libamdhip64 and runs TypeScript against it in a child process. */
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

/** The library's path; `flags` are compiler flags such as -DFAKE_R0600. */
export function buildFakeHip(flags: string[] = []): string {
  const directory = mkdtempSync(join(tmpdir(), 'x-fake-hip-'));
  const library = join(directory, 'libamdhip64.so');
  execFileSync(process.env.CXX ?? 'g++', [
    '-shared',
    '-fPIC',
    '-std=c++17',
    '-w',
    ...flags,
    here('./fake_hip.cc'),
    '-o',
    library,
  ]);
  return library;
}

/**
 * Runs the body of an async function in a fresh process and returns what it returned. `hip` is the package's index. The
 * environment is the caller's, changed by `environment` (undefined removes a variable).
 */
export function runIsolated<T>(body: string, environment: Record<string, string | undefined> = {}): T {
  const directory = mkdtempSync(join(tmpdir(), 'x-hip-run-'));
  const script = join(directory, 'run.mts');
  const index = JSON.stringify(here('../../src/index.ts'));
  writeFileSync(
    script,
    `import * as hip from ${index};
const run = async () => { ${body} };
run().then((value) => console.log('\\nRESULT' + JSON.stringify(value ?? null)), (error) => { console.error(error); process.exit(3); });`,
  );
  const tsx = here('../../../../node_modules/tsx/dist/cli.mjs');
  const config = here('../../../../tsconfig.base.json');
  const env: NodeJS.ProcessEnv = { ...process.env, ...environment };
  for (const key of Object.keys(environment)) if (environment[key] === undefined) delete env[key];
  const result = spawnSync(process.execPath, [tsx, '--tsconfig', config, script], {
    encoding: 'utf8',
    env,
    timeout: 50_000,
  });
  const line = result.stdout?.split('\n').find((text) => text.startsWith('RESULT'));
  if (result.status !== 0 || !line) {
    throw new Error(`child ended with ${result.signal ?? result.status}\n${result.stdout}\n${result.stderr}`);
  }
  return JSON.parse(line.slice('RESULT'.length)) as T;
}
