import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { CODEBOOKS, codebookHeader } from './codebooks';

it('the kernels have the codebooks of the TypeScript reference', () => {
  expect(readFileSync(CODEBOOKS, 'utf8'), 'run `tsx tools/kernels/codebooks.ts`').toBe(codebookHeader());
});
