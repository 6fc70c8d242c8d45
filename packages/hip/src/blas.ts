/**
 * Matrix products through a vendor's BLAS library on one device. Mirrors candle's use of cuBLAS
 * (candle-core/src/cuda_backend/mod.rs, `gemm_config` and `gemm_strided_batched`), in row-major terms: the library's
 * column-major form is the addon's business.
 */
import type { DeviceContext } from './context';
import { type BlasLibrary, type LibraryType, libraryNumber, typeNumber } from './libraries';
import type { HipStream } from './stream';

/** A batch of matrices in device memory; distances are in elements. */
export interface GemmOperand {
  /** Device address of the first element. */
  readonly ptr: number;
  /** False: row after row, `ld` from row to row. True: column after column, `ld` from column to column. */
  readonly transposed: boolean;
  /** At least the length of a row (of a column when transposed). */
  readonly ld: number;
  /** From matrix to matrix; 0 multiplies the same one every time. */
  readonly batchStride: number;
}

/** out [batch, m, n] = lhs [batch, m, k] times rhs [batch, k, n]; sizes from 1 to 2^31 - 1, `out` contiguous. */
export interface GemmProblem {
  readonly type: LibraryType;
  /** Default `type`. `'f32'` for bf16 operands where {@link BlasHandle.takes} says so. */
  readonly outType?: LibraryType;
  readonly batch: number;
  readonly m: number;
  readonly n: number;
  readonly k: number;
  readonly lhs: GemmOperand;
  readonly rhs: GemmOperand;
  /** Device address of the result. */
  readonly out: number;
  /**
   * Default false: f16 and bf16 accumulate in f32, f32 multiplies in f32. True lets the library use TF32 for f32, and
   * shorter sums for f16 and bf16, where it has them (cuBLAS).
   */
  readonly reduced?: boolean;
}

/** Words of a problem as the addon reads them. */
const WORDS = 16;

/** A BLAS library on one device: what `device.openBlas()` gives. The library is given back with the device. */
export class BlasHandle {
  readonly library: BlasLibrary;
  readonly #context: DeviceContext;
  readonly #number: number;
  readonly #words = new Float64Array(WORDS);

  /** @internal Use `device.openBlas()`. */
  constructor(context: DeviceContext, library: BlasLibrary) {
    this.library = library;
    this.#context = context;
    this.#number = libraryNumber(library);
    context.native.libraryOpen(context.id, this.#number);
  }

  /** Whether the library multiplies operands of this type into a result of that type. */
  takes(type: LibraryType, outType: LibraryType = type): boolean {
    this.#context.check();
    return this.#context.native.gemmTakes(this.#context.id, this.#number, typeNumber(type), typeNumber(outType));
  }

  /**
   * Device memory that products may use while they run. It must stay allocated as long as the device is open; without it
   * cuBLAS and rocBLAS allocate for themselves, which captured graphs do not allow.
   */
  setWorkspace(ptr: number, bytes: number): void {
    this.#context.check();
    this.#context.native.gemmWorkspace(this.#context.id, this.#number, ptr, bytes);
  }

  /**
   * Enqueues a product. Throws INVALID_ARGUMENT for sizes, distances and addresses that do not fit together or leave
   * this device's memory, LIBRARY_ERROR when the library refuses.
   */
  gemm(problem: GemmProblem, stream?: HipStream): void {
    const context = this.#context;
    context.check();
    const { type, lhs, rhs } = problem;
    const words = this.#words;
    words[0] = typeNumber(type);
    words[1] = typeNumber(problem.outType ?? type);
    words[2] = problem.reduced ? 1 : 0;
    words[3] = problem.batch;
    words[4] = problem.m;
    words[5] = problem.n;
    words[6] = problem.k;
    words[7] = lhs.ptr;
    words[8] = lhs.transposed ? 1 : 0;
    words[9] = lhs.ld;
    words[10] = lhs.batchStride;
    words[11] = rhs.ptr;
    words[12] = rhs.transposed ? 1 : 0;
    words[13] = rhs.ld;
    words[14] = rhs.batchStride;
    words[15] = problem.out;
    context.native.gemm(context.id, this.#number, stream ? stream.handleOn(context) : context.stream, words);
  }
}
