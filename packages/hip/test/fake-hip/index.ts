/** Builds the stand-in for libamdhip64 and runs TypeScript against it in a child process. */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { bundled } from '@x/testing/bundle';
import { compileLibrary } from '@x/testing/compiled';
import { transformSync } from 'esbuild';

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

/** The library's path; `flags` are compiler flags such as -DFAKE_R0600. */
export function buildFakeHip(flags: string[] = []): string {
  const directory = mkdtempSync(join(tmpdir(), 'x-fake-hip-'));
  const library = join(directory, 'libamdhip64.so');
  compileLibrary(here('./fake_hip.cc'), library, ['-w', ...flags]);
  return library;
}

const sources = { hip: here('../../src/index.ts'), addon: here('../../src/addon.ts') };
const packages = (name: string) => here(`../../../${name}/src/index.ts`);

/** The URL of the package's index, as `runIsolated` has it. */
export const hipModule = () => bundled(sources).hip;

/**
 * Runs the body of an async function in a fresh process and returns what it returned. `hip` is the package's index, `addon`
 * its module; with `above`, `core` and `backend` are the packages above it. The environment is the caller's, changed by
 * `environment` (undefined removes a variable).
 */
export function runIsolated<T>(
  body: string,
  environment: Record<string, string | undefined> = {},
  { above = false } = {},
): T {
  const directory = mkdtempSync(join(tmpdir(), 'x-hip-run-'));
  const script = join(directory, 'run.mjs');
  const higher: Record<string, string> = above ? { core: packages('core'), backend: packages('rocm-backend') } : {};
  const modules = bundled({ ...sources, ...higher });
  const imports = Object.entries(modules).map(([name, url]) => `import * as ${name} from ${JSON.stringify(url)};`);
  const program = `${imports.join('\n')}
const run = async () => { ${body} };
run().then((value) => console.log('\\nRESULT' + JSON.stringify(value ?? null)), (error) => { console.error(error); process.exit(3); });`;
  writeFileSync(script, transformSync(program, { loader: 'ts', format: 'esm', target: 'node20' }).code);
  const env: NodeJS.ProcessEnv = { ...process.env, ...environment };
  for (const key of Object.keys(environment)) if (environment[key] === undefined) delete env[key];
  const result = spawnSync(process.execPath, [script], { encoding: 'utf8', env, timeout: 50_000 });
  const line = result.stdout?.split('\n').find((text) => text.startsWith('RESULT'));
  if (result.status !== 0 || !line) {
    throw new Error(`child ended with ${result.signal ?? result.status}\n${result.stdout}\n${result.stderr}`);
  }
  return JSON.parse(line.slice('RESULT'.length)) as T;
}
