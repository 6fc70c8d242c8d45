/** candle's side of the tables: lists of names extracted from its sources, kept as tab-separated files beside this one. */
import { readFileSync } from 'node:fs';

export interface CandleKernel {
  module: string;
  name: string;
  /** Parameter types in order, in the spelling of `ParamType`. */
  params: string[];
}

export interface CandleFunction {
  name: string;
  ours: string;
}

export interface CandleTest {
  /** candle-core/tensor_tests. */
  file: string;
  /** candle runs it once on each backend. */
  perDevice: boolean;
  name: string;
}

/** Cells of the lines that are neither empty nor a comment. */
export function parseTsv(text: string): string[][] {
  return text
    .split('\n')
    .filter((line) => line.trim() !== '' && !line.startsWith('#'))
    .map((line) => line.split('\t'));
}

function read(file: string): string[][] {
  return parseTsv(readFileSync(new URL(file, import.meta.url), 'utf8'));
}

/** index_select to indexSelect, conv1d_with_algo to conv1dWithAlgo. */
export function camelCase(name: string): string {
  return name.replace(/_([a-z0-9])/g, (_, letter: string) => letter.toUpperCase());
}

export function candleKernels(): CandleKernel[] {
  return read('candle-kernels.tsv').map(([module, name, params]) => ({
    module: module!,
    name: name!,
    params: params!.split(' '),
  }));
}

export function candleFunctions(of: 'storage' | 'device'): CandleFunction[] {
  return read('candle-functions.tsv')
    .filter(([section]) => section === of)
    .map(([, name, ours]) => ({ name: name!, ours: ours ?? camelCase(name!) }));
}

/** Tensor methods, with the source file of candle that has them. */
export function candleTensorMethods(): (CandleFunction & { file: string })[] {
  return read('candle-tensor.tsv').map(([file, name, ours]) => ({
    file: file!,
    name: name!,
    ours: ours ?? camelCase(name!),
  }));
}

/** The text of the list of PyTorch's names. */
export function torchNamesText(): string {
  return readFileSync(new URL('torch-names.tsv', import.meta.url), 'utf8');
}

export function candleTests(): CandleTest[] {
  return read('candle-tests.tsv').map(([file, kind, name]) => ({
    file: file!,
    perDevice: kind === 'device',
    name: name!,
  }));
}
