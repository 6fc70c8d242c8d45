/**
 * Weights by name: candle-nn's `VarBuilder` (var_builder.rs), `vb.pp('mlp').pp('up_proj')` then `get([n, k], 'weight')`.
 *
 * Different from candle: a tensor is read when it is asked for and streamed to its device, so nothing is mapped and a model
 * may use part of a file; `get` is asynchronous, `getSync` blocks; builders for training (VarMap) are not here yet.
 */
import { readFileSync } from 'node:fs';
import { dirname, join, sep } from 'node:path';
import {
  Device,
  type DType,
  FileFormatError,
  formatShape,
  SafetensorsFile,
  ShapeError,
  sameShape,
  type Tensor,
} from '@x/core';

export interface VarBuilderOptions {
  /** What tensors are converted to. Default: what they are stored as. */
  dtype?: DType;
  /** Default: `Device.cpu()`. */
  device?: Device;
}

export interface GetOptions {
  /** Overrides the builder's dtype for one tensor. */
  dtype?: DType;
}

/** One place that tensors come from. */
interface Source {
  /** For messages. */
  readonly label: string;
  names(): string[];
  shapeOf(name: string): readonly number[] | undefined;
  /** Bytes that the tensor takes where it is stored. */
  bytesOf(name: string): number;
  load(name: string, device: Device, dtype: DType | undefined): Promise<Tensor>;
  loadSync(name: string, device: Device, dtype: DType | undefined): Tensor;
  close(): void;
}

export class VarBuilder implements Disposable {
  private constructor(
    private readonly source: Source,
    readonly device: Device,
    /** What tensors are converted to; undefined: what they are stored as. */
    readonly dtype: DType | undefined,
    /** What is put before names, with dots between its parts. */
    readonly prefix: string,
  ) {}

  /** Tensors in memory, which stay the caller's: `get` gives views of them, or converted copies. */
  static fromTensors(
    tensors: Readonly<Record<string, Tensor>> | ReadonlyMap<string, Tensor>,
    options: VarBuilderOptions = {},
  ): VarBuilder {
    const map = new Map(tensors instanceof Map ? tensors : Object.entries(tensors));
    return new VarBuilder(new TensorSource(map), options.device ?? Device.cpu(), options.dtype, '');
  }

  /**
   * One file, several shards, or a `*.safetensors.index.json` that names the shards beside it. Headers are read at once;
   * the files stay open until {@link dispose}.
   * @throws FileFormatError as `SafetensorsFile.open`, `FILE_INVALID` for a bad index or a name in two files
   */
  static fromSafetensors(files: string | readonly string[], options: VarBuilderOptions = {}): VarBuilder {
    const given = typeof files === 'string' ? [files] : files;
    const paths = given.flatMap((path) => (path.endsWith('.index.json') ? shardsOf(path) : [path]));
    return new VarBuilder(new SafetensorsSource(paths), options.device ?? Device.cpu(), options.dtype, '');
  }

  /** A builder for names below `part`; numbers may be given as they are. */
  pp(part: string | number): VarBuilder {
    return new VarBuilder(this.source, this.device, this.dtype, this.path(String(part)));
  }

  /** The full name of a tensor. */
  path(name: string): string {
    return this.prefix === '' ? name : `${this.prefix}.${name}`;
  }

  containsTensor(name: string): boolean {
    return this.source.shapeOf(this.path(name)) !== undefined;
  }

  /** Full names of all tensors below the prefix. */
  names(): string[] {
    return this.source.names().filter((name) => this.prefix === '' || name.startsWith(`${this.prefix}.`));
  }

  /** Bytes that a tensor takes where it is stored. @throws FileFormatError FILE_NO_SUCH_TENSOR */
  byteLength(name: string): number {
    const path = this.path(name);
    if (this.source.shapeOf(path) === undefined) throw this.missing(path);
    return this.source.bytesOf(path);
  }

  /**
   * A tensor, which the caller owns.
   * @param shape what the model needs; another one in the file is an error
   * @throws FileFormatError FILE_NO_SUCH_TENSOR with the nearest names, ShapeError SHAPE_MISMATCH
   */
  async get(shape: readonly number[], name: string, options: GetOptions = {}): Promise<Tensor> {
    return this.source.load(this.checked(shape, name), this.device, options.dtype ?? this.dtype);
  }

  /** As {@link get}, blocking the event loop. */
  getSync(shape: readonly number[], name: string, options: GetOptions = {}): Tensor {
    return this.source.loadSync(this.checked(shape, name), this.device, options.dtype ?? this.dtype);
  }

  /** Closes files; for this builder and all made from it. Tensors given out stay. */
  dispose(): void {
    this.source.close();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }

  private checked(shape: readonly number[], name: string): string {
    const path = this.path(name);
    const found = this.source.shapeOf(path);
    if (found === undefined) throw this.missing(path);
    if (!sameShape(found, shape)) {
      throw new ShapeError(
        'SHAPE_MISMATCH',
        `${this.source.label}: tensor "${path}" is ${formatShape(found)} and the model asks for ${formatShape(shape)}; check that configuration and weights belong together.`,
      );
    }
    return path;
  }

  private missing(path: string): FileFormatError {
    const names = this.source.names();
    const last = path.slice(path.lastIndexOf('.') + 1);
    const parent = path.slice(0, path.lastIndexOf('.') + 1);
    // Names with the same parent say what the layer has, names with the same end where such layers are.
    const near = names
      .filter((name) => (parent !== '' && name.startsWith(parent)) || name.endsWith(`.${last}`))
      .slice(0, 4);
    const hint = near.length > 0 ? ` Names like it: ${near.join(', ')}.` : '';
    return new FileFormatError(
      'FILE_NO_SUCH_TENSOR',
      `${this.source.label}: there is no tensor "${path}" among ${names.length}.${hint} Check that the weights are of the architecture that is being loaded.`,
      { path: this.source.label },
    );
  }
}

class TensorSource implements Source {
  readonly label = 'VarBuilder.fromTensors';

  constructor(private readonly tensors: ReadonlyMap<string, Tensor>) {}

  names(): string[] {
    return [...this.tensors.keys()];
  }

  shapeOf(name: string): readonly number[] | undefined {
    return this.tensors.get(name)?.shape;
  }

  bytesOf(name: string): number {
    const { ref } = this.tensors.get(name)!.handle;
    return ref?.bytes ?? 0;
  }

  async load(name: string, device: Device, dtype: DType | undefined): Promise<Tensor> {
    const tensor = this.tensors.get(name)!;
    const moved = await tensor.toDevice(device);
    return converted(moved, dtype);
  }

  loadSync(name: string, device: Device, dtype: DType | undefined): Tensor {
    return converted(this.tensors.get(name)!.toDeviceSync(device), dtype);
  }

  close(): void {}
}

/** Disposes `tensor` unless it is returned. */
function converted(tensor: Tensor, dtype: DType | undefined): Tensor {
  if (!dtype || dtype === tensor.dtype) return tensor;
  try {
    return tensor.toDtype(dtype);
  } finally {
    tensor.dispose();
  }
}

class SafetensorsSource implements Source {
  readonly label: string;
  private readonly files: SafetensorsFile[] = [];
  private readonly owner = new Map<string, SafetensorsFile>();

  constructor(paths: readonly string[]) {
    this.label = paths.length === 1 ? paths[0] : `${paths.length} safetensors files (${paths[0] ?? 'none'}, ...)`;
    try {
      for (const path of paths) {
        const file = SafetensorsFile.open(path);
        this.files.push(file);
        for (const name of file.names) {
          const other = this.owner.get(name);
          if (other) {
            throw new FileFormatError(
              'FILE_INVALID',
              `Tensor "${name}" is in ${other.path} and in ${path}; give only the files of one model.`,
              { path },
            );
          }
          this.owner.set(name, file);
        }
      }
    } catch (error) {
      this.close();
      throw error;
    }
  }

  names(): string[] {
    return [...this.owner.keys()];
  }

  shapeOf(name: string): readonly number[] | undefined {
    return this.owner.get(name)?.info(name).shape;
  }

  bytesOf(name: string): number {
    return this.owner.get(name)!.info(name).byteLength;
  }

  load(name: string, device: Device, dtype: DType | undefined): Promise<Tensor> {
    return this.owner.get(name)!.load(name, device, { dtype });
  }

  loadSync(name: string, device: Device, dtype: DType | undefined): Tensor {
    return this.owner.get(name)!.loadSync(name, device, { dtype });
  }

  close(): void {
    for (const file of this.files) file.close();
  }
}

/** The shard files that an index names, each once, beside the index. */
function shardsOf(path: string): string[] {
  const invalid = (what: string, cause?: unknown) =>
    new FileFormatError('FILE_INVALID', `${path}: ${what}; download the index again.`, { path, cause });
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch (cause) {
    throw new FileFormatError(
      'FILE_NOT_FOUND',
      `${path} cannot be read (${(cause as Error).message}); check the path.`,
      { path, cause },
    );
  }
  let map: unknown;
  try {
    map = (JSON.parse(text) as { weight_map?: unknown } | null)?.weight_map;
  } catch (cause) {
    throw invalid(`it is not JSON (${(cause as Error).message})`, cause);
  }
  if (typeof map !== 'object' || map === null || Array.isArray(map)) throw invalid('it has no "weight_map" object');
  const names = new Set<string>();
  for (const [tensor, file] of Object.entries(map)) {
    // An index comes from outside: it may only name files beside itself.
    if (typeof file !== 'string' || file === '' || file.includes('/') || file.includes(sep) || file === '..') {
      throw invalid(
        `it places tensor "${tensor}" in ${JSON.stringify(file)}, which is not the name of a file beside it`,
      );
    }
    names.add(file);
  }
  return [...names].map((name) => join(dirname(path), name));
}
