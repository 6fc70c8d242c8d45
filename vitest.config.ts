import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vitest/config';
import { BaseSequencer, type TestSpecification } from 'vitest/node';

const ROOT = fileURLToPath(new URL('.', import.meta.url));
const source = (name: string) => {
  const [folder, part = ''] = name.split('/');
  return fileURLToPath(new URL(`./packages/${folder}/src/${part}/index.ts`, import.meta.url));
};
const packages = [
  'core',
  'hip',
  'kernels',
  'rocm-backend',
  'quantized',
  'nn',
  'transformers',
  'grammar',
  'hub',
  'engine',
  'server',
  'candle',
];

/** What takes minutes or nearly one begins first: last, it would leave a core with nothing to do. */
const LONG = /(hiprtc-\w+|same-family|runtime-modules|nvcc|speculative|faults|cli|parallel|architectures)\.test\.ts$/;

/** What a test does to its process, counts in it or asks of it: its file has a process of its own. */
const OWN =
  /process\.(env|on|emit|chdir|exit)|globalThis|vi\.(mock|stub|spyOn|use)|child_process|worker_threads|testing\/ranks|FAKE_|fake-hip|memoryStats|memoryUsage|gc\(|registerBackend/;

/** What registers the kernels' backend. */
const WITH_BACKEND =
  /testing\/(devices|minimal-backend|nn)|rocm-backend|engine\/test\/helpers|'\.\/(api|functions|helpers)'/;

/**
 * Test files by what they may share. Importing the sources takes a second, so that files share a process where nothing tells them
 * apart: those of the backend, and those that have none (tools/test/shared-process.ts).
 */
function testFiles(): Record<'own' | 'backend' | 'plain', string[]> {
  const found: ReturnType<typeof testFiles> = { own: [], backend: [], plain: [] };
  const folders = { packages: /^[^/]+\/(src|test)\/.*\.test\.ts$/, tools: /\.test\.ts$/ };
  for (const [folder, isTest] of Object.entries(folders)) {
    for (const name of readdirSync(join(ROOT, folder), { encoding: 'utf8', recursive: true })) {
      if (!isTest.test(name)) continue;
      const file = join(folder, name);
      const text = readFileSync(join(ROOT, file), 'utf8');
      const inBackend = file.startsWith('packages/rocm-backend/');
      if (LONG.test(file) || OWN.test(text) || (!inBackend && WITH_BACKEND.test(text))) found.own.push(file);
      else found[inBackend ? 'backend' : 'plain'].push(file);
    }
  }
  return found;
}
const files = testFiles();

/** The longest first, then a project after the other, for a process is shared by files that follow each other. */
class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const rank = ({ moduleId, project }: TestSpecification) =>
      LONG.test(moduleId) ? -1 : ['own', 'backend', 'plain'].indexOf(project.name);
    return (await super.sort(files)).sort((a, b) => rank(a) - rank(b));
  }
}

const shared = 'tools/test/shared-process.ts';

export default defineConfig({
  resolve: {
    alias: {
      // Before their packages, whose names they begin with.
      '@x/core/files': source('core/files'),
      '@x/server/ai-sdk': source('server/ai-sdk'),
      './thread-program': fileURLToPath(new URL('./packages/testing/src/thread-program.ts', import.meta.url)),
      '@x/testing': fileURLToPath(new URL('./packages/testing/src', import.meta.url)),
      ...Object.fromEntries(packages.map((name) => [`@x/${name}`, source(name)])),
    },
  },
  test: {
    projects: [
      { extends: true, test: { name: 'own', include: files.own } },
      {
        extends: true,
        test: {
          name: 'backend',
          include: files.backend,
          isolate: false,
          setupFiles: ['packages/rocm-backend/src/index.ts', shared],
        },
      },
      { extends: true, test: { name: 'plain', include: files.plain, isolate: false, setupFiles: [shared] } },
    ],
    globalSetup: 'tools/test/temporary.ts',
    pool: 'forks',
    maxWorkers: 2,
    // Young objects have room: with Node's 16 MB a tenth of a worker's time goes to clearing them.
    execArgv: ['--max-semi-space-size=64'],
    sequence: { sequencer: LongestFirst },
    testTimeout: 60_000,
    // Some compile stand-ins, beside whatever else the machine does.
    hookTimeout: 120_000,
  },
});
