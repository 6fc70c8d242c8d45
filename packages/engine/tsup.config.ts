import { defineConfig } from 'tsup';
import { library } from '../../tsup.config.base';

// The program of threads lies beside what starts them.
export default defineConfig(library({ index: 'src/index.ts', worker: 'src/parallel/worker.ts' }));
