/** gpt-oss as it is published: experts in MXFP4, everything else in bf16. */
import { copyFileSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Device, memoryStats, scope, Tensor } from '@x/core';
import { SafetensorsFile, saveSafetensors } from '@x/core/files';
import { GgufFile, QTensor, writeGguf } from '@x/quantized';
import { readGolden } from '@x/testing/golden';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { loadModel } from '../src';
import { deviceNames, maxDifference, openDevice, temporaryDirectory } from './helpers';

const folder = fileURLToPath(new URL('../../../models/tiny/gpt_oss/', import.meta.url));

/** Rows of a weight [experts, rows, k] in MXFP4 as checkpoints have them, and the values that they stand for. */
async function packed(weight: Tensor) {
  const [experts, rows, k] = weight.shape;
  const quantised = await QTensor.quantize(weight, 'mxfp4');
  const values = quantised.dequantize('f32');
  const bytes = await quantised.toBytes();
  const [blocks, scales] = [new Uint8Array(weight.elemCount / 2), new Uint8Array(weight.elemCount / 32)];
  for (let group = 0; group < scales.length; group++) {
    scales[group] = bytes[group * 17];
    for (let i = 0; i < 32; i++) {
      const level = (bytes[group * 17 + 1 + (i % 16)] >> (i < 16 ? 0 : 4)) & 15;
      blocks[group * 16 + (i >> 1)] |= level << (i % 2 === 0 ? 0 : 4);
    }
  }
  const device = 'js';
  return {
    values,
    blocks: Tensor.from(blocks, { shape: [experts, rows, k / 32, 16], device }),
    scales: Tensor.from(scales, { shape: [experts, rows, k / 32], device }),
  };
}

/** The tiny model's experts in MXFP4, and the same values in f32. */
async function writeBoth(directories: { packed: string; plain: string }): Promise<void> {
  const file = SafetensorsFile.open(join(folder, 'model.safetensors'));
  const inBlocks: Record<string, Tensor> = {};
  const inNumbers: Record<string, Tensor> = {};
  for (const name of file.names) {
    const weight = await file.load(name, Device.js());
    if (!/experts\.(gate_up|down)_proj$/.test(name)) {
      inBlocks[name] = inNumbers[name] = weight;
      continue;
    }
    // Numbers are stored [experts, in, out].
    const { blocks, scales, values } = await packed(weight.toDtype('f32').transpose(1, 2).contiguous());
    Object.assign(inBlocks, { [`${name}_blocks`]: blocks, [`${name}_scales`]: scales });
    inNumbers[name] = values.transpose(1, 2).contiguous();
  }
  file.close();
  await saveSafetensors(join(directories.packed, 'model.safetensors'), inBlocks);
  await saveSafetensors(join(directories.plain, 'model.safetensors'), inNumbers);
  const config = JSON.parse(readFileSync(join(folder, 'config.json'), 'utf8'));
  const quantization_config = { quant_method: 'mxfp4', modules_to_not_convert: ['lm_head'] };
  writeFileSync(join(directories.packed, 'config.json'), JSON.stringify({ ...config, quantization_config }));
  copyFileSync(join(folder, 'config.json'), join(directories.plain, 'config.json'));
  for (const path of Object.values(directories))
    copyFileSync(join(folder, 'tokenizer.json'), join(path, 'tokenizer.json'));
}

describe('experts in MXFP4', () => {
  const packed = temporaryDirectory();
  const plain = temporaryDirectory();
  beforeAll(() => scope(() => writeBoth({ packed: packed.path, plain: plain.path })));
  afterAll(() => {
    packed.remove();
    plain.remove();
  });

  it.each(deviceNames)('compute what their numbers do, on %s', async (name) => {
    const { logits_std, prompts } = readGolden<{ logits_std: number; prompts: { ids: number[] }[] }>(folder);
    const [, , { ids }] = prompts;
    const before = memoryStats();
    const logits: Float32Array[] = [];
    const bytes: number[] = [];
    for (const { path } of [packed, plain]) {
      const progress: number[] = [];
      const onProgress = (loaded: number, total: number) => progress.push(loaded, total);
      const model = await loadModel(path, { device: openDevice(name), onProgress });
      expect(progress.at(-2)).toBe(progress.at(-1));
      bytes.push(memoryStats().liveBytes - before.liveBytes);
      using rows = model.forward(ids, 0);
      logits.push((await rows.toArray()) as Float32Array);
      model.dispose();
    }
    // Products with blocks round activations to eight bits.
    expect(maxDifference(logits[0], logits[1])).toBeLessThan(logits_std * 0.1);
    // 17 bytes of a block instead of 32 numbers, in two layers of eight experts of three matrices.
    const experts = 2 * 8 * 3 * 64 * 32;
    expect(bytes[1] - bytes[0]).toBeGreaterThan(experts * 4 - (experts / 32) * 18);
    expect(memoryStats()).toEqual(before);
  });

  it('are read from GGUF files, where they are blocks already', () => scope(readGguf));

  async function readGguf(): Promise<void> {
    const from = GgufFile.open(join(folder, 'model-f16.gguf'));
    const files = ['mxfp4', 'f32'] as const;
    const paths = files.map((type) => join(packed.path, `${type}.gguf`));
    for (const [i, type] of files.entries()) {
      const tensors = [];
      for (const { name, shape, format } of from.tensors.values()) {
        if (!/_exps\.weight$/.test(name)) {
          tensors.push({ name, shape, type: format!.type, data: from.readTensorBytes(name) });
          continue;
        }
        const weight = await QTensor.quantize(QTensor.fromGguf(from, name, 'js').dequantize('f32'), 'mxfp4');
        const values = await weight.dequantize('f32').toArray<Float32Array>();
        const data = type === 'mxfp4' ? await weight.toBytes() : new Uint8Array(values.buffer);
        tensors.push({ name, shape, type, data });
      }
      await writeGguf(paths[i], { metadata: from.metadata, tensors });
    }
    from.close();
    const logits: Float32Array[] = [];
    for (const path of paths) {
      const model = await loadModel(path, { device: 'js' });
      using rows = model.forward([68, 87, 31, 442], 0);
      logits.push((await rows.toArray()) as Float32Array);
      model.dispose();
    }
    expect(maxDifference(logits[0], logits[1])).toBeLessThan(0.2);
  }

  it('refuses other packings', async () => {
    const config = JSON.parse(readFileSync(join(packed.path, 'config.json'), 'utf8'));
    const other = temporaryDirectory();
    for (const file of ['model.safetensors', 'tokenizer.json'])
      copyFileSync(join(packed.path, file), join(other.path, file));
    for (const quantization_config of [{ quant_method: 'gptq' }, {}, 'mxfp4']) {
      writeFileSync(join(other.path, 'config.json'), JSON.stringify({ ...config, quantization_config }));
      await expect(loadModel(other.path, { device: 'js' })).rejects.toMatchObject({ code: 'UNSUPPORTED_MODEL' });
    }
    other.remove();
  });
});
