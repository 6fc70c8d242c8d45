/** DeepSeek V3 as it is published: matrices in fp8 with a scale a block. */
import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { memoryStats, scope, Tensor } from '@x/core';
import { SafetensorsFile, saveSafetensors } from '@x/core/files';
import { afterAll, expect, it } from 'vitest';
import { loadModel } from '../src';
import { deviceNames, temporaryDirectory } from './helpers';

const source = fileURLToPath(new URL('../../../models/tiny/deepseek_v3/', import.meta.url));
const { path: root, remove } = temporaryDirectory();
afterAll(remove);

/** Rows and columns that share a scale; the model is too small for 128. */
const BLOCK = 16;

/** The layers' matrices in fp8, and in another folder as the numbers that those are. */
async function writeBoth(): Promise<{ packed: string; plain: string }> {
  const [packed, plain] = ['packed', 'plain'].map((name) => join(root, name));
  const config = JSON.parse(readFileSync(join(source, 'config.json'), 'utf8'));
  const quantization_config = { quant_method: 'fp8', fmt: 'e4m3', weight_block_size: [BLOCK, BLOCK] };
  const file = SafetensorsFile.open(join(source, 'model.safetensors'));
  const tensors: Record<string, Record<string, Tensor>> = { packed: {}, plain: {} };
  for (const name of file.names) {
    const tensor = file.loadSync(name, 'js');
    if (!/layers.*proj.*\.weight$/.test(name)) {
      tensors.packed[name] = tensors.plain[name] = tensor;
      continue;
    }
    const [rows, columns] = tensor.shape;
    const values = tensor.toDtype('f32').toArraySync<Float32Array>();
    const across = Math.ceil(columns / BLOCK);
    const scales = new Float32Array(Math.ceil(rows / BLOCK) * across);
    const blockOf = (i: number) =>
      Math.floor(Math.floor(i / columns) / BLOCK) * across + Math.floor((i % columns) / BLOCK);
    for (const [i, x] of values.entries()) scales[blockOf(i)] = Math.max(scales[blockOf(i)], Math.abs(x) / 448);
    const narrow = Tensor.from(
      values.map((x, i) => x / scales[blockOf(i)]),
      { shape: [rows, columns], device: 'js' },
    ).toDtype('f8e4m3');
    tensors.packed[name] = narrow;
    tensors.packed[`${name}_scale_inv`] = Tensor.from(scales, {
      shape: [scales.length / across, across],
      device: 'js',
    });
    const numbers = narrow.toDtype('f32').toArraySync<Float32Array>();
    tensors.plain[name] = Tensor.from(
      numbers.map((x, i) => x * scales[blockOf(i)]),
      { shape: [rows, columns], device: 'js' },
    ).toDtype('bf16');
  }
  file.close();
  for (const [name, folder, more] of [
    ['packed', packed, { quantization_config }],
    ['plain', plain, {}],
  ] as const) {
    mkdirSync(folder);
    copyFileSync(join(source, 'tokenizer.json'), join(folder, 'tokenizer.json'));
    writeFileSync(join(folder, 'config.json'), JSON.stringify({ ...config, ...more }));
    await saveSafetensors(join(folder, 'model.safetensors'), tensors[name]);
  }
  return { packed, plain };
}

it('loads as the bf16 numbers that it stands for', async () => {
  const { packed, plain } = await scope(writeBoth);
  const ids = [356, 60, 108, 509, 314, 230];
  for (const device of deviceNames) {
    const before = memoryStats();
    const found: Float32Array[] = [];
    for (const folder of [packed, plain]) {
      using model = await loadModel(folder, { device });
      using logits = model.forward(ids, 0);
      found.push((await logits.toArray()) as Float32Array);
    }
    expect(found[0]).toEqual(found[1]);
    expect(memoryStats()).toEqual(before);
  }
});
