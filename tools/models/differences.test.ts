import { Device } from '@x/core';
import { expect, it } from 'vitest';
import { cases, differences, quantizedCase } from './differences';

it.each([
  ['js', 2e-4, ['prompt', 'steps', 'batch']],
  ['cpu', 2e-3, ['prompt', 'steps', 'captured', 'batch']],
])('logits beside those of transformers in every mode, on %s', async (name, most, modes) => {
  for (const one of cases(['llama', 'lfm2'])) {
    const found = await differences(one, Device.parse(name));
    expect(Object.keys(found), one.path).toEqual(modes);
    for (const value of Object.values(found)) expect(value, one.path).toBeLessThan(most);
    // Sums in another order: a difference of nothing would be a comparison with itself.
    expect(Math.max(...Object.values(found))).toBeGreaterThan(0);
  }
});

it('sees logits that are not those of the model', async () => {
  const [one] = cases(['llama']);
  const wrong = { ...one, prompts: one.prompts.map(({ ids, last }) => ({ ids: [...ids, 40], last })) };
  const found = await differences(wrong, Device.js());
  for (const value of Object.values(found)) expect(value).toBeGreaterThan(0.1);
  expect(quantizedCase().deviation).toBeGreaterThan(1);
});
