/**
 * Importance matrices as llama.cpp's `llama-imatrix` collects them: for every weight the mean squares of the activations
 * that its rows meet (candle `imatrix_file::load_imatrix`, which reads the first form only).
 *
 * - Binary, the older form: count; then for each weight name, calls, count of values, values; then the number of the last
 *   chunk and the data set's name, which old files lack. The values are divided by the calls.
 * - GGUF with `general.type` "imatrix": tensors `NAME.in_sum2` and `NAME.counts`; sums are divided by counts, each expert of
 *   a mixture by its own.
 */
import { ByteReader } from './byte-reader';
import { ggufError } from './error';
import { GgufFile } from './file';
import { DEFAULT_LIMITS } from './header';
import { openFile } from './source';

export interface Imatrix {
  /** By tensor name: one value for each value of a row; of experts, one such list after the other. */
  readonly entries: ReadonlyMap<string, Float32Array>;
  /** What was read to collect it, as far as the file says. */
  readonly datasets: readonly string[];
  /** Chunks of text that were read; 0 when the file does not say. */
  readonly chunkCount: number;
}

/** Reads either form. Raises `FileFormatError` when the file is neither, or damaged. */
export function loadImatrix(path: string): Imatrix {
  const source = openFile(path);
  try {
    const reader = new ByteReader(source, DEFAULT_LIMITS.headerMemory);
    reader.what = 'the count of entries';
    const first = reader.uint32();
    if (first !== 0x46554747) return readBinary(reader, first);
  } finally {
    source.close();
  }
  using file = GgufFile.open(path);
  return readGguf(file);
}

function readBinary(reader: ByteReader, count: number): Imatrix {
  const { path } = reader;
  if (count === 0 || count * 12 > reader.remaining) {
    throw ggufError(
      'GGUF_BAD_COUNT',
      path,
      `it announces ${count} entries of at least 12 bytes, and ${reader.remaining} bytes follow. It is no importance ` +
        'matrix, or damaged: make it again with llama-imatrix.',
    );
  }
  const entries = new Map<string, Float32Array>();
  for (let i = 0; i < count; i++) {
    reader.what = `the name of entry ${i + 1} of ${count}`;
    const nameLength = reader.uint32();
    reader.require(nameLength);
    reader.charge(200 + 2 * nameLength);
    const name = reader.text(nameLength);
    reader.what = `entry '${name}'`;
    const calls = reader.int32();
    const values = reader.uint32();
    reader.require(values * 4);
    reader.charge(values * 4);
    if (values === 0 || entries.has(name)) {
      const what = values === 0 ? 'has no values' : 'is there twice';
      throw ggufError('GGUF_INVALID_CONTENT', path, `entry '${name}' ${what}. Make it again with llama-imatrix.`);
    }
    const sums = new Float32Array(reader.numbers(values, 4));
    entries.set(name, calls > 0 ? sums.map((sum) => sum / calls) : sums);
  }
  let chunkCount = 0;
  const datasets: string[] = [];
  if (reader.remaining >= 8) {
    reader.what = 'the data set';
    chunkCount = reader.uint32();
    datasets.push(reader.text(reader.uint32()));
  }
  return { entries, datasets, chunkCount };
}

const SUMS = '.in_sum2';
const COUNTS = '.counts';

function readGguf(file: GgufFile): Imatrix {
  const { metadata, path } = file;
  const type = metadata.get('general.type')?.value;
  if (type !== 'imatrix') {
    throw ggufError(
      'GGUF_INVALID_CONTENT',
      path,
      `general.type is ${JSON.stringify(type ?? 'missing')}, not "imatrix". Give the file that llama-imatrix wrote, not the model.`,
    );
  }
  const entries = new Map<string, Float32Array>();
  for (const { name } of file.tensors.values()) {
    if (!name.endsWith(SUMS)) continue;
    const weight = name.slice(0, -SUMS.length);
    const sums = floats(file, name);
    const counts = floats(file, `${weight}${COUNTS}`);
    const perList = sums.length / counts.length;
    if (!Number.isInteger(perList) || perList === 0) {
      throw ggufError(
        'GGUF_INVALID_CONTENT',
        path,
        `'${name}' has ${sums.length} values for ${counts.length} counts. Make it again with llama-imatrix.`,
      );
    }
    // An expert that no token was routed to has no say: all of its values matter alike.
    entries.set(
      weight,
      sums.map((sum, i) => {
        const calls = counts[Math.floor(i / perList)];
        return calls > 0 ? sum / calls : 1;
      }),
    );
  }
  if (entries.size === 0) {
    throw ggufError('GGUF_INVALID_CONTENT', path, `it holds no tensor '*${SUMS}'. Make it again with llama-imatrix.`);
  }
  const datasets = metadata.has('imatrix.datasets') ? metadata.strings('imatrix.datasets') : [];
  return { entries, datasets, chunkCount: metadata.uint('imatrix.chunk_count', 0) };
}

/** A tensor's values as f32. */
function floats(file: GgufFile, name: string): Float32Array {
  const format = file.format(name);
  const { elemCount } = file.tensor(name);
  const out = new Float32Array(elemCount);
  format.dequantize(file.readTensorBytes(name), 0, out, 0, elemCount / format.blockSize);
  return out;
}
