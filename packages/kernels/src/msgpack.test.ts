import { describe, expect, it } from 'vitest';
import { decodeMsgPack } from './msgpack';

const bytes = (...values: number[]) => Uint8Array.from(values);

describe('decodeMsgPack', () => {
  it('reads nested maps, arrays, strings and numbers of every width', () => {
    const packed = bytes(
      ...[0x82, 0xa1, 0x61, 0x94, 0x05, 0xcc, 0xff, 0xcd, 0x01, 0x00, 0xce, 0x00, 0x01, 0x00, 0x00],
      ...[0xa1, 0x62, 0x93, 0xe0, 0xd1, 0xff, 0x00, 0xc3],
    );
    expect(decodeMsgPack(packed)).toEqual({ a: [5, 255, 256, 65536], b: [-32, -256, true] });
  });

  it('reads 64-bit integers, floats and long strings', () => {
    expect(decodeMsgPack(bytes(0xcf, 0, 0, 0, 1, 0, 0, 0, 0))).toBe(2 ** 32);
    expect(decodeMsgPack(bytes(0xcb, 0x3f, 0xf8, 0, 0, 0, 0, 0, 0))).toBe(1.5);
    expect(decodeMsgPack(bytes(0xd9, 3, 0x67, 0x66, 0x78))).toBe('gfx');
  });

  it('throws RangeError past the end and on an unknown tag', () => {
    expect(() => decodeMsgPack(bytes(0x92, 0x01))).toThrow(RangeError);
    expect(() => decodeMsgPack(bytes(0xa5, 0x61))).toThrow(RangeError);
    expect(() => decodeMsgPack(bytes(0xdd, 0xff, 0xff, 0xff, 0xff))).toThrow(RangeError);
    expect(() => decodeMsgPack(bytes(0xc1))).toThrow(/0xc1/);
  });
});
