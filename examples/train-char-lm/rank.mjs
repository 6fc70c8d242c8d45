// A worker does not inherit the TypeScript loader of the main thread, so it registers one.
import { register } from 'tsx/esm/api';

register();
await import('./main.ts');
