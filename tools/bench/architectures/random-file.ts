/**
 * A GGUF file that is nowhere: its tensors have names, shapes and types, and their bytes are made when they are read. All tensors of
 * one kind take their values from one pool of some MiB, each from another place on, so that gigabytes take no longer than a copy.
 * Values are what a model can compute with: matrices keep the size of what they multiply, norms are about 1, states decay.
 */
import { blockFormat, byteLengthOf, type GgufTensorInfo, type QuantType, TensorFile } from '@x/quantized';

export interface RandomTensor {
  name: string;
  /** Outermost dimension first. */
  shape: readonly number[];
  type: QuantType;
}

/** Values that are quantized; pools are put together from their blocks. */
const TILE = 2 ** 17;
/** Bytes of a pool, about. */
const POOL_BYTES = 4 * 2 ** 20;
/** Numbers that stay together in pools of types without blocks. */
const RUN = 32;

/** Numbers in [0, 1), the same in each run of a program. */
function uniform(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let bits = Math.imul(state ^ (state >>> 15), state | 1);
    bits ^= bits + Math.imul(bits ^ (bits >>> 7), bits | 61);
    return ((bits ^ (bits >>> 14)) >>> 0) / 2 ** 32;
  };
}

function normal(random: () => number): number {
  return Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
}

/** How the values of a tensor are drawn, and a name that tensors drawn alike share. */
interface Kind {
  name: string;
  draw(random: () => number): number;
}

const spread = (name: string, deviation: number, mean = 0): Kind => ({
  name: `${name}-${deviation}`,
  draw: (random) => mean + deviation * normal(random),
});

function kindOf({ name, shape }: RandomTensor): Kind {
  const part = name.replace(/^blk\.\d+\./, '');
  if (part.endsWith('norm.weight')) return spread('norm', 0.02, 1);
  // The steps are softplus of it: from 0.001 to 0.1, as Mamba's are drawn.
  if (part === 'ssm_dt.bias') return { name: 'steps', draw: (random) => Math.log(Math.expm1(0.001 * 100 ** random())) };
  if (part === 'ssm_a') return { name: 'decay', draw: (random) => -1 - 15 * random() };
  if (part === 'ssm_d') return { name: 'ones', draw: () => 1 };
  if (part.includes('conv')) return part.includes('proj') ? matrix(shape) : spread('taps', 0.3);
  if (part.endsWith('.bias')) return spread('bias', 0.02);
  if (part.startsWith('attn_sinks')) return spread('sinks', 1);
  return matrix(shape);
}

function matrix(shape: readonly number[]): Kind {
  return spread('matrix', 1 / Math.sqrt(shape[shape.length - 1]));
}

/** Bytes of random blocks of a type, of `POOL_BYTES` or a little less. */
function poolOf(kind: Kind, type: QuantType): Uint8Array {
  const format = blockFormat(type);
  if (!format.quantize) throw new Error(`Weights in ${type} cannot be made; give another --mix.`);
  const random = uniform(TILE);
  const values = Float32Array.from({ length: TILE }, () => kind.draw(random));
  const tile = new Uint8Array(byteLengthOf(format, TILE));
  format.quantize(values, 0, tile, 0, TILE / format.blockSize);
  const unit = format.blockSize === 1 ? RUN * format.blockBytes : format.blockBytes;
  const units = tile.length / unit;
  const pool = new Uint8Array(Math.floor(POOL_BYTES / unit) * unit);
  for (let at = 0; at < pool.length; at += unit) {
    const from = Math.floor(random() * units) * unit;
    pool.set(tile.subarray(from, from + unit), at);
  }
  return pool;
}

interface Content {
  /** Bytes from the start of the file. */
  offset: number;
  pool: Uint8Array;
  /** Where in the pool it begins. */
  start: number;
}

/** Where the bytes come from: a position in the file is a tensor and a place in it. */
class Pools {
  readonly path = 'random weights';
  readonly tensors = new Map<string, GgufTensorInfo>();
  readonly size: number;
  private readonly contents: Content[] = [];

  constructor(tensors: readonly RandomTensor[]) {
    const pools = new Map<string, Uint8Array>();
    const random = uniform(1);
    let offset = 0;
    for (const tensor of tensors) {
      const { name, shape, type } = tensor;
      const format = blockFormat(type);
      const kind = kindOf(tensor);
      const key = `${kind.name} ${type}`;
      const pool = pools.get(key) ?? poolOf(kind, type);
      pools.set(key, pool);
      const start = Math.floor((random() * pool.length) / format.blockBytes) * format.blockBytes;
      const elemCount = shape.reduce((product, size) => product * size, 1);
      const byteLength = byteLengthOf(format, elemCount);
      const { ggmlType } = format;
      this.tensors.set(name, { name, type, ggmlType, shape, elemCount, offset, byteLength, format });
      this.contents.push({ offset, pool, start });
      offset += byteLength;
    }
    this.size = offset;
  }

  readSync(into: Uint8Array, position: number): void {
    let [low, high] = [0, this.contents.length];
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (this.contents[middle].offset <= position) low = middle;
      else high = middle;
    }
    const { offset, pool, start } = this.contents[low];
    let from = (start + position - offset) % pool.length;
    for (let at = 0; at < into.length; from = 0) {
      const count = Math.min(into.length - at, pool.length - from);
      into.set(pool.subarray(from, from + count), at);
      at += count;
    }
  }

  async read(into: Uint8Array, position: number): Promise<void> {
    this.readSync(into, position);
  }

  close(): void {}
}

export class RandomFile extends TensorFile {
  /** @throws Error for a type that has no quantizer */
  constructor(tensors: readonly RandomTensor[]) {
    const source = new Pools(tensors);
    super(source.path, [{ source, dataOffset: 0, bigEndian: false, tensors: source.tensors }]);
  }
}
