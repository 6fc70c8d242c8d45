// Text parts of models of texts and images: what transformers' classes of the whole compute for texts (tools/golden/text_parts.py).
import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { scope, Tensor } from '@x/core';
import { SafetensorsFile, saveSafetensors } from '@x/core/files';
import { GgufFile, type GgufValue, gguf, type QuantType, writeGguf } from '@x/quantized';
import { afterAll, expect, it } from 'vitest';
import { loadModel } from '../src';
import { deviceNames, maxDifference, temporaryDirectory } from './helpers';

interface Whole {
  whole: string;
  /** Whose weights its text part has. */
  base: string;
  config: object;
  /** In front of the text part's names, and the head's name. */
  part: string;
  head: string | null;
  /** Names of other parts' tensors. */
  others: string[];
  std: number;
  last: number[];
}

const models = fileURLToPath(new URL('../../../models/tiny/', import.meta.url));
const fixture = new URL('./fixtures/text-parts.json', import.meta.url);
const { ids, wholes } = JSON.parse(readFileSync(fixture, 'utf8')) as { ids: number[]; wholes: Whole[] };
const { path: root, remove } = temporaryDirectory();
afterAll(remove);

/** Of a checkpoint with experts one by one those in one tensor, [experts, in, out], as Qwen 3 VL has them. */
function stacked(tensors: Map<string, Tensor>): Map<string, Tensor> {
  const result = new Map([...tensors].filter(([name]) => !name.includes('.experts.')));
  for (const name of tensors.keys()) {
    const [, at] = /^(.+\.experts)\.0\.down_proj\.weight$/.exec(name) ?? [];
    if (at === undefined) continue;
    const each = (kind: string) => {
      const all: Tensor[] = [];
      for (let e = 0; tensors.has(`${at}.${e}.${kind}.weight`); e++)
        all.push(tensors.get(`${at}.${e}.${kind}.weight`)!);
      return Tensor.stack(all, 0).transpose(1, 2);
    };
    result.set(`${at}.gate_up_proj`, Tensor.cat([each('gate_proj'), each('up_proj')], -1));
    result.set(`${at}.down_proj`, each('down_proj').contiguous());
  }
  return result;
}

/** A checkpoint of the whole. @param part in front of its text part's names */
async function checkpointOf(
  { whole, base, config, others }: Whole,
  part: string,
  head: string | null,
): Promise<string> {
  const folder = join(root, `${whole}-${part}${head}`);
  mkdirSync(folder);
  copyFileSync(join(models, base, 'tokenizer.json'), join(folder, 'tokenizer.json'));
  writeFileSync(join(folder, 'config.json'), JSON.stringify(config));
  const file = SafetensorsFile.open(join(models, base, 'model.safetensors'));
  try {
    const named = (name: string) => (name.startsWith('model.') ? name.replace('model.', part) : (head ?? name));
    const read = new Map(file.names.map((name) => [name, file.loadSync(name, 'js')]));
    const bytes = scope(() => {
      const own = whole.endsWith('_moe') ? stacked(read) : read;
      const all = [...own].map(([name, tensor]) => [named(name), tensor.detach()] as const);
      return new Map([...all, ...others.map((name) => [name, Tensor.ones([2], 'f32', 'js')] as const)]);
    });
    await saveSafetensors(join(folder, 'model.safetensors'), bytes);
    for (const tensor of [...read.values(), ...bytes.values()]) tensor.dispose();
  } finally {
    file.close();
  }
  return folder;
}

async function expectLogits(path: string, { std, last }: Whole, devices = deviceNames): Promise<void> {
  for (const device of devices) {
    using loaded = await loadModel(path, { device, cacheDtype: 'f32' });
    const logitsOf = async (tokens: readonly number[], position: number) => {
      using logits = loaded.forward(tokens, position);
      return ((await logits.toArray()) as Float32Array).slice(0, last.length);
    };
    const tolerance = std * (device === 'js' ? 2e-4 : 2e-3);
    expect(maxDifference(await logitsOf(ids, 0), last)).toBeLessThan(tolerance);
    loaded.reset();
    await logitsOf(ids.slice(0, -1), 0);
    expect(maxDifference(await logitsOf(ids.slice(-1), ids.length - 1), last)).toBeLessThan(tolerance);
  }
}

it.each(wholes.map((one) => [one.whole, one] as const))('%s', async (_, one) => {
  await expectLogits(await checkpointOf(one, one.part, one.head), one);
});

it.each([
  ['gemma3', 'model.language_model.', null],
  ['gemma3', 'language_model.', null],
  ['smolvlm', 'language_model.model.', 'language_model.lm_head.weight'],
  ['smolvlm', 'model.language_model.', 'lm_head.weight'],
  ['qwen3_vl', 'model.', null],
])('%s with names that begin with %s and the head %s', async (name, part, head) => {
  const one = wholes.find(({ whole }) => whole === name)!;
  await expectLogits(await checkpointOf(one, part, head), one, ['js']);
});

/** The GGUF file of a model of texts under another architecture's name. */
async function renamedGguf(base: string, architecture: string, more: Record<string, GgufValue> = {}): Promise<string> {
  using file = GgufFile.open(join(models, base, 'model-f16.gguf'));
  const front = `${file.metadata.string('general.architecture')}.`;
  const metadata = new Map(
    [...file.metadata].map(([key, value]) => [
      key.startsWith(front) ? `${architecture}.${key.slice(front.length)}` : key,
      value,
    ]),
  );
  metadata.set('general.architecture', gguf.string(architecture));
  for (const [key, value] of Object.entries(more)) metadata.set(`${architecture}.${key}`, value);
  const tensors = [...file.tensors.values()].map(({ name, type, shape }) => {
    return { name, type: type as QuantType, shape, data: file.readTensorBytes(name) };
  });
  const path = join(root, `${architecture}-${Object.keys(more).length}.gguf`);
  await writeGguf(path, { metadata, tensors });
  return path;
}

it.each([
  ['qwen2_vl', 'qwen2vl'],
  ['qwen3_vl', 'qwen3vl'],
])('%s from a GGUF file', async (name, architecture) => {
  const one = wholes.find(({ whole }) => whole === name)!;
  const { text_config: text } = one.config as { text_config: { rope_parameters: { mrope_section: number[] } } };
  const sections = Int32Array.of(...text.rope_parameters.mrope_section, 0);
  const more = {
    'rope.dimension_sections': gguf.array('int32', sections),
    'rope.freq_base': gguf.float32(700_000),
  };
  await expectLogits(await renamedGguf(one.base, architecture, more), one);
});

it('mistral3 from a GGUF file, which is Llama unless it is Ministral', async () => {
  const one = wholes.find(({ whole }) => whole === 'llava')!;
  await expectLogits(await renamedGguf(one.base, 'mistral3'), one, ['js']);
  const grown = await renamedGguf(one.base, 'mistral3', { 'attention.temperature_scale': gguf.float32(0.1) });
  await expect(loadModel(grown, { device: 'js' })).rejects.toThrow(/temperature_scale/);
});
