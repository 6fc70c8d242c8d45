/**
 * Files from before GGUF, of LLaMA models (candle `quantized::ggml_file::Content`): magic `ggml` without a version, `ggmf`
 * version 1 and `ggjt` versions 1 to 3. After seven hyper-parameters and the vocabulary come the tensors, each with its
 * description before its data, from version `ggjt` on at multiples of 32 bytes.
 *
 * Different from candle: data is read when asked for, tokens of an unversioned file have no scores, and quantised tensors
 * are read in `ggjt` 3 and K formats only; those before had other blocks under the same numbers, which candle would read
 * as noise.
 */
import type { ByteSource } from '@x/core/files';
import { type BlockFormat, byteLengthOf, formatById } from '../blocks';
import { ByteReader } from './byte-reader';
import { type GgufErrorCode, ggufError } from './error';
import { DEFAULT_LIMITS } from './header';
import { openBytes, openFile } from './source';
import { type GgufTensorInfo, TensorFile } from './tensor-file';

export interface GgmlHyperParameters {
  readonly vocabularySize: number;
  readonly embeddingLength: number;
  /** The feed-forward length is rounded up to a multiple of it. */
  readonly multipleOf: number;
  readonly headCount: number;
  readonly blockCount: number;
  /** Values of a head that are rotated. */
  readonly rotated: number;
  /** What most tensors were quantised to. */
  readonly fileType: number;
}

export interface GgmlVocabularyEntry {
  readonly bytes: Uint8Array;
  /** 0 in unversioned files. */
  readonly score: number;
}

const MAGICS: Record<number, 'ggml' | 'ggmf' | 'ggjt'> = {
  1734831468: 'ggml',
  1734831462: 'ggmf',
  1734830708: 'ggjt',
};

interface Content {
  magic: string;
  version: number;
  parameters: GgmlHyperParameters;
  vocabulary: GgmlVocabularyEntry[];
  tensors: Map<string, GgufTensorInfo>;
}

/** A file of the formats before GGUF, open for reading (candle's `ggml_file::Content`). */
export class GgmlFile extends TensorFile {
  /** `ggml`, `ggmf` or `ggjt`. */
  readonly magic: string;
  /** 0 for `ggml`. */
  readonly version: number;
  readonly parameters: GgmlHyperParameters;
  readonly vocabulary: readonly GgmlVocabularyEntry[];

  private constructor(source: ByteSource, content: Content) {
    super(source.path, [{ source, dataOffset: 0, bigEndian: false, tensors: content.tensors }]);
    this.magic = content.magic;
    this.version = content.version;
    this.parameters = content.parameters;
    this.vocabulary = content.vocabulary;
  }

  /** Opens a file and reads its descriptions. Raises `FileFormatError` with codes as `GgufFile.open` does. */
  static open(path: string): GgmlFile {
    return GgmlFile.#from(openFile(path));
  }

  /** The same for a file in memory. */
  static fromBytes(bytes: Uint8Array, name = 'GGML bytes'): GgmlFile {
    return GgmlFile.#from(openBytes(bytes, name));
  }

  static #from(source: ByteSource): GgmlFile {
    try {
      return new GgmlFile(source, new Parser(new ByteReader(source, DEFAULT_LIMITS.headerMemory)).parse());
    } catch (error) {
      source.close();
      throw error;
    }
  }
}

/** Memory of an entry beside its bytes, estimated. */
const ENTRY_COST = 200;

class Parser {
  #magic: 'ggml' | 'ggmf' | 'ggjt' = 'ggml';
  #version = 0;

  constructor(readonly reader: ByteReader) {}

  parse(): Content {
    this.#start();
    const parameters = this.#parameters();
    const vocabulary = this.#vocabulary(parameters.vocabularySize);
    const tensors = new Map<string, GgufTensorInfo>();
    while (this.reader.remaining > 0) {
      const info = this.#tensor(tensors.size + 1);
      if (tensors.has(info.name)) {
        throw this.#error('GGUF_DUPLICATE_TENSOR', `tensor '${info.name}' is there twice. Write the file again.`);
      }
      tensors.set(info.name, info);
    }
    return { magic: this.#magic, version: this.#version, parameters, vocabulary, tensors };
  }

  #start(): void {
    const { reader } = this;
    reader.what = 'the magic number';
    const magic = reader.uint32();
    const known = MAGICS[magic];
    if (known === undefined) {
      const hint = magic === 0x46554747 ? 'It is a GGUF file: open it with GgufFile.' : 'It is no GGML model file.';
      throw this.#error('GGUF_BAD_MAGIC', `it starts with 0x${magic.toString(16).padStart(8, '0')}. ${hint}`);
    }
    this.#magic = known;
    if (known === 'ggml') return;
    reader.what = 'the version';
    this.#version = reader.uint32();
    if (this.#version < 1 || this.#version > (known === 'ggjt' ? 3 : 1)) {
      throw this.#error(
        'GGUF_UNSUPPORTED_VERSION',
        `${known} version ${this.#version} is not known. Convert the model to GGUF again from its source.`,
      );
    }
  }

  #parameters(): GgmlHyperParameters {
    const { reader } = this;
    reader.what = 'the hyper-parameters';
    const [vocabularySize, embeddingLength, multipleOf, headCount, blockCount, rotated, fileType] = Array.from(
      { length: 7 },
      () => reader.uint32(),
    );
    return { vocabularySize, embeddingLength, multipleOf, headCount, blockCount, rotated, fileType };
  }

  #vocabulary(size: number): GgmlVocabularyEntry[] {
    const { reader } = this;
    const scored = this.#magic !== 'ggml';
    const smallest = scored ? 8 : 4;
    if (size * smallest > reader.remaining) {
      throw this.#error(
        'GGUF_BAD_COUNT',
        `it announces ${size} tokens of at least ${smallest} bytes, but only ${reader.remaining} bytes follow. The file ` +
          'is cut short or damaged: download it again.',
      );
    }
    const entries: GgmlVocabularyEntry[] = [];
    for (let i = 0; i < size; i++) {
      reader.what = `token ${i + 1} of ${size}`;
      const length = reader.uint32();
      reader.charge(ENTRY_COST + length);
      const bytes = new Uint8Array(reader.bytes(length));
      entries.push({ bytes, score: scored ? reader.float32() : 0 });
    }
    return entries;
  }

  #tensor(number: number): GgufTensorInfo {
    const { reader } = this;
    reader.what = `the description of tensor ${number}`;
    reader.charge(2 * ENTRY_COST);
    const rank = reader.uint32();
    const nameLength = reader.uint32();
    const ggmlType = reader.uint32();
    if (rank > 4) throw this.#error('GGUF_BAD_SHAPE', `tensor ${number} has ${rank} dimensions; 4 is the most.`);
    const dims = Array.from({ length: rank }, () => reader.uint32());
    reader.require(nameLength);
    reader.charge(2 * nameLength);
    const name = reader.text(nameLength);
    reader.what = `the data of tensor '${name}'`;
    const elemCount = dims.reduce((product, dim) => product * dim, 1);
    const format = this.#format(name, ggmlType);
    const row = dims[0] ?? 1;
    if (row % format.blockSize !== 0 || !(elemCount <= Number.MAX_SAFE_INTEGER)) {
      throw this.#error(
        'GGUF_BAD_SHAPE',
        `tensor '${name}' is ${format.type} [${[...dims].reverse().join(', ')}], no whole number of blocks of ` +
          `${format.blockSize} a row. The file is damaged.`,
      );
    }
    if (this.#magic === 'ggjt') reader.align(32);
    const offset = reader.position;
    const byteLength = byteLengthOf(format, elemCount);
    reader.skip(byteLength);
    return { name, type: format.type, ggmlType, shape: dims.reverse(), elemCount, offset, byteLength, format };
  }

  /** Where a tensor's data ends is known from its type alone, so one that cannot be read ends the whole file. */
  #format(name: string, ggmlType: number): BlockFormat {
    const format = formatById(ggmlType);
    if (format === undefined) {
      throw this.#error(
        'GGUF_UNKNOWN_TYPE',
        `tensor '${name}' has type id ${ggmlType}, which is not known. Convert the model to GGUF from its source.`,
      );
    }
    const old = this.#magic !== 'ggjt' || this.#version < 3;
    if (old && format.blockSize === 32) {
      throw this.#error(
        'GGUF_UNSUPPORTED_VERSION',
        `tensor '${name}' is ${format.type} as ${this.#magic} version ${this.#version} had it, whose blocks were others. ` +
          'Convert the model to GGUF from its source.',
      );
    }
    return format;
  }

  #error(code: GgufErrorCode, message: string) {
    return ggufError(code, this.reader.path, message);
  }
}
