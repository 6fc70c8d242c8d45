/** What a model of random weights writes for the schemas of the JSON-Schema-Test-Suite validates with ajv. */
import { compileSchema, GrammarError } from '@x/grammar';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Group, suiteFiles, validator } from '../../grammar/test/suite';
import { type LanguageModel, loadModel } from '../src';
import { openDevice, TINY } from './helpers';

/** Texts that are not over by then are cut, such as a string of any length. */
const MOST_TOKENS = 64;
const SEEDS = [1, 2, 3];
const totals = { finished: 0, cut: 0 };

function compiles({ schema }: Group): boolean {
  try {
    compileSchema(schema);
    return true;
  } catch (error) {
    if (error instanceof GrammarError) return false;
    throw error;
  }
}

describe('outputs of a random model', () => {
  let model: LanguageModel;
  beforeAll(async () => {
    model = await loadModel(TINY, { device: openDevice('cpu'), maxContext: 128 });
  });
  afterAll(() => model.dispose());

  it.each(suiteFiles())('meet the schemas of draft $draft, $name', async ({ draft, groups }) => {
    const outputs = groups.filter(compiles).flatMap(({ description, schema }) => {
      const validate = validator(schema, draft);
      return SEEDS.map(async (seed) => {
        const options = { schema: schema as object, temperature: 1.5, seed, maxTokens: MOST_TOKENS };
        const generation = model.generate('{', options);
        const text = await generation.text();
        if (generation.stats.finishReason !== 'eos') {
          totals.cut++;
          return;
        }
        totals.finished++;
        const value: unknown = await generation.value();
        expect(validate?.(value), `${description}: ${text} ${JSON.stringify(validate?.errors)}`).toBe(true);
      });
    });
    await Promise.all(outputs);
  });

  it('were texts that came to their end', () => {
    expect(totals.finished).toBeGreaterThan(280);
  });
});
