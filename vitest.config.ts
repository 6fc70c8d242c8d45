import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vitest/config';
import { BaseSequencer, type TestSpecification } from 'vitest/node';

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

class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const rank = ({ moduleId }: TestSpecification) => (LONG.test(moduleId) ? 0 : 1);
    return (await super.sort(files)).sort((a, b) => rank(a) - rank(b));
  }
}

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
    include: ['packages/*/{src,test}/**/*.test.ts', 'tools/**/*.test.ts'],
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
