/** Pieces of a tensor that are read on other threads while the one before is used. */
import { closeSync, openSync, readdirSync, readlinkSync, truncateSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { Device, memoryStats } from '@x/core';
import { beforeAll, describe, expect, test } from 'vitest';
import { GgufFile, writeGguf } from '../src/gguf';
import { QTensor } from '../src/qtensor';
import { temporaryPath } from './raw-gguf';

const MIB = 2 ** 20;
/** Elements of tensors of 17 MiB in pieces that end within the last one, of one piece, and of one number. */
const SIZES = { large: 17 * MIB + 32, piece: MIB, one: 32 };

function bytesOf(count: number): Uint8Array {
  const blocks = count / 32;
  const bytes = new Uint8Array(blocks * 34);
  for (let i = 0; i < bytes.length; i++) bytes[i] = (i * 2654435761) >>> 13;
  // Scales of f16 that are small numbers.
  for (let block = 0; block < blocks; block++) bytes.set([block & 255, 0x2c], block * 34);
  return bytes;
}

describe('a file of large tensors', () => {
  const path = temporaryPath();
  beforeAll(() =>
    writeGguf(path, {
      metadata: {},
      tensors: Object.entries(SIZES).map(([name, count]) => ({
        name,
        type: 'q8_0',
        shape: [count / 32, 32],
        data: bytesOf(count),
      })),
    }),
  );

  test('gives the pieces in order, when they are ready', async () => {
    using file = GgufFile.open(path);
    // The second time with the buffers of the first.
    for (const name of [...Object.keys(SIZES), ...Object.keys(SIZES)]) {
      const expected = file.readTensorBytes(name);
      const joined = new Uint8Array(expected.length);
      let end = 0;
      for (const { offset, bytes, ready } of file.tensorChunksAhead(name)) {
        await ready;
        expect(offset).toBe(end);
        joined.set(bytes, offset);
        end += bytes.length;
      }
      expect(end).toBe(expected.length);
      expect(Buffer.compare(joined, expected)).toBe(0);
    }
  });

  test('loads two tensors at once', async () => {
    using file = GgufFile.open(path);
    const load = () => QTensor.load(file, 'large', 'js');
    const [first, second] = await Promise.all([load(), load()]);
    using whole = QTensor.fromGguf(file, 'large', 'js');
    const bytes = await whole.data.toBytes();
    for (const made of [first, second]) {
      expect(Buffer.compare(await made.data.toBytes(), bytes)).toBe(0);
      made.dispose();
    }
  });

  test('keeps the descriptor until nothing reads from it, and gives it back then', async () => {
    const isOpen = () => readdirSync('/proc/self/fd').some((fd) => target(fd) === path);
    const file = GgufFile.open(path);
    const pieces = file.tensorChunksAhead('large');
    const { ready } = pieces.next().value as { ready: Promise<void> };
    file.close();
    const other = openSync(fileURLToPath(import.meta.url), 'r');
    expect(target(String(other))).not.toBe(path);
    await ready;
    closeSync(other);
    pieces.return();
    for (let turn = 0; turn < 100 && isOpen(); turn++) await new Promise((resolve) => setTimeout(resolve, 5));
    expect(isOpen()).toBe(false);
    await expect(QTensor.load(file, 'large', 'js')).rejects.toThrow(/closed/);
  });

  test('stops with the reason of a signal, and leaves nothing', async () => {
    using file = GgufFile.open(path);
    const before = memoryStats();
    const controller = new AbortController();
    const loading = QTensor.load(file, 'large', Device.js(), { signal: controller.signal });
    setImmediate(() => controller.abort(new Error('enough')));
    await expect(loading).rejects.toThrow('enough');
    expect(memoryStats()).toEqual(before);
  });

  test('says where a file ended that became shorter', async () => {
    using file = GgufFile.open(path);
    const before = memoryStats();
    truncateSync(path, 9 * MIB);
    await expect(QTensor.load(file, 'large', 'js')).rejects.toThrow(/became shorter/);
    expect(memoryStats()).toEqual(before);
  });
});

function target(fd: string): string | undefined {
  try {
    return readlinkSync(`/proc/self/fd/${fd}`);
  } catch {
    return undefined;
  }
}
