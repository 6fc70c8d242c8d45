// What everyone who clones the project gets of models stays small.
import { readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';

const models = fileURLToPath(new URL('../../models', import.meta.url));
/** Bytes of all files: a new model's GGUF file is worth them where its layout says what no other one's does. */
const MOST = 29_500_000;

it('the models of tests take less than 29.5 MB', () => {
  const sizes = ['tiny', 'encoders'].flatMap((part) =>
    readdirSync(join(models, part), { recursive: true, encoding: 'utf8' }).map((file) => {
      const found = statSync(join(models, part, file));
      return found.isFile() ? found.size : 0;
    }),
  );
  expect(sizes.length).toBeGreaterThan(100);
  expect(sizes.reduce((sum, size) => sum + size, 0)).toBeLessThan(MOST);
});
