/** The fixture that holds one 4 × 512 tensor of every type, and what the reference reader makes of it. */
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

export interface Expected {
  shape: number[];
  how: 'quantised from x' | 'random blocks';
  values: number[];
  sum: number;
  sumsq: number;
}

export const ALL_TYPES = fileURLToPath(new URL('./fixtures/all-types.gguf', import.meta.url));
export const TINY_TALES = fileURLToPath(new URL('../../../models/tiny-tales/tiny-tales-q8_0.gguf', import.meta.url));

const file = JSON.parse(readFileSync(new URL('./fixtures/all-types.expected.json', import.meta.url), 'utf8')) as Record<
  string,
  Expected
>;

/** Types by name, without the list of inputs. */
export const EXPECTED: [string, Expected][] = Object.entries(file).filter(([name]) => name !== 'x_first_row');
