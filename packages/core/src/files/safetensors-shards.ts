/**
 * A model in several safetensors files: candle's `MmapedSafetensors::multi`, and the `*.safetensors.index.json` that
 * Hugging Face writes beside the shards. A tensor that lies in several files is the one of the file that the index gives
 * it to; without an index, names must be unique. An index is checked against the headers of the files it names, and it may
 * name files of its own folder only.
 */
import { check, kind } from '../check';
import type { DeviceLike } from '../device';
import { FileFormatError } from '../errors';
import { node } from '../platform';
import { show } from '../show';
import type { Tensor } from '../tensor';
import { readJsonFile } from './json';
import { loadEach, noSuchTensor, SafetensorsFile, type TensorReader } from './safetensors';
import type { SafetensorsInfo } from './safetensors-header';
import type { LoadOptions } from './types';

/** Of an index; that of a model with 100,000 tensors has some 10 MB. */
const INDEX_LIMITS = { bytes: 100_000_000, items: 1_000_000, depth: 64 };
/** More files than any model has, so that a damaged index opens no thousands. */
const MOST_SHARDS = 4096;
/** Each path is for `SafetensorsFile.open` to look at. */
const PATHS = kind((value) => typeof value === 'string' || Array.isArray(value), 'give a path or an array of paths');

/** The tensors of several safetensors files, as of one. */
export class ShardedSafetensors implements TensorReader {
  /** The index, or the first file. */
  readonly path: string;
  readonly #files: SafetensorsFile[];
  readonly #owner = new Map<string, SafetensorsFile>();

  /** @param index which file a tensor is in, where something says so */
  private constructor(path: string, files: SafetensorsFile[], index?: ReadonlyMap<string, string>) {
    this.path = path;
    this.#files = files;
    for (const file of files) {
      for (const name of file.names) {
        if (index?.has(name) && index.get(name) !== file.path) continue;
        const other = this.#owner.get(name);
        if (other) throw invalid(file.path, `tensor "${name}" is in ${other.path} too; give each tensor once`);
        this.#owner.set(name, file);
      }
    }
  }

  /**
   * Opens several files, or all files that an index (`*.index.json`) names; they stay open until {@link close}.
   * @throws FileFormatError as `SafetensorsFile.open`; `FILE_INVALID` for a name in two files and no index, or a wrong index
   */
  static open(files: string | readonly string[]): ShardedSafetensors {
    check('ShardedSafetensors.open', 'files', files, PATHS);
    const given = typeof files === 'string' ? [files] : files;
    const [label = 'no files'] = given;
    const index = given.length === 1 && String(label).endsWith('.index.json') ? readIndex(label) : undefined;
    const paths = index ? [...new Set(index.values())] : given;
    const opened: SafetensorsFile[] = [];
    try {
      for (const path of paths) opened.push(SafetensorsFile.open(path));
      const shards = new ShardedSafetensors(label, opened, index);
      for (const [name, path] of index ?? []) {
        if (shards.#owner.get(name)?.path === path) continue;
        throw invalid(label, `the index puts tensor "${name}" into ${path}, which does not have it; get both again`);
      }
      return shards;
    } catch (error) {
      for (const file of opened) file.close();
      throw error;
    }
  }

  /** In the order of the files and their headers. */
  get names(): string[] {
    return [...this.#owner.keys()];
  }

  /** The files, in the order they were given. */
  get paths(): string[] {
    return this.#files.map(({ path }) => path);
  }

  /** Whether one of the files has a tensor of this name. */
  has(name: string): boolean {
    return this.#owner.has(name);
  }

  /** As `SafetensorsFile.info`. @throws FileFormatError `FILE_NO_SUCH_TENSOR` */
  info(name: string): SafetensorsInfo {
    return this.#fileOf(name).info(name);
  }

  /** As `SafetensorsFile.load`. */
  async load(name: string, device?: DeviceLike, options: LoadOptions = {}): Promise<Tensor> {
    return this.#fileOf(name).load(name, device, options);
  }

  /** As {@link load}, blocking the event loop. */
  loadSync(name: string, device?: DeviceLike, options: LoadOptions = {}): Tensor {
    return this.#fileOf(name).loadSync(name, device, options);
  }

  /** As `SafetensorsFile.readPartSync`. */
  readPartSync(name: string, offset: number, into: Uint8Array): void {
    this.#fileOf(name).readPartSync(name, offset, into);
  }

  /** All tensors by name. */
  loadAll(device?: DeviceLike, options: LoadOptions = {}): Promise<Map<string, Tensor>> {
    return loadEach(this, device, options);
  }

  /** Closes all files. Harmless when repeated. */
  close(): void {
    for (const file of this.#files) file.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #fileOf(name: string): SafetensorsFile {
    return this.#owner.get(name) ?? noSuchTensor(this.path, name, this.names);
  }
}

/** Tensor names to paths of shards. */
function readIndex(path: string): Map<string, string> {
  const root = readJsonFile(path, INDEX_LIMITS);
  const map = (root as { weight_map?: unknown } | null)?.weight_map;
  if (typeof map !== 'object' || map === null || Array.isArray(map))
    throw invalid(path, 'the index has no weight_map; give the *.safetensors.index.json of a model');
  const { dirname, join } = node('path');
  const folder = dirname(path);
  const shards = new Set(Object.values(map)).size;
  if (shards > MOST_SHARDS) throw invalid(path, `the index names ${shards} files, over the limit of ${MOST_SHARDS}`);
  return new Map(
    Object.entries(map).map(([name, file]) => {
      if (typeof file !== 'string' || !/^[^/\\]+$/.test(file) || file === '..' || file === '.')
        throw invalid(path, `tensor "${name}" is in ${show(file)}, which is no file name; get the index again`);
      return [name, join(folder, file)];
    }),
  );
}

function invalid(path: string, what: string): FileFormatError {
  return new FileFormatError('FILE_INVALID', `${path}: ${what}.`, { path });
}
