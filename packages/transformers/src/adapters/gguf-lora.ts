/**
 * Adapters in GGUF, as llama.cpp's converter writes them from PEFT's: the names and the order of rows of a GGUF model, and one
 * alpha for all layers, whose share of a layer's rank is the scale.
 */
import { Device } from '@x/core';
import { GgufFile, QTensor } from '@x/quantized';
import { shown } from '../config/problems';
import { badAdapter, type LoraDelta, type LoraFile, unsupportedAdapter } from '../weights/lora';
import { type LoraBase, rowsFor, withRows } from './base';
import { pairsOf } from './pairs';

/** @throws FileFormatError; TransformersError BAD_ADAPTER, UNSUPPORTED_ADAPTER */
export function openGgufLora(path: string, base: LoraBase): LoraFile {
  const file = GgufFile.open(path);
  try {
    const alpha = alphaOf(file, base);
    const stored = [...file.tensors.values()].map(({ name, shape }) => {
      const [, module, part] = /^(.+)\.weight\.lora_([ab])$/.exec(name) ?? [];
      if (module === undefined) throw unsupportedAdapter(path, `has a tensor beside its matrices, ${name}`);
      return { module, part: part as 'a' | 'b', matrix: { name, shape } };
    });
    const values = async (name: string) => {
      using matrix = await QTensor.load(file, name, Device.js());
      using numbers = matrix.dequantize('f32');
      return numbers.toArraySync<Float32Array>();
    };
    const deltas = pairsOf(path, stored).map(({ module, rank, a, b }): LoraDelta => {
      const rows = rowsFor(module, b.shape[0], 'interleaved', base);
      return {
        target: module,
        source: module,
        rank,
        out: b.shape[0],
        width: a.shape[1],
        // Without an alpha llama.cpp takes the matrices as they are.
        scale: alpha === 0 ? 1 : alpha / rank,
        load: async () => ({ a: await values(a.name), b: withRows(await values(b.name), rank, rows) }),
      };
    });
    return { path, deltas, close: () => file.close() };
  } catch (error) {
    file.close();
    throw error;
  }
}

function alphaOf({ path, metadata }: GgufFile, { architecture }: LoraBase): number {
  const type = metadata.string('general.type', 'model');
  if (type !== 'adapter') throw badAdapter(path, `is none: the file's general.type is ${shown(type)}`);
  const kind = metadata.string('adapter.type', '');
  if (kind !== 'lora') throw unsupportedAdapter(path, `is of the type ${shown(kind)}`);
  if (metadata.has('adapter.alora.invocation_tokens'))
    throw unsupportedAdapter(path, 'is for the tokens behind an invocation only (adapter.alora.invocation_tokens)');
  const made = metadata.string('general.architecture');
  if (made !== architecture.gguf)
    throw badAdapter(
      path,
      `was made for the architecture ${shown(made)}, and the model's is ${shown(architecture.gguf)}`,
    );
  return metadata.float('adapter.lora.alpha', 0);
}
