import { expect, test } from 'vitest';
import { BOOLEAN, checkOptions, fields, kind, NUMBER, POSITIVE, SIGNAL, secret } from './check';
import { CandleError } from './errors';

const KINDS = {
  tokens: POSITIVE,
  fused: BOOLEAN,
  key: secret(kind((value) => typeof value === 'string', 'give a string')),
  pad: fields({ left: NUMBER }),
  signal: SIGNAL,
};

function refusal(options: unknown): [string, string | undefined] | undefined {
  try {
    checkOptions('run', options, KINDS, (message, option) => new CandleError('INVALID_OPTION', message, { option }));
  } catch (error) {
    const { code, message, option } = error as CandleError;
    expect(code).toBe('INVALID_OPTION');
    return [message, option];
  }
  return undefined;
}

test('options of their kinds pass, and undefined is a default', () => {
  const { signal } = new AbortController();
  for (const options of [{}, { tokens: 1, fused: undefined }, { key: 'x', pad: { left: 0, other: 1 }, signal }])
    expect(refusal(options)).toBeUndefined();
});

test.each<[unknown, string, string | undefined]>([
  [null, 'run: the options are null; give an object, as { tokens: … }.', undefined],
  [[1], 'run: the options are [1]; give an object, as { tokens: … }.', undefined],
  [
    { token: 1 },
    `run: there is no option "token". Near: 'tokens', 'key'. Options: tokens, fused, key, pad, signal.`,
    'token',
  ],
  [{ toString: 1 }, 'run: there is no option "toString". Options: tokens, fused, key, pad, signal.', 'toString'],
  [{ tokens: 0 }, 'run: tokens is 0; give a whole number from 1.', 'tokens'],
  [{ fused: null }, 'run: fused is null; give true or false.', 'fused'],
  [{ pad: { left: '1' } }, 'run: pad.left is "1"; give a number.', 'pad'],
  [{ key: 7001 }, 'run: key is wrong; give a string.', 'key'],
  [
    { signal: { throwIfAborted() {} } },
    'run: signal is { throwIfAborted: a function }; give an AbortSignal, as new AbortController().signal.',
    'signal',
  ],
])('what is misspelt or of another kind is named (%#)', (options, message, option) => {
  expect(refusal(options)).toEqual([message, option]);
});
