/**
 * Checkpoints whose matrices are fp8 (OCP E4M3) beside f32 scales: NAME_scale_inv with a number a block of 128 x 128 (DeepSeek V3
 * and what follows its form) or one for all, or NAME_scale with one for all or a row each. They are read as bf16, the dtype in
 * which DeepSeek's own conversion and transformers have them: twice the memory of the file.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { Device, type DeviceLike, encodeBf16, FileFormatError, f8e4m3ToF32, Tensor } from '@x/core';
import type { LoadOptions, TensorReader } from '@x/core/files';

/** As the names of scales end: what weights are multiplied with in both. */
const SCALES = ['_scale_inv', '_scale'];
/** Elements that are converted at once. */
const PIECE = 2 ** 20;
const VALUES = Float32Array.from({ length: 256 }, (_, bits) => f8e4m3ToF32(bits));

type Info = ReturnType<TensorReader['info']> & { readonly dtype?: string };

/** The same file, if nothing in it is fp8 with scales; else a reader to which such weights are bf16 and scales are not there. */
export function withScales(file: TensorReader): TensorReader {
  return file.readPartSync && file.names.some((name) => scaleOf(file, name)) ? new ScaledFp8(file) : file;
}

function isFp8(file: TensorReader, name: string): boolean {
  return (file.info(name) as Info).dtype === 'F8_E4M3';
}

/** The name of a weight's scales. */
function scaleOf(file: TensorReader, name: string): string | undefined {
  if (!isFp8(file, name)) return undefined;
  return SCALES.map((suffix) => name + suffix).find((scale) => file.has(scale));
}

class ScaledFp8 implements TensorReader {
  readonly names: string[];
  /** Of the weights that are fp8 the names of their scales. */
  private readonly scales = new Map<string, string>();
  /** Those that were used last: a weight is read in pieces. */
  private last: { name: string; grid: Grid } | undefined;

  /** Owns the file. */
  constructor(readonly file: TensorReader) {
    for (const name of file.names) {
      const scale = scaleOf(file, name);
      if (scale) this.scales.set(name, scale);
    }
    const hidden = new Set(this.scales.values());
    this.names = file.names.filter((name) => !hidden.has(name));
  }

  get path(): string {
    return this.file.path;
  }

  has(name: string): boolean {
    return this.file.has(name);
  }

  info(name: string): Info {
    const info = this.file.info(name);
    return this.scales.has(name) ? { name, shape: info.shape, dtype: 'BF16', byteLength: 2 * info.byteLength } : info;
  }

  async load(name: string, device?: DeviceLike, options: LoadOptions = {}): Promise<Tensor> {
    if (!this.isScaled(name)) return this.file.load(name, device, options);
    const bits = new Uint16Array(this.info(name).byteLength / 2);
    for (let at = 0; at < bits.length; at += PIECE) {
      options.signal?.throwIfAborted();
      this.readValues(name, at, bits.subarray(at, at + PIECE));
      await nextTurn();
    }
    options.signal?.throwIfAborted();
    return this.tensorOf(name, bits, device, options);
  }

  loadSync(name: string, device?: DeviceLike, options: LoadOptions = {}): Tensor {
    if (!this.isScaled(name)) return this.file.loadSync(name, device, options);
    const bits = new Uint16Array(this.info(name).byteLength / 2);
    for (let at = 0; at < bits.length; at += PIECE) this.readValues(name, at, bits.subarray(at, at + PIECE));
    return this.tensorOf(name, bits, device, options);
  }

  /** Bytes of bf16, of which both ends are even. */
  readPartSync(name: string, offset: number, into: Uint8Array): void {
    if (!this.isScaled(name)) {
      this.file.readPartSync!(name, offset, into);
      return;
    }
    const bits = new Uint16Array(into.byteLength / 2);
    this.readValues(name, offset / 2, bits);
    into.set(new Uint8Array(bits.buffer));
  }

  close(): void {
    this.file.close();
  }

  private isScaled(name: string): boolean {
    if (this.scales.has(name)) return true;
    if (this.file.has(name) && isFp8(this.file, name))
      throw invalid(this.path, `tensor "${name}" is fp8 without scales, which other tensors have (${name}_scale_inv)`);
    return false;
  }

  private tensorOf(name: string, bits: Uint16Array, device: DeviceLike | undefined, { dtype }: LoadOptions): Tensor {
    const made = Tensor.fromBytes(bits, this.info(name).shape, 'bf16', Device.of(device));
    if (dtype === undefined || dtype === 'bf16') return made;
    using narrow = made;
    return narrow.toDtype(dtype);
  }

  /** Elements from `first` on as bits of bf16. */
  private readValues(name: string, first: number, into: Uint16Array<ArrayBuffer>): void {
    const [, columns] = this.info(name).shape;
    const { rowsEach, columnsEach, across, values } = this.gridOf(name);
    const bytes = new Uint8Array(into.length);
    this.file.readPartSync!(name, first, bytes);
    const numbers = new Float32Array(into.length);
    for (let at = 0; at < bytes.length; ) {
      const row = Math.floor((first + at) / columns);
      const column = first + at - row * columns;
      // Of a row as many as one scale is for.
      const block = Math.floor(column / columnsEach);
      const end = Math.min(bytes.length, at + Math.min(columns, (block + 1) * columnsEach) - column);
      const scale = values[Math.floor(row / rowsEach) * across + block];
      for (; at < end; at++) numbers[at] = VALUES[bytes[at]] * scale;
    }
    encodeBf16(numbers, into);
  }

  private gridOf(name: string): Grid {
    if (this.last?.name !== name) this.last = { name, grid: this.readGrid(name) };
    return this.last.grid;
  }

  private readGrid(name: string): Grid {
    const scale = this.scales.get(name)!;
    const { shape } = this.file.info(name);
    const of = this.file.info(scale).shape;
    const [down, across] = of.length === 2 ? of : [of.reduce((count, size) => count * size, 1), 1];
    const [rowsEach, columnsEach] = [eachOf(shape[0], down), eachOf(shape[1], across)];
    if (shape.length !== 2 || rowsEach === undefined || columnsEach === undefined) {
      throw invalid(
        this.path,
        `tensor "${name}" is [${shape}] and its scales "${scale}" are [${of}]; fp8 matrices have one, one a row, or one a block of as many rows and columns as a power of two`,
      );
    }
    using numbers = this.file.loadSync(scale, 'js', { dtype: 'f32' });
    return { rowsEach, columnsEach, across, values: numbers.toArraySync<Float32Array>() };
  }
}

/** Scales of a weight: `across` in a row of them, each for so many rows and columns. */
interface Grid {
  rowsEach: number;
  columnsEach: number;
  across: number;
  values: Float32Array;
}

/** Elements that share one of `count` scales: all, one, or the power of two that makes so many; undefined where there is none. */
function eachOf(size: number, count: number): number | undefined {
  if (count === 1 || count === size) return size / count;
  const each = 2 ** Math.ceil(Math.log2(size / count));
  return count > 0 && Math.ceil(size / each) === count ? each : undefined;
}

function invalid(path: string, what: string): FileFormatError {
  return new FileFormatError('FILE_INVALID', `${path}: ${what}; download it again, or convert the weights to bf16.`, {
    path,
  });
}
