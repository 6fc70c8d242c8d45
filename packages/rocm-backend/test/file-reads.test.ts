/** Weights that are read from files straight into a device's memory. */
import { mkdtempSync, truncateSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Device, memoryStats, scope, Tensor } from '@x/core';
import { SafetensorsFile, saveSafetensors } from '@x/core/files';
import { GgufFile, QTensor, writeGguf } from '@x/quantized';
import { kernelDevices } from '@x/testing/devices';
import { beforeAll, describe, expect, it, vi } from 'vitest';

const MIB = 2 ** 20;
/** Bytes of tensors that are read in many parts, in one, and of one block. */
const BLOCKS = { large: (40 * MIB) / 34, some: 1000, one: 1 };
const directory = mkdtempSync(join(tmpdir(), 'x-file-reads-'));
const path = (name: string) => join(directory, name);

function blocksOf(count: number): Uint8Array {
  const bytes = new Uint8Array(Math.floor(count) * 34).map((_, i) => (i * 2654435761) >>> 13);
  // Scales of f16 that are small numbers.
  for (let block = 0; block * 34 < bytes.length; block++) bytes.set([block & 255, 0x2c], block * 34);
  return bytes;
}

async function writeModel(name: string): Promise<string> {
  const tensors = Object.entries(BLOCKS).map(([of, count]) => {
    const data = blocksOf(count);
    return { name: of, type: 'q8_0' as const, shape: [data.length / 34, 32], data };
  });
  await writeGguf(path(name), { metadata: {}, tensors });
  return path(name);
}

describe.each(kernelDevices())('files on $location.kind', ({ location }) => {
  let device: Device;
  let model: string;
  beforeAll(async () => {
    device = Device.of(location.kind);
    model = await writeModel(`${location.kind}.gguf`);
  });

  it('arrive as they are, of several files at once by one reader', async () => {
    const open = vi.spyOn(device.backend as { openFileReader(): unknown }, 'openFileReader');
    const write = vi.spyOn(device.backend, 'write');
    const files = [GgufFile.open(model), GgufFile.open(model)];
    try {
      const names = Object.keys(BLOCKS);
      const loaded = await Promise.all(files.flatMap((file) => names.map((name) => QTensor.load(file, name, device))));
      for (const [i, weight] of loaded.entries()) {
        const bytes = await weight.data.toBytes();
        expect(Buffer.compare(bytes, files[0].readTensorBytes(names[i % names.length]))).toBe(0);
        weight.dispose();
      }
      expect(open).toHaveBeenCalledTimes(2);
      expect(write).not.toHaveBeenCalled();
    } finally {
      for (const file of files) file.close();
      vi.restoreAllMocks();
    }
  });

  it('of numbers do too', async () => {
    const values = new Float32Array(3 * MIB).map((_, i) => Math.sin(i));
    const file = path(`${location.kind}.safetensors`);
    using original = Tensor.from(values, { device: Device.js() });
    using half = original.toDtype('f16');
    using bytes = original.toDtype('u8');
    await saveSafetensors(file, { original, half, bytes });
    using opened = SafetensorsFile.open(file);
    for (const [name, tensor] of Object.entries({ original, half, bytes })) {
      using loaded = await opened.load(name, device);
      expect([loaded.dtype, loaded.shape]).toEqual([tensor.dtype, tensor.shape]);
      expect(Buffer.compare(await loaded.toBytes(), await tensor.toBytes())).toBe(0);
    }
    truncateSync(file, 2 * MIB);
    const before = memoryStats();
    await expect(opened.load('original', device)).rejects.toThrow(expect.objectContaining({ code: 'FILE_TRUNCATED' }));
    opened.close();
    await expect(opened.load('half', device)).rejects.toThrow(expect.objectContaining({ code: 'DISPOSED' }));
    expect(memoryStats()).toEqual(before);
  });

  it('come after what the device was given before', async () => {
    using file = GgufFile.open(model);
    const expected = file.readTensorBytes('large');
    for (let turn = 0; turn < 5; turn++) {
      // Work on memory that is given back while it is under way, and that the weight gets.
      scope(() => {
        const x = Tensor.zeros([expected.length / 4], 'f32', device);
        x.affine(1, turn).exp().affine(2, 1);
      });
      using weight = await QTensor.load(file, 'large', device);
      expect(Buffer.compare(await weight.data.toBytes(), expected)).toBe(0);
    }
  });

  it('that are given up leave nothing', async () => {
    const cut = await writeModel(`${location.kind}-cut.gguf`);
    using file = GgufFile.open(cut);
    const before = memoryStats();
    const load = (signal?: AbortSignal) => QTensor.load(file, 'large', device, { signal });
    const controller = new AbortController();
    const loading = load(controller.signal);
    controller.abort(new Error('enough'));
    await expect(loading).rejects.toThrow('enough');
    await expect(load(AbortSignal.abort(new Error('before')))).rejects.toThrow('before');
    truncateSync(cut, 9 * MIB);
    await expect(load()).rejects.toThrow(expect.objectContaining({ code: 'GGUF_TRUNCATED' }));
    const closing = load();
    file.close();
    await expect(closing).rejects.toThrow();
    await expect(load()).rejects.toThrow(expect.objectContaining({ code: 'DISPOSED' }));
    expect(memoryStats()).toEqual(before);
  });

  it('arrive when they are closed meanwhile: every part of these was begun', async () => {
    const file = GgufFile.open(model);
    const names = ['some', 'large'];
    const expected = names.map((name) => file.readTensorBytes(name));
    const loading = names.map((name) => QTensor.load(file, name, device));
    file.close();
    for (const [i, weight] of (await Promise.all(loading)).entries()) {
      expect(Buffer.compare(await weight.data.toBytes(), expected[i])).toBe(0);
      weight.dispose();
    }
  });
});
