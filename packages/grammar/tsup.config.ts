import { defineConfig } from 'tsup';
import { library } from '../../tsup.config.base';

export default defineConfig(library());
