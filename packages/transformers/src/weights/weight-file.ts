/**
 * The weights in a file, asked for by their GGUF names whatever the file is: blocks of a GGUF file as they are, numbers of a
 * checkpoint (safetensors, shards, npz, pth) under the names and in the forms that an architecture's list gives. It is where
 * a `VarBuilder` of such weights gets them; candle has a builder of its own for each kind of file.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { type Device, type DType, FileFormatError, type Shape, scope, Tensor } from '@x/core';
import { SafetensorsFile, ShardedSafetensors, type TensorReader } from '@x/core/files';
import type { VarSource } from '@x/nn';
import {
  type DenseDType,
  hasBlocks,
  mxfp4Names,
  mxfp4Shape,
  type PartReader,
  QTensor,
  type RowPart,
  type TensorPart,
} from '@x/quantized';
import { unsupported } from '../config/problems';
import { withScales } from './scaled-fp8';
import { type StoredTensor, type TensorForm, type TensorNamePair, TensorNames } from './tensor-names';
import { textPart } from './text-part';

/** Called after each tensor: bytes of weights read so far and in all. */
export type ProgressListener = (loadedBytes: number, totalBytes: number) => void;

/** Integer types, as files name them; `iq4_nl` is a kind of blocks. */
const INTEGERS = /^([ui]\d+|bool)$/i;

/** Elements of a block of weights that checkpoints have in MXFP4. */
const MXFP4_BLOCK = 32;

export interface WeightFileOptions {
  /** Names of an architecture's tensors, for files that are no GGUF. Default: names are those of the file. */
  names?: readonly TensorNamePair[] | undefined;
  signal?: AbortSignal;
  onProgress?: ProgressListener;
}

/** Tensors of the file that make up one that is asked for: several are experts, one each. */
interface Stored {
  names: readonly string[];
  form: TensorForm;
  experts: boolean;
  /** The name of a weight in MXFP4, whose blocks and scales the names are. */
  packed?: string;
}

/** @param paths safetensors files, or an index of them; errors as `SafetensorsFile.open`, `ShardedSafetensors.open` */
export function openSafetensors(paths: readonly string[]): TensorReader {
  const [only] = paths;
  const single = paths.length === 1 && !only.endsWith('.index.json');
  return single ? SafetensorsFile.open(only) : ShardedSafetensors.open(paths);
}

/** The weights of one file or checkpoint, by their GGUF names where an architecture's `names` are given. */
export class WeightFile implements VarSource<QTensor> {
  private readonly list: TensorNames | undefined;
  private readonly known = new Map<string, Stored | undefined>();
  private readonly total: number;
  private readonly parts = new Map<string, TensorPart>();
  private loaded = 0;

  readonly file: TensorReader;

  /**
   * Takes the file over: {@link close} closes it. Weights in fp8 with scales are read as bf16; with names of an architecture, of a
   * whole of texts and images the text part.
   * @throws FileFormatError, TransformersError UNSUPPORTED_MODEL for a checkpoint whose names no architecture has
   */
  constructor(
    file: TensorReader,
    private readonly options: WeightFileOptions = {},
  ) {
    if (options.names && !hasBlocks(file)) checkNames(file);
    this.file = withScales(options.names ? textPart(file) : file);
    this.list = options.names && !hasBlocks(file) ? new TensorNames(options.names) : undefined;
    this.total = this.file.names.reduce((sum, name) => sum + this.file.info(name).byteLength, 0);
  }

  get label(): string {
    return this.file.path;
  }

  names(): string[] {
    return this.file.names;
  }

  storedName(name: string): string {
    const usual = (this.list?.toCheckpoint(name)?.name ?? name).replace('{e}', '0');
    return this.find(name)?.names[0] ?? usual;
  }

  shapeOf(name: string): Shape | undefined {
    const stored = this.find(name);
    if (!stored) return undefined;
    const { names, form, experts, packed } = stored;
    const shape = packed ? mxfp4Shape(this.file, packed) : [...this.file.info(names[0]).shape];
    if (form.transposed && !packed) shape.push(...shape.splice(-2).reverse());
    if (form.part) shape[rowsDim(name, shape)] /= form.part[1];
    return experts ? [names.length, ...shape] : shape;
  }

  /** Tensors of the file that make up a weight; none where there is no such weight. */
  storedNames(name: string): readonly string[] {
    return this.find(name)?.names ?? [];
  }

  /** The integer type of a weight's numbers, such as `U8`, which no weight has; undefined for others, and for blocks. */
  integerTypeOf(name: string): string | undefined {
    if (this.find(name)?.packed !== undefined) return undefined;
    const types = this.storedNames(name).map((one) => {
      const { dtype, type } = this.file.info(one) as { dtype?: unknown; type?: unknown };
      return dtype ?? type;
    });
    return types.find((type): type is string => typeof type === 'string' && INTEGERS.test(type));
  }

  /** Elements of a row that stay together in the file: those of a block; 1 for numbers. */
  blockSizeOf(name: string): number {
    const stored = this.find(name);
    if (!stored) return 1;
    if (stored.packed) return MXFP4_BLOCK;
    return hasBlocks(this.file) ? this.file.format(stored.names[0]).blockSize : 1;
  }

  /** Of a tensor `load` gives this part from now on. @param part of the shape that {@link shapeOf} says */
  split(name: string, part: TensorPart): void {
    this.parts.set(name, part);
  }

  bytesOf(name: string): number {
    const { names, form } = this.find(name)!;
    return names.reduce((sum, stored) => sum + this.file.info(stored).byteLength, 0) / (form.part?.[1] ?? 1);
  }

  /** @param dtype f32, f16 or bf16, of weights that are numbers; blocks stay. Default: as they are stored */
  async load(name: string, device: Device, dtype?: DType, signal?: AbortSignal): Promise<QTensor> {
    const stored = this.find(name)!;
    const dense = dtype as DenseDType | undefined;
    if (stored.packed) {
      const options = { dense, signal: signal ?? this.options.signal, ...partOf(stored.form) };
      using weight = await QTensor.loadMxfp4(this.file as PartReader, stored.packed, device, options);
      await this.step(this.bytesOf(name));
      const part = this.parts.get(name);
      return part ? weight.part(part) : weight.share();
    }
    this.checkNumbers(name);
    const part = this.parts.get(name);
    const { names, inFile, behind } = divided(stored, part);
    const parts: QTensor[] = [];
    try {
      for (const one of names) {
        const options = { dense, signal: signal ?? this.options.signal, part: inFile };
        using read = await QTensor.load(this.file, one, device, options);
        parts.push(formed(read, name, stored.form, dense));
        await this.step(this.file.info(one).byteLength / (stored.form.part?.[1] ?? 1));
      }
      using whole = joined(parts, stored.experts);
      return behind ? whole.part(behind) : whole.share();
    } finally {
      for (const part of parts) part.dispose();
    }
  }

  loadSync(name: string, device: Device, dtype?: DType): QTensor {
    const { file } = this;
    const stored = this.find(name)!;
    const dense = dtype as DenseDType | undefined;
    if (stored.packed)
      return QTensor.loadMxfp4Sync(file as PartReader, stored.packed, device, { dense, ...partOf(stored.form) });
    this.checkNumbers(name);
    const parts: QTensor[] = [];
    try {
      for (const one of stored.names) {
        using numbers = hasBlocks(file) ? undefined : file.loadSync(one, device, { dtype });
        using read = hasBlocks(file) ? QTensor.fromGguf(file, one, device, { dense }) : QTensor.fromTensor(numbers!);
        parts.push(formed(read, name, stored.form, dense));
      }
      return joined(parts, stored.experts);
    } finally {
      for (const part of parts) part.dispose();
    }
  }

  close(): void {
    this.file.close();
  }

  private find(name: string): Stored | undefined {
    if (!this.known.has(name)) this.known.set(name, this.search(name));
    return this.known.get(name);
  }

  private search(name: string): Stored | undefined {
    const { list } = this;
    if (!list) return this.searchFor({ name, form: {} });
    for (const one of list.allInCheckpoints(name)) {
      const found = this.searchFor(one);
      if (found) return found;
    }
    return undefined;
  }

  private searchFor({ name: whole, form }: StoredTensor): Stored | undefined {
    const { file, list } = this;
    const names = list ? spellings(whole) : [whole];
    const stored = names.find((one) => file.has(one.replace('{e}', '0'))) ?? whole;
    // Weights in MXFP4 lie as they are used, whatever the form of the same weights as numbers.
    const packed = file.readPartSync ? names.find((one) => mxfp4Names(one).every((part) => file.has(part))) : undefined;
    if (packed) return { names: mxfp4Names(packed), form, experts: false, packed };
    if (!stored.includes('{e}')) return file.has(stored) ? { names: [stored], form, experts: false } : undefined;
    const each: string[] = [];
    for (let e = 0; file.has(stored.replace('{e}', String(e))); e++) each.push(stored.replace('{e}', String(e)));
    return each.length > 0 ? { names: each, form, experts: true } : undefined;
  }

  /** @throws FileFormatError for integers */
  private checkNumbers(name: string): void {
    const integers = this.integerTypeOf(name);
    if (integers === undefined) return;
    const { path } = this.file;
    const message = `${path}: ${this.storedName(name)} holds ${integers}, but weights are floating-point numbers; get the file again.`;
    throw new FileFormatError('FILE_INVALID', message, { path });
  }

  /** Between two tensors: reports progress, lets the event loop run, and stops when asked to. */
  private async step(bytes: number): Promise<void> {
    this.loaded += bytes;
    this.options.onProgress?.(this.loaded, this.total);
    await nextTurn();
    this.options.signal?.throwIfAborted();
  }
}

/** What wrappers that train a model put in front of all names: torch's DataParallel, peft, torch.compile. */
const WRAPPERS = ['module.', 'base_model.model.', '_orig_mod.'];

function checkNames({ path, names }: TensorReader): void {
  const packed = names.find((name) => name.endsWith('.qweight'));
  if (packed !== undefined) throw unsupported(`has weights quantized by GPTQ or AWQ (${packed})`);
  const wrapper = WRAPPERS.find((prefix) => names.length > 0 && names.every((name) => name.startsWith(prefix)));
  if (wrapper === undefined) return;
  const message = `${path}: the names of all weights begin with "${wrapper}", which a wrapper of the model has put there; save the model that is in the wrapper.`;
  throw new FileFormatError('FILE_INVALID', message, { path });
}

/** Checkpoints of a model without its head have no name in front, and those of BERT's first years other names of norms. */
function spellings(name: string): string[] {
  const short = name.replace(/^(?:model|transformer|bert|roberta)\./, '');
  const old = (one: string) =>
    one.replace(/LayerNorm\.(weight|bias)$/, (_, kind) => `LayerNorm.${kind === 'weight' ? 'gamma' : 'beta'}`);
  return [...new Set([name, short, old(name), old(short)])];
}

/**
 * Where a part of a tensor is taken: in the file, if the tensor lies there as it is asked for, or from what was read; of experts in
 * tensors of their own those of the part are read.
 */
function divided(
  { names, form, experts }: Stored,
  part: TensorPart | undefined,
): { names: readonly string[]; inFile?: TensorPart; behind?: TensorPart } {
  if (!part) return { names };
  const { dim, ranges } = part;
  if (form.part || form.transposed) return { names, behind: part };
  if (!experts) return { names, inFile: part };
  if (dim > 0) return { names, inFile: { dim: dim - 1, ranges } };
  return { names: ranges.flatMap(({ start, count }) => names.slice(start, start + count)) };
}

/** Which dimension counts the outputs of a layer. */
function rowsDim(name: string, shape: Shape): number {
  return name.endsWith('.bias') || shape.length === 1 ? shape.length - 1 : shape.length - 2;
}

/** Which rows of a weight in MXFP4 are asked for. */
function partOf({ part, interleaved = false }: TensorForm): { part?: RowPart } {
  return part ? { part: { index: part[0], of: part[1], interleaved } } : {};
}

/** A weight as GGUF has it, for itself: numbers in `dtype`, blocks as they are. */
function formed(
  weight: QTensor,
  name: string,
  { part, interleaved, transposed, negativeExp }: TensorForm,
  dtype?: DenseDType,
): QTensor {
  if (weight.kind === 'blocks') return weight.share();
  return scope(() => {
    let numbers: Tensor = weight.data;
    if (transposed && numbers.rank > 1) numbers = numbers.transpose(-1, -2);
    if (negativeExp) numbers = numbers.toDtype('f32').exp().neg();
    if (part) {
      const [index, of] = part;
      const dim = rowsDim(name, numbers.shape);
      const rows = numbers.dim(dim) / of;
      const [before, after] = [numbers.shape.slice(0, dim), numbers.shape.slice(dim + 1)];
      const split = numbers.contiguous().reshape([...before, ...(interleaved ? [rows, of] : [of, rows]), ...after]);
      numbers = split.narrow(interleaved ? dim + 1 : dim, index, 1).squeeze(interleaved ? dim + 1 : dim);
    }
    return QTensor.fromTensor(dtype === undefined ? numbers : numbers.toDtype(dtype));
  });
}

/** Experts as one weight [experts, ...]; the parts stay the caller's. */
function joined(parts: readonly QTensor[], experts: boolean): QTensor {
  if (!experts) return parts[0].share();
  const [{ shape }] = parts;
  if (shape.length === 1)
    return scope(() =>
      QTensor.fromTensor(
        Tensor.stack(
          parts.map(({ data }) => data),
          0,
        ),
      ),
    );
  using stacked = QTensor.stack(parts);
  return stacked.reshape([parts.length, ...shape]);
}
