import { defineConfig } from 'tsup';
import { library } from '../../tsup.config.base';

// Splitting: also in CommonJS both entries are one core.
export default defineConfig(library({ index: 'src/index.ts', files: 'src/files/index.ts' }, { splitting: true }));
