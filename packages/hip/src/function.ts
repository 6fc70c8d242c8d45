/**
 * A kernel ready to launch. Arguments are packed straight into the device's launch buffer, behind a record of grid, block
 * and handles, and one native call without arguments submits it: no object is made on the way.
 */
import type { DeviceContext } from './context';
import { type HipError, invalidArgument } from './errors';
import type { HipModule } from './module';
import type { ParamPlan, ParamType } from './params';
import { encodeBF16, encodeF8E4M3, encodeF16 } from './small-float';
import type { HipStream } from './stream';

/** Blocks (or threads) along x, or along x, y and z. */
export type Dim = number | readonly [x: number, y: number, z: number];

// Words of the launch record; native/device.h has the same list.
const FUNCTION = 0;
const STREAM = 1;
const GRID = 2;
const BLOCK = 5;
const SHARED = 8;
const ARG_BYTES = 9;
const TWO_32 = 4294967296;

// Parameter kinds: places in the list of params.ts. Constants of this file, because reading an import costs.
const PTR = 0;
const U64 = 1;
const I64 = 2;
const U32 = 3;
const I32 = 4;
const F32 = 5;
const F64 = 6;
const I16 = 7;
const U8 = 8;
const BOOL = 9;
const F16 = 10;
const BF16 = 11;
const F8E4M3 = 12;

/** A kernel with the types of its parameters: what `module.getFunction()` gives. It is of no use once its module is disposed. */
export class HipFunction {
  readonly name: string;
  readonly params: readonly ParamType[];
  readonly #context: DeviceContext;
  readonly #module: HipModule;
  readonly #handle: number;
  readonly #plan: ParamPlan;

  /** @internal Use `module.getFunction()`. */
  constructor(context: DeviceContext, module: HipModule, handle: number, name: string, plan: ParamPlan) {
    this.#context = context;
    this.#module = module;
    this.#handle = handle;
    this.#plan = plan;
    this.name = name;
    this.params = plan.types;
  }

  /**
   * Enqueues the kernel. `sharedBytes` is dynamic shared memory per block. Integers must fit their type; `ptr`, `i64` and
   * `u64` take a safe integer or a bigint; `bool` takes 0 or 1. Throws INVALID_ARGUMENT naming kernel and parameter.
   */
  launch(grid: Dim, block: Dim, sharedBytes: number, args: readonly (number | bigint)[], stream?: HipStream): void {
    const context = this.#context;
    if (context.disposed || this.#module.isDisposed) context.check(true, `module of kernel '${this.name}'`);
    const words = context.words;
    words[FUNCTION] = this.#handle;
    words[STREAM] = stream === undefined ? context.stream : stream.handleOn(context);
    this.#putDim(words, GRID, grid, 'grid');
    this.#putDim(words, BLOCK, block, 'block');
    if (sharedBytes >>> 0 !== sharedBytes) {
      throw this.#bad(`shared bytes must be a non-negative integer, not ${sharedBytes}`);
    }
    words[SHARED] = sharedBytes;
    words[ARG_BYTES] = this.#plan.bytes;
    this.#putArgs(args);
    context.launch();
  }

  #putDim(words: Uint32Array, at: number, dim: Dim, what: string): void {
    if (typeof dim === 'number') {
      if (dim >>> 0 !== dim || dim === 0) throw this.#badDim(what, dim);
      words[at] = dim;
      words[at + 1] = 1;
      words[at + 2] = 1;
      return;
    }
    for (let i = 0; i < 3; i++) {
      const size = dim[i];
      if (size >>> 0 !== size || size === 0) throw this.#badDim(what, dim);
      words[at + i] = size;
    }
  }

  #putArgs(args: readonly (number | bigint)[]): void {
    const { kinds, offsets } = this.#plan;
    if (args.length !== kinds.length) {
      throw this.#bad(`takes ${kinds.length} arguments (${this.params.join(', ')}), got ${args.length}`);
    }
    const context = this.#context;
    const base = context.argsOffset;
    for (let i = 0; i < kinds.length; i++) {
      const value = args[i];
      const at = base + offsets[i];
      if (typeof value === 'bigint') {
        this.#putBigint(i, at, value);
        continue;
      }
      if (typeof value !== 'number') throw this.#badArg(i, value);
      switch (kinds[i]) {
        case PTR:
        case U64:
          if (value < 0) throw this.#badArg(i, value);
          this.#putWide(i, at, value);
          break;
        case I64:
          this.#putWide(i, at, value);
          break;
        case U32:
          if (value >>> 0 !== value) throw this.#badArg(i, value);
          context.words[at >> 2] = value;
          break;
        case I32:
          if ((value | 0) !== value) throw this.#badArg(i, value);
          context.words[at >> 2] = value;
          break;
        case I16:
          if ((value << 16) >> 16 !== value) throw this.#badArg(i, value);
          context.halves[at >> 1] = value;
          break;
        case U8:
          if ((value & 0xff) !== value) throw this.#badArg(i, value);
          context.bytes[at] = value;
          break;
        case BOOL:
          if (value !== 0 && value !== 1) throw this.#badArg(i, value);
          context.bytes[at] = value;
          break;
        case F32:
          context.floats[at >> 2] = value;
          break;
        case F64:
          context.doubles[at >> 3] = value;
          break;
        case F16:
          context.halves[at >> 1] = encodeF16(value);
          break;
        case BF16:
          context.halves[at >> 1] = encodeBF16(value);
          break;
        case F8E4M3:
          context.bytes[at] = encodeF8E4M3(value);
          break;
      }
    }
  }

  #putWide(i: number, at: number, value: number): void {
    if (!Number.isSafeInteger(value)) throw this.#badArg(i, value);
    const words = this.#context.words;
    words[at >> 2] = value;
    words[(at >> 2) + 1] = Math.floor(value / TWO_32);
  }

  #putBigint(i: number, at: number, value: bigint): void {
    const type = this.#plan.types[i];
    const fits = type === 'i64' ? BigInt.asIntN(64, value) === value : BigInt.asUintN(64, value) === value;
    if ((type !== 'ptr' && type !== 'u64' && type !== 'i64') || !fits) throw this.#badArg(i, value);
    const words = this.#context.words;
    words[at >> 2] = Number(value & 0xffffffffn);
    words[(at >> 2) + 1] = Number((value >> 32n) & 0xffffffffn);
  }

  #badArg(i: number, value: unknown): HipError {
    const shown = typeof value === 'bigint' ? `${value}n` : String(value);
    return this.#bad(`parameter ${i} (${this.#plan.types[i]}) cannot take ${shown} (${typeof value})`);
  }

  #badDim(what: string, dim: Dim): HipError {
    const shown = typeof dim === 'number' ? dim : `[${dim.join(', ')}]`;
    return this.#bad(`${what} ${shown} must have dimensions from 1 to 4294967295. Skip launches over nothing`);
  }

  #bad(what: string): HipError {
    return invalidArgument(`kernel '${this.name}': ${what}`, this.#context.platform);
  }
}
