import { readdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vitest/config';
import { BaseSequencer, type TestSpecification } from 'vitest/node';
import { LONG, testFiles } from './tools/test/projects.ts';
import { available as native, prepare } from './tools/test/typescript.mjs';

const source = (name: string) => {
  const [folder, part = ''] = name.split('/');
  return fileURLToPath(new URL(`./packages/${folder}/src/${part}/index.ts`, import.meta.url));
};
const packages = readdirSync(new URL('./packages', import.meta.url));

const files = testFiles();
if (native) await prepare();

/** The longest first, then a project after the other, for a process is shared by files that follow each other. */
class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const rank = ({ moduleId, project }: TestSpecification) =>
      LONG.test(moduleId) ? -1 : ['own', 'backend', 'plain'].indexOf(project.name);
    return (await super.sort(files)).sort((a, b) => rank(a) - rank(b));
  }
}

const setup = [...(native ? ['tools/test/typescript.mjs'] : []), 'tools/test/equal-bytes.ts'];
const shared = 'tools/test/shared-process.ts';

export default defineConfig({
  resolve: {
    alias: {
      // Before their packages, whose names they begin with.
      '@x/core/files': source('core/files'),
      '@x/server/ai-sdk': source('server/ai-sdk'),
      './thread-program': fileURLToPath(new URL('./packages/testing/src/thread-program.ts', import.meta.url)),
      ...Object.fromEntries(packages.map((name) => [`@x/${name}`, source(name)])),
      '@x/testing': fileURLToPath(new URL('./packages/testing/src', import.meta.url)),
    },
  },
  test: {
    projects: [
      { extends: true, test: { name: 'own', include: files.own, setupFiles: setup } },
      {
        extends: true,
        test: {
          name: 'backend',
          include: files.backend,
          isolate: false,
          setupFiles: [...setup, 'packages/rocm-backend/src/index.ts', shared],
        },
      },
      { extends: true, test: { name: 'plain', include: files.plain, isolate: false, setupFiles: [...setup, shared] } },
    ],
    globalSetup: 'tools/test/temporary.ts',
    experimental: native ? { viteModuleRunner: false, nodeLoader: false } : {},
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
