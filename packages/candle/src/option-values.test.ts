import { describe, expect, test } from 'vitest';
import { decimal, someText, wholeNumber } from './option-values';

describe('values of options', () => {
  test.each([
    '0',
    '-1',
    '+1',
    '1.5',
    'NaN',
    'Infinity',
    '1e99',
    '1e3',
    '0x10',
    '',
    ' ',
    '1 ',
    'many',
    '9007199254740992',
  ])('no whole number from 1: "%s"', (text) => {
    expect(() => wholeNumber(1)(text)).toThrow('Give a whole number of at least 1.');
  });

  test('whole numbers', () => {
    expect(['1', '007', '9007199254740991'].map((text) => wholeNumber(1)(text))).toEqual([1, 7, 2 ** 53 - 1]);
    expect(wholeNumber(0, 5)('5')).toBe(5);
    expect(() => wholeNumber(0, 5)('6')).toThrow('from 0 to 5');
  });

  test.each(['-1', '-0', 'NaN', 'Infinity', '1e99', '', '.', '1,5', '0x1', 'hot', '101'])(
    'no number to 100: "%s"',
    (text) => {
      expect(() => decimal({ from: 0, to: 100 })(text)).toThrow('Give a number from 0 to 100.');
    },
  );

  test('numbers', () => {
    expect(['0', '.5', '1.', '1e-3', '100'].map((text) => decimal({ from: 0, to: 100 })(text))).toEqual([
      0, 0.5, 1, 1e-3, 100,
    ]);
    expect(() => decimal({ from: 0, to: 1, above: true })('0')).toThrow('above 0 and at most 1');
  });

  test('texts', () => {
    expect(someText('Give some.')(' ')).toBe(' ');
    expect(() => someText('Give some.')('')).toThrow('Give some.');
  });
});
