import { expect, test } from 'vitest';
import { sizesFor } from './sizes';

test('what is not asked for fits the context', () => {
  expect(sizesFor({ context: [] }, 4096)).toEqual({ prompt: 512, gen: 128 });
  expect(sizesFor({ context: [] }, 512)).toEqual({ prompt: 384, gen: 128 });
  expect(sizesFor({ context: [] }, 64)).toEqual({ prompt: 32, gen: 32 });
  expect(sizesFor({ gen: 500, context: [12] }, 512)).toEqual({ prompt: 12, gen: 500 });
  expect(sizesFor({ prompt: 384, context: [384] }, 512)).toEqual({ prompt: 384, gen: 128 });
});

test.each([
  [{ prompt: 385, context: [] }, /^--prompt 385 and --gen 128 take 513 .* has 512; give a --prompt of at most 384, or/],
  [{ gen: 64, context: [8, 449] }, /^--context 449 and --gen 64 take 513 .* give a --context of at most 448, or/],
  [{ gen: 512, context: [] }, /^--prompt 1 and --gen 512 take 513 .* give a --gen of at most 511\.$/],
])('%o does not fit', (asked, message) => {
  expect(() => sizesFor(asked, 512)).toThrow(message);
});
