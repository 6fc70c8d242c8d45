import { defineConfig } from 'tsup';
import { library } from '../../tsup.config.base';

export default defineConfig(library({ index: 'src/index.ts', 'ai-sdk': 'src/ai-sdk/index.ts' }));
