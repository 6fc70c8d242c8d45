/**
 * Tensors as text: candle's display module (candle-core/src/display.rs), whose tables are PyTorch's. All numbers have one
 * width and one form, chosen from those that are shown: whole (`42.`), with decimals, or scientific where they differ a
 * thousandfold, exceed 1e8 or are below 1e-4. Of a tensor above the threshold only the edges of each dimension are read and
 * shown. The last line says shape, dtype and, unlike candle's, always the device.
 */

import { check, OBJECT, STRING } from '../check';
import { isInt } from '../dtype';
import { CandleError } from '../errors';
import type { TensorArray } from '../host-array';
import { shared } from '../one-core';
import type { Tensor } from '../tensor';
import { withTemporaries } from './base';
import { cat } from './joining';

export interface PrintOptions {
  /** Digits behind the point. Default 4. */
  precision: number;
  /** Elements up to which a tensor is shown whole. Default 1000. */
  threshold: number;
  /** Items shown at each end of a dimension that is cut. Default 3. */
  edgeItems: number;
  /** Characters a line. Default 80. */
  lineWidth: number;
  /** Scientific numbers: always, never, or null to choose. Default null. */
  sciMode: boolean | null;
}

const DEFAULTS: Readonly<PrintOptions> = { precision: 4, threshold: 1000, edgeItems: 3, lineWidth: 80, sciMode: null };
const PRESETS = {
  default: {},
  short: { precision: 2, edgeItems: 2 },
  full: { threshold: Number.POSITIVE_INFINITY },
} as const;

const printing = shared('printing', () => ({ options: DEFAULTS }));

/** How tensors are printed in this thread. */
export function printOptions(): PrintOptions {
  return { ...printing.options };
}

/**
 * Changes how tensors are printed: some fields, or all of a preset: candle's and PyTorch's `default`, `short` (two digits,
 * two edge items) and `full` (everything, however much).
 * @throws CandleError `INVALID_ARGUMENT`
 */
export function setPrintOptions(options: Partial<PrintOptions> | keyof typeof PRESETS): void {
  check('setPrintOptions', 'options', options, typeof options === 'string' ? STRING : OBJECT);
  const preset = typeof options === 'string';
  if (preset && !Object.hasOwn(PRESETS, options)) {
    const known = Object.keys(PRESETS).join(', ');
    throw new CandleError('INVALID_ARGUMENT', `setPrintOptions: "${options}" is no preset; use one of ${known}.`);
  }
  const next = preset ? { ...DEFAULTS, ...PRESETS[options] } : { ...printing.options, ...options };
  const limits = { precision: [0, 100], threshold: [0, Infinity], edgeItems: [1, Infinity], lineWidth: [1, Infinity] };
  for (const [name, [least, most]] of Object.entries(limits)) {
    const value = next[name as keyof typeof limits];
    if ((Number.isInteger(value) || value === Number.POSITIVE_INFINITY) && value >= least && value <= most) continue;
    throw new CandleError(
      'INVALID_ARGUMENT',
      `setPrintOptions: ${name} is ${value}; use a whole number from ${least} to ${most}.`,
    );
  }
  printing.options = next;
}

/** The table and the line below it; only the line where values cannot be read, as on a disposed tensor. */
export function displayTensor(tensor: Tensor, options: PrintOptions = printing.options): string {
  try {
    return `${table(tensor, options)}\n${tensor.describe()}`;
  } catch {
    return tensor.describe();
  }
}

function table(tensor: Tensor, options: PrintOptions): string {
  const { edgeItems } = options;
  const summarize = tensor.elemCount > options.threshold;
  const isCut = (d: number) => summarize && tensor.shape[d] > 2 * edgeItems;
  const { values, shape } = read(tensor, isCut, edgeItems);
  const format = formatter(tensor, values, options);
  const width = Math.max(1, ...Array.from(values as ArrayLike<number | bigint>, (value) => format(value).length));
  const perLine = Math.max(1, Math.floor(options.lineWidth / (width + 2)));
  let next = 0;
  const item = () => format(values[next++]).padStart(width);
  const level = (d: number): string => {
    if (d === tensor.rank) return tensor.rank === 0 ? `[${item()}]` : item();
    const last = d === tensor.rank - 1;
    const separator = last ? ', ' : `,\n${' '.repeat(d + 1)}`;
    const items = Array.from({ length: shape[d] }, () => level(d + 1));
    if (isCut(d)) {
      const ends = [items.slice(0, edgeItems), items.slice(edgeItems)].map((end) => end.join(separator));
      return `[${ends.join(last ? ', ..., ' : `${separator}...\n${' '.repeat(d + 1)}`)}]`;
    }
    if (!last) return `[${items.join(separator)}]`;
    const lines: string[] = [];
    for (let i = 0; i < items.length; i += perLine) lines.push(items.slice(i, i + perLine).join(', '));
    return `[${lines.join(`,\n${' '.repeat(d + 1)}`)}]`;
  };
  return level(0);
}

/** The values to show: of a dimension that is cut only its ends, which are put together on the device. */
function read(tensor: Tensor, isCut: (d: number) => boolean, edge: number): { values: TensorArray; shape: number[] } {
  return withTemporaries((temporary) => {
    let shown = temporary(tensor.detach());
    tensor.shape.forEach((size, d) => {
      if (!isCut(d)) return;
      const ends = [temporary(shown.narrow(d, 0, edge)), temporary(shown.narrow(d, size - edge, edge))];
      shown = temporary(cat(ends, d));
    });
    return { values: shown.toArraySync(), shape: shown.shape.slice() };
  });
}

function formatter(tensor: Tensor, values: TensorArray, options: PrintOptions): (value: number | bigint) => string {
  if (isInt(tensor.dtype)) return String;
  const { precision } = options;
  const finite = (values as Float32Array).filter((value) => Number.isFinite(value) && value !== 0);
  let [least, most] = [Number.POSITIVE_INFINITY, 0];
  let whole = true;
  for (const value of finite) {
    least = Math.min(least, Math.abs(value));
    most = Math.max(most, Math.abs(value));
    whole &&= Number.isInteger(value);
  }
  const wide = finite.length > 0 && (most / least > 1000 || most > 1e8 || least < 1e-4);
  const scientific = options.sciMode ?? wide;
  return (value) => {
    const number = Number(value);
    if (!Number.isFinite(number)) return Number.isNaN(number) ? 'NaN' : number > 0 ? 'inf' : '-inf';
    if (scientific) return signed(number, number.toExponential(precision).replace('e+', 'e'));
    return whole ? `${signed(number, plain(number, 0))}.` : signed(number, plain(number, precision));
  };
}

/** Without an exponent, which toFixed uses from 1e21 on. */
function plain(value: number, digits: number): string {
  if (Math.abs(value) < 1e21) return value.toFixed(digits);
  return digits === 0 ? String(BigInt(value)) : `${BigInt(value)}.${'0'.repeat(digits)}`;
}

/** JavaScript drops the sign of -0. */
function signed(value: number, text: string): string {
  return Object.is(value, -0) ? `-${text}` : text;
}
