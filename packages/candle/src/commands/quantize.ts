/**
 * `candle quantize IN OUT --type q4_k_m`: a GGUF file with the weights of another GGUF file, a safetensors file or a
 * Hugging Face directory, quantised as llama.cpp's tool does it. Weights are read, quantised on all processors and
 * written piece by piece. The output appears under its name when it is complete; an error or an interrupt leaves none.
 */
import { fstatSync, type Stats, statSync } from 'node:fs';
import { CandleError } from '@x/core';
import {
  blockFormat,
  type GgufTensorSource,
  type GgufValue,
  gguf,
  type Imatrix,
  isMixName,
  loadImatrix,
  MIXES,
  type MixName,
  planMix,
  type QuantType,
  quantizeBlocks,
  writeGguf,
} from '@x/quantized';
import { Command, InvalidArgumentError } from 'commander';
import { interruptible } from '../interrupt';
import { type AdapterSource, adapterSources, mergeAdapters } from '../merge-adapters';
import { localModel, type OpenModel, openModel, rowsOf, type SourceTensor } from '../model-source';
import { wholeNumber } from '../option-values';
import { formatBytes, guarded, paint, printJson, printWarning, table } from '../output';

interface QuantizeOptions {
  type: MixName;
  imatrix?: string;
  threads?: number;
  allowRequantize?: boolean;
  lora?: AdapterSource[];
  json?: boolean;
}

/** What a run did, as `--json` prints it. */
export interface QuantizeReport {
  input: string;
  output: string;
  type: MixName;
  tensors: number;
  quantized: number;
  /** Weights that importance data was found for. */
  weighted: number;
  /** Weights that adapters were merged into. */
  merged: number;
  types: Record<string, number>;
  inputBytes: number;
  outputBytes: number;
  seconds: number;
  /** What of the model the file does not say. */
  warnings: readonly string[];
}

export interface QuantizeRun extends Pick<QuantizeOptions, 'imatrix' | 'threads' | 'allowRequantize'> {
  /** LoRA adapters that are merged into the weights. */
  adapters?: readonly AdapterSource[];
  /** Stops between two pieces and removes what was written. */
  signal?: AbortSignal;
  /** Called after every piece with the values done and in all, and the weight's name. */
  onProgress?: (done: number, total: number, name: string) => void;
}

export function quantizeCommand(): Command {
  return new Command('quantize')
    .description('write a GGUF file with the weights of a model in a smaller type')
    .argument(
      '<in>',
      'a .gguf file, a .safetensors file, a directory with config.json and *.safetensors, or hf:org/repo',
    )
    .argument('<out>', 'the .gguf file to write, or a pipe; a file of that name is replaced')
    .requiredOption('-t, --type <mix>', `one of ${Object.keys(MIXES).join(', ')}`, mixName)
    .option('--imatrix <file>', 'importance data that llama-imatrix collected, in either of its forms')
    .option('--threads <count>', 'threads to quantise with, default one a processor', wholeNumber(1, 1024))
    .option('--allow-requantize', 'quantise weights that are quantised already, which loses more than once')
    .option(
      '--lora <path[=scale]>',
      'merge this LoRA adapter into the weights; several times for several',
      adapterSources,
    )
    .option('--json', 'print one JSON object')
    .action((input: string, output: string, options: QuantizeOptions) =>
      guarded(options.json, () => interruptible((signal) => run(input, output, options, signal))),
    );
}

async function run(name: string, output: string, options: QuantizeOptions, signal: AbortSignal): Promise<void> {
  const input = await localModel(name, { json: options.json, signal });
  const shown = !options.json && process.stderr.isTTY;
  const clear = () => shown && process.stderr.write('\r\x1b[K');
  // A model that goes to standard output has it for itself.
  const existing = statSync(output, { throwIfNoEntry: false });
  const report = existing !== undefined && isSame(existing, fstatSync(1)) ? process.stderr : process.stdout;
  try {
    const result = await quantizeModel(input, output, options.type, {
      ...options,
      adapters: options.lora,
      signal,
      onProgress: shown ? (done, total, name) => process.stderr.write(progressLine(done, total, name)) : undefined,
    });
    clear();
    for (const warning of result.warnings) printWarning(warning);
    if (options.json) printJson(result, report);
    else report.write(`${describe(result, report)}\n`);
  } catch (error) {
    clear();
    throw error;
  }
}

/** Values that are read, quantised and written at a time, at least a row. */
const PIECE_VALUES = 2 ** 22;

/**
 * Does the command's work. Raises `FileFormatError` for files that cannot be read or written, `CandleError`
 * INVALID_ARGUMENT for weights that are quantised already and importance data of other sizes, and `TransformersError`
 * BAD_ADAPTER and UNSUPPORTED_ADAPTER for adapters that do not fit.
 */
export async function quantizeModel(
  input: string,
  output: string,
  mix: MixName,
  options: QuantizeRun = {},
): Promise<QuantizeReport> {
  const started = performance.now();
  const source = mergeAdapters(openModel(input), options.adapters ?? []);
  try {
    const existing = statSync(output, { throwIfNoEntry: false });
    const read = [...source.paths, ...(options.imatrix === undefined ? [] : [options.imatrix])];
    const replaced = read.find((path) => {
      const own = existing && statSync(path, { throwIfNoEntry: false });
      return own !== undefined && isSame(own, existing!);
    });
    if (replaced !== undefined) throw invalid(`${replaced} is an input. Give the output another name.`);
    const imatrix = options.imatrix === undefined ? undefined : loadImatrix(options.imatrix);
    const types = planTypes(source, mix, imatrix, options.allowRequantize === true);
    const total = source.tensors.reduce((sum, { shape }) => sum + countOf(shape), 0);
    let done = 0;
    const report: QuantizeReport = {
      input,
      output,
      type: mix,
      tensors: source.tensors.length,
      quantized: 0,
      weighted: 0,
      merged: 0,
      types: {},
      inputBytes: 0,
      outputBytes: 0,
      seconds: 0,
      warnings: source.warnings ?? [],
    };
    const tensors = source.tensors.map((tensor): GgufTensorSource => {
      const type = types.get(tensor.name)!;
      const importance = imatrix && importanceOf(imatrix, tensor, type);
      report.types[type] = (report.types[type] ?? 0) + 1;
      report.inputBytes += tensor.byteLength;
      if (type !== tensor.type) report.quantized++;
      if (importance !== undefined) report.weighted++;
      if (tensor.merged) report.merged++;
      const onPiece = (values: number) => {
        done += values;
        options.onProgress?.(done, total, tensor.name);
      };
      return {
        name: tensor.name,
        type,
        shape: tensor.shape,
        data: () => pieces(tensor, type, importance, options, onPiece),
      };
    });
    report.outputBytes = await writeGguf(output, {
      metadata: metadataOf(source, mix, options.imatrix, imatrix),
      tensors,
    });
    report.seconds = (performance.now() - started) / 1000;
    return report;
  } finally {
    source.close();
  }
}

/** What every tensor becomes: the mix's choice for matrices, f32 or what it was for the rest. */
function planTypes(
  source: OpenModel,
  mix: MixName,
  imatrix: Imatrix | undefined,
  allowRequantize: boolean,
): Map<string, QuantType> {
  const number = (suffix: string, fallback: number) => {
    const entry = [...source.metadata].find(([key]) => key.endsWith(suffix))?.[1];
    return typeof entry?.value === 'number' ? entry.value : fallback;
  };
  const heads = number('.attention.head_count', 1);
  const plan = planMix(mix, source.tensors, {
    groupSize: Math.floor(heads / number('.attention.head_count_kv', heads)),
    experts: number('.expert_count', 0),
    importance: imatrix !== undefined,
  });
  const types = new Map<string, QuantType>();
  for (const { name, type, format, merged } of source.tensors) {
    const kept = source.kind === 'gguf' && format !== undefined ? format.type : 'f32';
    const wanted = plan.get(name) ?? kept;
    const plain = format === undefined || format.blockSize === 1;
    if (plain || (format.type === wanted && !merged) || allowRequantize) types.set(name, wanted);
    else {
      const why = merged ? ', and the adapter changes it' : '';
      throw invalid(
        `tensor '${name}' is ${type} already${why}. Quantise from an f32, f16 or bf16 file, or pass --allow-requantize and lose ` +
          'precision twice.',
      );
    }
  }
  return types;
}

/** A weight in its new type, piece by piece. */
async function* pieces(
  tensor: SourceTensor,
  type: QuantType,
  importance: Float32Array | undefined,
  { threads, signal }: QuantizeRun,
  onPiece: (values: number) => void,
): AsyncGenerator<Uint8Array> {
  try {
    if (tensor.format?.type === type && tensor.blocks !== undefined) {
      for (const bytes of tensor.blocks()) {
        signal?.throwIfAborted();
        yield bytes;
      }
      onPiece(countOf(tensor.shape));
      return;
    }
    const { rows, k } = rowsOf(tensor.shape);
    const lists = importance === undefined ? 1 : importance.length / k;
    const rowsEach = rows / lists;
    const step = Math.max(1, Math.floor(PIECE_VALUES / Math.max(k, 1)));
    for (let list = 0; list < lists; list++) {
      const weights = importance?.subarray(list * k, (list + 1) * k);
      for (let row = 0; row < rowsEach; row += step) {
        signal?.throwIfAborted();
        const values = await tensor.rows(list * rowsEach + row, Math.min(step, rowsEach - row));
        const weight = { name: tensor.name, firstRow: list * rowsEach + row };
        yield await quantizeBlocks(type, values, k, { importance: weights, threads, signal, weight });
        onPiece(values.length);
      }
    }
  } finally {
    tensor.done();
  }
}

/** The importance of a weight's values, where there is any and the type makes use of it. */
function importanceOf(imatrix: Imatrix, { name, shape }: SourceTensor, type: QuantType): Float32Array | undefined {
  const values = imatrix.entries.get(name);
  if (values === undefined || blockFormat(type).quantizeWeighted === undefined) return undefined;
  const { rows, k } = rowsOf(shape);
  if (values.length === k || (values.length % k === 0 && rows % (values.length / k) === 0)) return values;
  throw invalid(
    `the importance data has ${values.length} values for '${name}' [${shape.join(', ')}]. It belongs to another model: make ` +
      'it again with llama-imatrix.',
  );
}

/** One file by whatever names. */
function isSame(a: Stats, b: Stats): boolean {
  return a.dev === b.dev && a.ino === b.ino;
}

function metadataOf(
  source: OpenModel,
  mix: MixName,
  path: string | undefined,
  imatrix: Imatrix | undefined,
): Map<string, GgufValue> {
  // The parts of a split model become one file.
  const metadata = new Map([...source.metadata].filter(([key]) => !key.startsWith('split.')));
  metadata.set('general.quantization_version', gguf.uint32(2));
  metadata.set('general.file_type', gguf.uint32(MIXES[mix].fileType));
  if (imatrix !== undefined && path !== undefined) {
    metadata.set('quantize.imatrix.file', gguf.string(path));
    if (imatrix.datasets.length > 0) metadata.set('quantize.imatrix.dataset', gguf.string(imatrix.datasets[0]));
    metadata.set('quantize.imatrix.entries_count', gguf.uint32(imatrix.entries.size));
    metadata.set('quantize.imatrix.chunks_count', gguf.uint32(imatrix.chunkCount));
  }
  return metadata;
}

function countOf(shape: readonly number[]): number {
  return shape.reduce((product, dim) => product * dim, 1);
}

function describe(report: QuantizeReport, stream: NodeJS.WriteStream): string {
  const size = `${formatBytes(report.inputBytes)} to ${formatBytes(report.outputBytes)}`;
  const weighted = report.weighted > 0 ? `, ${report.weighted} with importance` : '';
  const merged = report.merged > 0 ? `, ${report.merged} with adapters` : '';
  const types = Object.entries(report.types).map(([type, count]) => [`  ${type}`, `${count} tensors`]);
  return [
    `${report.output}: ${paint('bold', report.type, stream)}, ${size} in ${report.seconds.toFixed(1)} s (${report.quantized} of ${report.tensors} tensors changed${weighted}${merged})`,
    table(types),
  ].join('\n');
}

const BAR = 24;

function progressLine(done: number, total: number, name: string): string {
  const share = total === 0 ? 1 : done / total;
  const filled = Math.round(share * BAR);
  return `\r${'█'.repeat(filled)}${'░'.repeat(BAR - filled)} ${(share * 100).toFixed(0).padStart(3)} % ${name}\x1b[K`;
}

function invalid(message: string): CandleError {
  return new CandleError('INVALID_ARGUMENT', message);
}

function mixName(text: string): MixName {
  const name = text.toLowerCase();
  if (isMixName(name)) return name;
  throw new InvalidArgumentError(`choose one of ${Object.keys(MIXES).join(', ')}`);
}
