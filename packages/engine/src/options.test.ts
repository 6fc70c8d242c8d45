import { kinds } from '@x/core';
import { expect, test } from 'vitest';
import { checkOptions } from './options';

const rules = { temperature: kinds.NUMBER, maxTokens: kinds.NUMBER };

function failure(options: unknown): string {
  try {
    checkOptions('generate', options, rules);
  } catch (error) {
    return `${(error as { code: string }).code} ${(error as Error).message}`;
  }
  return 'none';
}

test('options that are known and of their type pass, undefined among them', () => {
  for (const options of [{}, { temperature: 0 }, { temperature: undefined, maxTokens: 3 }])
    expect(failure(options)).toBe('none');
});

test('others are named, with what is near and what to give', () => {
  expect(failure({ temprature: 0 })).toMatch(/^INVALID_OPTION generate: .*"temprature".*'temperature'/);
  expect(failure({ maxTokens: '5' })).toMatch(/^INVALID_OPTION generate: maxTokens is "5"; give a number/);
  expect(failure({ quite: 1 })).toMatch(/"quite".*Options: temperature, maxTokens/);
  for (const options of [null, 5, 'x', [1]])
    expect(failure(options)).toMatch(/^INVALID_OPTION generate: the options are/);
});
