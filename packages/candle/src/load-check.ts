/** Whether a model loads, and what is missing or wrong where it does not: found without reading a weight. */
import { existsSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { CandleError } from '@x/core';
import { readJsonFile, type TensorReader } from '@x/core/files';
import { multipliesNarrow } from '@x/engine';
import type { GgufFile } from '@x/quantized';
import {
  checkWeights,
  describeConfig,
  describeEncoderConfig,
  describeEncoderGguf,
  describeGguf,
  type EncoderDescription,
  type ModelDescription,
  Tokenizer,
  textPart,
} from '@x/transformers';

export interface LoadCheck {
  /** Whether it loads, and with which function: an encoder makes vectors, a language model writes texts. */
  loads: 'loadModel' | 'loadEmbeddingModel' | false;
  /** What stands against it, a sentence each. */
  problems: string[];
  /** As far as the configuration could be read. */
  architecture?: string;
  /** Of a model of texts and images, of which the text part alone loads, its `model_type` and what stays in the file. */
  textPartOf?: { model: string; tensors: number; bytes: number };
  /** Positions that the model was made for. */
  contextLength?: number;
  /** Elements of keys and values of one position in all layers. */
  positionElements?: number;
  /** Whether those are in 16 bits on GPUs where the weights are: {@link multipliesNarrow}. */
  narrowHeads?: boolean;
  /** Of a language model whose configuration could be read. */
  description?: ModelDescription;
}

/** Of a GGUF file, with all parts of a split one. */
export function checkGguf(file: GgufFile): Promise<LoadCheck> {
  const { metadata } = file;
  return check(
    file,
    () => describeEncoderGguf(metadata),
    () => describeGguf(metadata),
    async () => void Tokenizer.fromGguf(metadata),
  );
}

/** Of safetensors files, by what lies beside them. @param directory undefined for files without a model's directory */
export async function checkCheckpoint(file: TensorReader, directory: string | undefined): Promise<LoadCheck> {
  const missing = ['config.json', 'tokenizer.json'].filter((name) => !directory || !existsSync(join(directory, name)));
  const problems = missing.map((name) => `There is no ${name} beside the weights.`);
  if (missing.includes('config.json')) return { loads: false, problems };
  let config: unknown;
  try {
    config = readJsonFile(join(directory!, 'config.json'));
  } catch (error) {
    return { loads: false, problems: [...problems, told(error)] };
  }
  const tokenizer = join(directory!, 'tokenizer.json');
  const checked = await check(
    file,
    () => describeEncoderConfig(config),
    () => describeConfig(config),
    async () => void (missing.length === 0 && (await Tokenizer.fromFile(tokenizer))),
  );
  return { ...checked, loads: problems.length === 0 && checked.loads, problems: [...problems, ...checked.problems] };
}

/** Of files that hold weights and nothing else. */
export function nothingButWeights(path: string): LoadCheck {
  const problem = `${basename(dirname(path))}/${basename(path)} holds weights and not how they are used: give a GGUF file or a model's directory.`;
  return { loads: false, problems: [problem] };
}

async function check(
  file: TensorReader,
  encoder: () => EncoderDescription | undefined,
  decoder: () => ModelDescription,
  tokenizer: () => Promise<void>,
): Promise<LoadCheck> {
  const problems: string[] = [];
  let found: Partial<LoadCheck> = {};
  let isEncoder = false;
  try {
    const description = encoder();
    isEncoder = description !== undefined;
    const weights = description ? await encoderWeights(file, description) : await decoderWeights(file, decoder());
    problems.push(...weights.problems);
    found = weights;
  } catch (error) {
    problems.push(told(error));
  }
  try {
    await tokenizer();
  } catch (error) {
    problems.push(told(error));
  }
  const loads = problems.length === 0 && (isEncoder ? 'loadEmbeddingModel' : 'loadModel');
  return { ...found, loads, problems };
}

async function encoderWeights(file: TensorReader, description: EncoderDescription) {
  const { problems, model } = await checkWeights(file, description);
  model.dispose();
  const { architecture, config } = description;
  return { problems, architecture: architecture.architectures[0], contextLength: config.contextLength };
}

async function decoderWeights(file: TensorReader, description: ModelDescription) {
  const { problems, model } = await checkWeights(file, description, { writes: true });
  const { architecture, config, textPartOf } = description;
  const layers = model.kvLayouts.map((layout) => {
    if (!layout) return 0;
    return layout.kvHeads * (layout.keyDim + (layout.valuesInKeys ? 0 : layout.valueDim));
  });
  const narrowHeads = multipliesNarrow(model.kvLayouts);
  model.dispose();
  const positionElements = layers.reduce((sum, elements) => sum + elements, 0);
  return {
    problems,
    architecture: architecture.architectures[0],
    contextLength: config.contextLength,
    positionElements,
    narrowHeads,
    description,
    ...(textPartOf !== undefined && { textPartOf: { model: textPartOf, ...left(file) } }),
  };
}

/** What a model's text part leaves in the file. */
function left(file: TensorReader): { tensors: number; bytes: number } {
  const part = textPart(file);
  const bytesOf = (of: TensorReader) => of.names.reduce((sum, name) => sum + of.info(name).byteLength, 0);
  return { tensors: file.names.length - part.names.length, bytes: bytesOf(file) - bytesOf(part) };
}

/** Errors that are meant for people; anything else is one of the program. */
function told(error: unknown): string {
  if (error instanceof CandleError) return error.message;
  throw error;
}
