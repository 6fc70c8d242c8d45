/**
 * Builds the documentation site into .cache/site/dist: pages by vitepress, the reference of all packages by typedoc into
 * api/, and fails where an internal link leads nowhere.
 *
 *   tsx docs/build.ts
 */
import { readdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { build } from 'vitepress';
import { ROOT } from './site/links';
import { buildReference } from './site/reference';
import { deadLinks } from './site/site-links';

const dist = join(ROOT, '.cache/site/dist');
rmSync(dist, { recursive: true, force: true });
await build(join(ROOT, 'docs'));
await buildReference(join(dist, 'api'));
const dead = deadLinks(dist);
for (const line of dead) console.error(line);
const pages = readdirSync(dist, { recursive: true, encoding: 'utf8' }).filter((name) => name.endsWith('.html'));
const reference = pages.filter((name) => name.startsWith('api/')).length;
console.log(`${pages.length - reference} pages, ${reference} of reference, ${dead.length} dead links: ${dist}`);
if (dead.length > 0) process.exitCode = 1;
if (!readFileSync(join(dist, 'index.html'), 'utf8').includes('candle for TypeScript'))
  throw new Error('the front page is empty');
