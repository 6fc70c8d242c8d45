/**
 * A BERT of random weights as other libraries read it: a Hugging Face directory with model.safetensors, and the same graph as
 * onnx/model.onnx, as transformers.js wants it. ONNX is protocol buffers, of which this writes the few messages that it takes.
 */
import { closeSync, copyFileSync, mkdirSync, openSync, writeFileSync, writeSync } from 'node:fs';
import { join } from 'node:path';

export interface BertShape {
  hidden: number;
  layers: number;
  heads: number;
  inner: number;
  vocab: number;
  positions: number;
}

export const BERT_BASE: BertShape = {
  hidden: 768,
  layers: 12,
  heads: 12,
  inner: 3072,
  vocab: 30_522,
  positions: 512,
};

interface Weight {
  name: string;
  shape: number[];
  values: Float32Array;
}

/** @param tokenizer directory of the tokenizer's files */
export function writeBert(directory: string, shape: BertShape, tokenizer: string): void {
  mkdirSync(join(directory, 'onnx'), { recursive: true });
  const weights = weightsOf(shape);
  writeSafetensors(join(directory, 'model.safetensors'), weights);
  writeFileSync(join(directory, 'onnx', 'model.onnx'), onnx(shape, weights));
  const config = {
    model_type: 'bert',
    architectures: ['BertModel'],
    hidden_act: 'gelu',
    hidden_size: shape.hidden,
    num_hidden_layers: shape.layers,
    num_attention_heads: shape.heads,
    intermediate_size: shape.inner,
    vocab_size: shape.vocab,
    max_position_embeddings: shape.positions,
    type_vocab_size: 2,
    layer_norm_eps: 1e-12,
    pad_token_id: 0,
  };
  writeFileSync(join(directory, 'config.json'), JSON.stringify(config));
  copyFileSync(join(tokenizer, 'tokenizer.json'), join(directory, 'tokenizer.json'));
  const settings = {
    tokenizer_class: 'BertTokenizer',
    do_lower_case: true,
    model_max_length: shape.positions,
    pad_token: '[PAD]',
    unk_token: '[UNK]',
    cls_token: '[CLS]',
    sep_token: '[SEP]',
    mask_token: '[MASK]',
  };
  writeFileSync(join(directory, 'tokenizer_config.json'), JSON.stringify(settings));
}

function weightsOf({ hidden, layers, inner, vocab, positions }: BertShape): Weight[] {
  let state = 12345;
  const random = () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32 - 0.5;
  };
  const weights: Weight[] = [];
  const add = (name: string, shape: number[], spread: number, mean = 0) => {
    const values = Float32Array.from(
      { length: shape.reduce((a, b) => a * b, 1) },
      () => mean + spread * Math.sqrt(12) * random(),
    );
    weights.push({ name, shape, values });
  };
  const linear = (name: string, out: number, width: number) => {
    add(`${name}.weight`, [out, width], 1 / Math.sqrt(width));
    add(`${name}.bias`, [out], 0.02);
  };
  const norm = (name: string) => {
    add(`${name}.weight`, [hidden], 0.1, 1);
    add(`${name}.bias`, [hidden], 0.1);
  };
  add('embeddings.word_embeddings.weight', [vocab, hidden], 1);
  add('embeddings.position_embeddings.weight', [positions, hidden], 0.5);
  add('embeddings.token_type_embeddings.weight', [2, hidden], 0.1);
  norm('embeddings.LayerNorm');
  for (let i = 0; i < layers; i++) {
    const layer = `encoder.layer.${i}`;
    for (const part of ['query', 'key', 'value']) linear(`${layer}.attention.self.${part}`, hidden, hidden);
    linear(`${layer}.attention.output.dense`, hidden, hidden);
    norm(`${layer}.attention.output.LayerNorm`);
    linear(`${layer}.intermediate.dense`, inner, hidden);
    linear(`${layer}.output.dense`, hidden, inner);
    norm(`${layer}.output.LayerNorm`);
  }
  return weights;
}

function bytesOf(values: Float32Array): Buffer {
  return Buffer.from(values.buffer, values.byteOffset, values.byteLength);
}

function writeSafetensors(path: string, weights: readonly Weight[]): void {
  const header: Record<string, unknown> = {};
  let offset = 0;
  for (const { name, shape, values } of weights) {
    header[name] = { dtype: 'F32', shape, data_offsets: [offset, offset + values.byteLength] };
    offset += values.byteLength;
  }
  let json = JSON.stringify(header);
  json += ' '.repeat((8 - (json.length % 8)) % 8);
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(json.length));
  const file = openSync(path, 'w');
  for (const part of [length, Buffer.from(json), ...weights.map(({ values }) => bytesOf(values))])
    writeSync(file, part);
  closeSync(file);
}

type Part = Buffer;

function varint(value: number): Buffer {
  const bytes: number[] = [];
  let left = BigInt.asUintN(64, BigInt(value));
  do {
    const more = left > 127n;
    bytes.push(Number(left & 127n) | (more ? 128 : 0));
    left >>= 7n;
  } while (left > 0n);
  return Buffer.from(bytes);
}

const whole = (field: number, value: number): Part => Buffer.concat([varint(field * 8), varint(value)]);
const bytes = (field: number, value: Buffer | string): Part => {
  const body = Buffer.from(value as string);
  return Buffer.concat([varint(field * 8 + 2), varint(body.length), body]);
};
const real = (field: number, value: number): Part => {
  const body = Buffer.alloc(4);
  body.writeFloatLE(value);
  return Buffer.concat([varint(field * 8 + 5), body]);
};
const message = (field: number, parts: readonly Part[]): Part => bytes(field, Buffer.concat(parts));

/** onnx.proto's TensorProto; FLOAT is 1 and INT64 7. */
function tensor(name: string, dims: readonly number[], type: number, raw: Buffer): Part[] {
  return [...dims.map((dim) => whole(1, dim)), whole(2, type), bytes(8, name), bytes(9, raw)];
}

/** NodeProto with attributes of numbers: whole ones are INT (2), lists INTS (7), `[x]` in `reals` FLOAT (1). */
function node(
  type: string,
  inputs: readonly string[],
  output: string,
  ints: Record<string, number | number[]> = {},
  reals: Record<string, number> = {},
): Part {
  const attributes = [
    ...Object.entries(ints).map(([name, value]) =>
      typeof value === 'number'
        ? [bytes(1, name), whole(3, value), whole(20, 2)]
        : [bytes(1, name), ...value.map((one) => whole(8, one)), whole(20, 7)],
    ),
    ...Object.entries(reals).map(([name, value]) => [bytes(1, name), real(2, value), whole(20, 1)]),
  ];
  return message(1, [
    ...inputs.map((input) => bytes(1, input)),
    bytes(2, output),
    bytes(3, output),
    bytes(4, type),
    ...attributes.map((attribute) => message(5, attribute)),
  ]);
}

/** What an export of transformers' BertModel computes, with LayerNormalization and Gelu as operators. */
function onnx({ hidden, layers, heads }: BertShape, weights: readonly Weight[]): Buffer {
  const nodes: Part[] = [];
  const made: Part[] = [];
  const constant = (name: string, dims: number[], values: number[], isReal = false) => {
    const raw = isReal
      ? bytesOf(Float32Array.from(values))
      : Buffer.from(BigInt64Array.from(values.map(BigInt)).buffer);
    made.push(message(5, tensor(name, dims, isReal ? 1 : 7, raw)));
    return name;
  };
  let count = 0;
  const op = (
    type: string,
    inputs: readonly string[],
    ints: Record<string, number | number[]> = {},
    reals: Record<string, number> = {},
    output = `${type}_${count++}`,
  ) => {
    nodes.push(node(type, inputs, output, ints, reals));
    return output;
  };
  for (const { name, shape, values } of weights) {
    const isMatrix = name.endsWith('.weight') && shape.length === 2 && name.startsWith('encoder');
    // MatMul takes [in, out].
    const turned = isMatrix ? transposed(values, shape[0], shape[1]) : values;
    made.push(message(5, tensor(name, isMatrix ? [shape[1], shape[0]] : shape, 1, bytesOf(turned))));
  }
  const split = constant('split', [4], [0, 0, heads, hidden / heads]);
  const joined = constant('joined', [3], [0, 0, hidden]);
  const scale = constant('scale', [], [1 / Math.sqrt(hidden / heads)], true);
  const one = constant('one', [], [1], true);
  const least = constant('least', [], [-3.4e38], true);
  const linear = (x: string, name: string) => op('Add', [op('MatMul', [x, `${name}.weight`]), `${name}.bias`]);
  const norm = (x: string, name: string, output?: string) =>
    op('LayerNormalization', [x, `${name}.weight`, `${name}.bias`], { axis: -1 }, { epsilon: 1e-12 }, output);
  const length = op('Gather', [op('Shape', ['input_ids']), constant('second', [], [1])], { axis: 0 });
  const places = op('Range', [constant('zero', [], [0]), length, constant('step', [], [1])]);
  const word = op('Gather', ['embeddings.word_embeddings.weight', 'input_ids'], { axis: 0 });
  const kind = op('Gather', ['embeddings.token_type_embeddings.weight', 'token_type_ids'], { axis: 0 });
  const place = op('Gather', ['embeddings.position_embeddings.weight', places], { axis: 0 });
  let x = norm(op('Add', [op('Add', [word, kind]), place]), 'embeddings.LayerNorm');
  const mask = op('Unsqueeze', [op('Cast', ['attention_mask'], { to: 1 }), constant('axes', [2], [1, 2])]);
  const hiddenScores = op('Mul', [op('Sub', [one, mask]), least]);
  for (let i = 0; i < layers; i++) {
    const layer = `encoder.layer.${i}`;
    const part = (name: string, perm: number[]) =>
      op('Transpose', [op('Reshape', [linear(x, `${layer}.attention.self.${name}`), split])], { perm });
    const [q, k, v] = [part('query', [0, 2, 1, 3]), part('key', [0, 2, 3, 1]), part('value', [0, 2, 1, 3])];
    const scores = op('Add', [op('Mul', [op('MatMul', [q, k]), scale]), hiddenScores]);
    const mixed = op('MatMul', [op('Softmax', [scores], { axis: -1 }), v]);
    const rows = op('Reshape', [op('Transpose', [mixed], { perm: [0, 2, 1, 3] }), joined]);
    const attended = op('Add', [linear(rows, `${layer}.attention.output.dense`), x]);
    x = norm(attended, `${layer}.attention.output.LayerNorm`);
    const inside = op('Gelu', [linear(x, `${layer}.intermediate.dense`)]);
    const fed = op('Add', [linear(inside, `${layer}.output.dense`), x]);
    x = norm(fed, `${layer}.output.LayerNorm`, i === layers - 1 ? 'last_hidden_state' : undefined);
  }
  const value = (field: number, name: string, type: number, dims: readonly (string | number)[]) => {
    const shape = dims.map((dim) => message(1, [typeof dim === 'string' ? bytes(2, dim) : whole(1, dim)]));
    return message(field, [bytes(1, name), message(2, [message(1, [whole(1, type), message(2, shape)])])]);
  };
  const inputs = ['input_ids', 'attention_mask', 'token_type_ids'];
  const graph = [
    ...nodes,
    bytes(2, 'bert'),
    ...made,
    ...inputs.map((name) => value(11, name, 7, ['batch', 'length'])),
    value(12, 'last_hidden_state', 1, ['batch', 'length', hidden]),
  ];
  return Buffer.concat([whole(1, 9), message(7, graph), message(8, [bytes(1, ''), whole(2, 20)])]);
}

function transposed(values: Float32Array, rows: number, columns: number): Float32Array {
  const out = new Float32Array(values.length);
  for (let r = 0; r < rows; r++) for (let c = 0; c < columns; c++) out[c * rows + r] = values[r * columns + c];
  return out;
}
