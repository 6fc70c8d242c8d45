import { expect, test } from 'vitest';
import { createContext, SynchronousContext } from './context';

test('in Node a value holds after an await, and concurrent functions have their own', async () => {
  const context = createContext<number>();
  const read = async (value: number) =>
    context.run(value, async () => {
      await null;
      return context.getStore();
    });
  expect(await Promise.all([read(1), read(2)])).toEqual([1, 2]);
  expect(context.getStore()).toBeUndefined();
});

test('in a browser a value holds until the function returns, by an error too', async () => {
  const context = new SynchronousContext<number>();
  const seen: unknown[] = [];
  context.run(1, () => {
    context.run(2, () => seen.push(context.getStore()));
    expect(() =>
      context.run(3, () => {
        throw new Error('out');
      }),
    ).toThrow('out');
    seen.push(context.getStore());
  });
  const later = context.run(4, async () => {
    seen.push(context.getStore());
    await null;
    return context.getStore();
  });
  expect(context.getStore()).toBeUndefined();
  expect(await later).toBeUndefined();
  expect(seen).toEqual([2, 1, 4]);
});
