import { describe, expect, it } from 'vitest';

describe('typed arrays in tests', () => {
  it('are equal when their bytes are, and otherwise when their elements are', () => {
    expect(new Float32Array([1, Number.NaN])).toEqual(new Float32Array([1, Number.NaN]));
    expect({ x: [new Uint8Array([1, 2]).subarray(1)] }).toEqual({ x: [new Uint8Array([2])] });
    const other = new Float32Array(new Uint32Array([0x7fc00001]).buffer);
    expect(other).toEqual(new Float32Array([Number.NaN]));
  });

  it('are not equal when their elements, their numbers or their kinds differ', () => {
    expect(new Float32Array([0])).not.toEqual(new Float32Array([-0]));
    expect(new Float32Array([1])).not.toEqual(new Float32Array([2]));
    expect(new Float32Array([1])).not.toEqual(new Float32Array([1, 0]));
    expect(new Uint32Array([1])).not.toEqual(new Int32Array([1]));
    expect(() => expect(new Uint8Array([1, 2])).toEqual(new Uint8Array([1, 3]))).toThrow('deeply equal');
  });
});
