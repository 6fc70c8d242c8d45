import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { afterAll, expect, test } from 'vitest';
import { fileText, type Line, linesOf, textOf } from './lines';

const folder = mkdtempSync(join(tmpdir(), 'candle-test-'));
afterAll(() => rmSync(folder, { recursive: true }));

const ERRORS = {
  unreadable: ({ code }: NodeJS.ErrnoException) => new Error(`unreadable: ${code}`),
  tooLong: (mostBytes: number, line?: number) => new Error(`too long: ${mostBytes} ${line}`),
  notUtf8: (_: unknown, line?: number) => new Error(`no UTF-8: ${line}`),
};
const source = (...chunks: (string | Buffer)[]) => {
  const bytes = chunks.map((chunk) => Buffer.from(chunk as string));
  return () => Readable.from(bytes);
};

async function lines(...args: Parameters<typeof linesOf>): Promise<Line[]> {
  const found: Line[] = [];
  for await (const line of linesOf(...args)) found.push(line);
  return found;
}

test('lines have their numbers and places, however the bytes come', async () => {
  const bytes = Buffer.from('\uFEFFa\r\n\n\uFEFFü…\nlast');
  const wanted = [
    { number: 1, start: 0, end: 6, text: 'a', whole: true },
    { number: 2, start: 6, end: 7, text: '', whole: true },
    { number: 3, start: 7, end: 16, text: '\uFEFFü…', whole: true },
    { number: 4, start: 16, end: 20, text: 'last', whole: false },
  ];
  const path = join(folder, 'text');
  writeFileSync(path, bytes);
  for (const text of [source(bytes), source(...Array.from(bytes, (byte) => Buffer.of(byte))), fileText(path)])
    expect(await lines(text, ERRORS)).toEqual(wanted);
  expect(await textOf(fileText(path), ERRORS)).toBe('a\r\n\n\uFEFFü…\nlast');
  expect([await lines(source(''), ERRORS), await textOf(source(), ERRORS)]).toEqual([[], '']);
});

test('what is no text is said with its line', async () => {
  await expect(lines(source('a\n', Buffer.of(0xff), '\nb'), ERRORS)).rejects.toThrow('no UTF-8: 2');
  await expect(lines(source('a\n', Buffer.of(0xc3)), ERRORS)).rejects.toThrow('no UTF-8: 2');
  await expect(textOf(source(Buffer.of(0xff)), ERRORS)).rejects.toThrow('no UTF-8: undefined');
  const [, cut] = await lines(source('a\n', Buffer.of(0xc3)), ERRORS, undefined, true);
  expect(cut).toMatchObject({ number: 2, start: 2, end: 3, whole: false });
});

test('a file that cannot be read, and a signal, end it', async () => {
  for (const read of [lines, textOf]) {
    await expect(read(fileText(join(folder, 'none')), ERRORS)).rejects.toThrow('unreadable: ENOENT');
    await expect(read(fileText(folder), ERRORS)).rejects.toThrow('unreadable: EISDIR');
    await expect(read(fileText('none'), ERRORS, AbortSignal.abort(new Error('stop')))).rejects.toThrow('stop');
  }
  const controller = new AbortController();
  const endless = () =>
    new Readable({
      read() {
        this.push('line\n');
      },
    });
  let count = 0;
  const reading = (async () => {
    for await (const _ of linesOf(endless, ERRORS, controller.signal))
      if (++count === 3) controller.abort(new Error('stop'));
  })();
  await expect(reading).rejects.toThrow('stop');
});
