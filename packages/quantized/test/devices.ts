/** A device with kernels for a few quantized types, made of the plain backend: what a GPU looks like from here. */
import {
  type BackendDevice,
  type BackendStorage,
  Device,
  JsDevice,
  Layout,
  type Operand,
  type QuantizedOps,
  registerBackend,
} from '@x/core';
import { blockFormat, byteLengthOf, type QuantType } from '../src/blocks';

/** Calls that reached the kernels, in order. */
export const calls: string[] = [];
/** Values' worth of zero blocks that this device wants behind a weight. */
export const PADDING = 768;
/** Bytes of every write to a storage. */
export const writes: number[] = [];

function withKernels(device: BackendDevice, supported: readonly string[]): BackendDevice {
  function numbers(weight: BackendStorage, type: string): Float32Array {
    const format = blockFormat(type as QuantType);
    const bytes = new Uint8Array(weight.toHostSync());
    const blocks = bytes.length / format.blockBytes;
    const out = new Float32Array(blocks * format.blockSize);
    format.dequantize(bytes, 0, out, 0, blocks);
    return out;
  }
  function activations({ storage, layout }: Operand, count: number): Float32Array {
    const f32 = device.ops.toDtype({ storage, layout: Layout.contiguous([count], layout.startOffset) }, 'f32');
    return new Float32Array(f32.toHostSync(0, count));
  }
  const quantized: QuantizedOps = {
    supports: (type) => supported.includes(type),
    allocatedBytes: (type, elemCount) => byteLengthOf(blockFormat(type), elemCount + PADDING),
    allocate(type, elemCount) {
      return device.zeros(quantized.allocatedBytes(type, elemCount), 'u8');
    },
    dequantize(weight, type, elemCount, dtype) {
      calls.push(`dequantize ${type} ${elemCount} ${dtype}`);
      const values = Float32Array.from(numbers(weight, type));
      const f32 = device.fromHost(values, 'f32');
      return dtype === 'f32'
        ? f32
        : device.ops.toDtype({ storage: f32, layout: Layout.contiguous([elemCount]) }, dtype);
    },
    matmul(weight, type, { m, n, k, firstRow = 0 }, x) {
      calls.push(`matmul ${type} ${m}x${n}x${k}`);
      const w = numbers(weight, type).subarray(firstRow * k);
      const a = activations(x, m * k);
      const out = new Float32Array(m * n);
      for (let i = 0; i < m; i++) {
        for (let j = 0; j < n; j++) {
          let sum = 0;
          for (let l = 0; l < k; l++) sum += a[i * k + l] * w[j * k + l];
          out[i * n + j] = sum;
        }
      }
      return device.fromHost(out, 'f32');
    },
    // The blocks of this device are the numbers.
    quantizeActivations(x, { m, k }) {
      return device.fromHost(new Uint8Array(activations(x, m * k).buffer), 'u8');
    },
    matmulActivations(weight, type, size, blocks) {
      const values = device.fromHost(new Float32Array(blocks.toHostSync()), 'f32');
      return quantized.matmul(weight, type, size, { storage: values, layout: Layout.contiguous([size.m, size.k]) });
    },
    indexedMoe(weight, type, { n, k, topk, shared }, x, ids) {
      calls.push(`indexedMoe ${type} ${ids.layout.elemCount}x${n}x${k}`);
      const w = numbers(weight, type);
      const list = new Uint32Array(ids.storage.toHostSync(ids.layout.startOffset, ids.layout.elemCount));
      const a = activations(x, (shared ? list.length / topk : list.length) * k);
      const out = new Float32Array(list.length * n);
      for (const [pair, expert] of list.entries()) {
        const row = (shared ? Math.floor(pair / topk) : pair) * k;
        for (let j = 0; j < n; j++) {
          for (let l = 0; l < k; l++) out[pair * n + j] += a[row + l] * w[(expert * n + j) * k + l];
        }
      }
      return device.fromHost(out, 'f32');
    },
    embedding(weight, type, k, ids) {
      calls.push(`embedding ${type} ${k}`);
      const w = numbers(weight, type);
      const list = new Uint32Array(ids.storage.toHostSync(ids.layout.startOffset, ids.layout.elemCount));
      const out = new Float32Array(list.length * k);
      for (const [i, id] of list.entries()) out.set(w.subarray(id * k, (id + 1) * k), i * k);
      return device.fromHost(out, 'f32');
    },
  };
  const write: BackendDevice['write'] = (dst, byteOffset, bytes) => {
    writes.push(bytes.byteLength);
    device.write(dst, byteOffset, bytes);
  };
  return new Proxy(device, {
    get(target, key) {
      if (key === 'quantized') return quantized;
      if (key === 'write') return write;
      const value = Reflect.get(target, key, target) as unknown;
      return typeof value === 'function' ? value.bind(target) : value;
    },
  });
}

/** Registers the device as `rocm:0`, with kernels for these types. */
export function kernelDevice(supported: readonly string[]): Device {
  registerBackend({
    kind: 'rocm',
    list: () => ({ devices: [{ ordinal: 0, description: 'test' }] }),
    open: (ordinal) => withKernels(new JsDevice({ kind: 'rocm', ordinal }), supported),
  });
  return Device.rocm(0);
}
