/**
 * Which work of one device goes through a vendor's library and which through our kernels. candle decides this by build
 * features; here it is a choice per device, and everything works with no library at all.
 *
 * Libraries are loaded and their handles made when the first product or convolution asks for them, once a device. `auto`
 * never fails for want of a library: without one, or where it refuses, our kernels do the work on the same device.
 */
import { settings } from '@x/core';
import {
  BLAS_LIBRARIES,
  type BlasHandle,
  type BlasLibrary,
  CONVOLUTION_LIBRARIES,
  type ConvolutionHandle,
  type ConvolutionLibrary,
  type ConvolutionPlan,
  type HipDevice,
  HipError,
  type LibraryName,
  libraryReport,
} from '@x/hip';
import { debug } from './debug';
import { LayoutCache } from './layout-cache';
import type { QuantizedChoice } from './ops/quantized';

/**
 * `auto`: a library where it is there and pays, else our kernels. `library`: the platform's library for everything that
 * it takes; an error when it is missing. `kernels`: ours only. A name: that library, as `library`.
 */
export type GemmChoice = 'auto' | 'library' | 'kernels' | BlasLibrary;
export type ConvolutionChoice = 'auto' | 'library' | 'kernels' | ConvolutionLibrary;

/** What products and convolutions of a device go through; each can be changed later. */
export interface DeviceOptions {
  /** Default: `X_GEMM`, else `auto`. */
  gemm?: GemmChoice;
  /** Default: `X_CONV`, else `auto`. */
  convolution?: ConvolutionChoice;
  /** Default: `X_QUANTIZED`, else `auto`. */
  quantized?: QuantizedChoice;
}

/** cuBLAS asks for 32 MiB on Hopper; rocBLAS and hipBLASLt use as much for split products. */
const BLAS_WORKSPACE_BYTES = 32 * 1024 * 1024;

/** One kind of work: the choice made, the library that it comes to, and the handle once there is one. */
class Chooser<Name extends LibraryName, Handle> {
  #choice: 'auto' | 'library' | 'kernels' | Name = 'auto';
  #handle: Handle | undefined;
  readonly #opened = new Map<Name, Handle>();
  /** Why `auto` does without a library, once that is known. */
  #without: string | undefined;

  constructor(
    private readonly hip: HipDevice,
    private readonly variable: string,
    private readonly all: Readonly<Record<string, readonly Name[]>>,
    private readonly open: (name: Name) => Handle,
  ) {}

  get choice(): 'auto' | 'library' | 'kernels' | Name {
    return this.#choice;
  }

  /** Errors: LIBRARY_NOT_FOUND or SYMBOL_MISSING for a library that is not there, INVALID_ARGUMENT for one of another platform. */
  set choice(choice: 'auto' | 'library' | 'kernels' | Name) {
    if (choice !== 'auto' && choice !== 'kernels') this.#require(choice);
    this.#choice = choice;
    this.#handle = undefined;
    this.#without = undefined;
  }

  /** From the environment, where a library of another platform, or any where there is none, says nothing about this device. */
  fromEnvironment(): void {
    const value = this.variable === 'X_GEMM' ? settings.gemm() : settings.convolution();
    const known = ['auto', 'library', 'kernels', ...Object.values(this.all).flat()];
    if (!known.includes(value))
      throw new HipError(
        'INVALID_ARGUMENT',
        `${this.variable}=${value} is none of ${known.join(', ')}. Set one of these`,
      );
    const isName = !['auto', 'library', 'kernels'].includes(value);
    const foreign = isName ? !this.#own.includes(value as Name) : value === 'library' && this.#own.length === 0;
    this.choice = foreign ? 'auto' : (value as Name);
  }

  /** Whether an error or a refusal of the library must be shown rather than worked around. */
  get isForced(): boolean {
    return this.#choice !== 'auto';
  }

  /** The handle that work goes through, or undefined for our kernels. */
  handle(): Handle | undefined {
    if (this.#handle || this.#choice === 'kernels' || this.#without) return this.#handle;
    const forced = this.#choice !== 'auto';
    const name = this.#nameNow();
    if (!name) {
      this.giveUp('none of its libraries is there');
      return undefined;
    }
    // A handle cannot be made while the stream is captured; the next call outside of the capture makes it.
    if (!forced && this.hip.currentStream.isCapturing) return undefined;
    try {
      this.#handle = this.#opened.get(name) ?? this.open(name);
      this.#opened.set(name, this.#handle);
      debug(1, () => `${this.hip.platform}:${this.hip.ordinal} uses ${name}`);
    } catch (error) {
      if (forced || !(error instanceof HipError)) throw error;
      this.giveUp(error.message);
    }
    return this.#handle;
  }

  /** Whether an error is the library's refusal and our kernels may do the work, which they then go on doing. */
  worksAround(error: unknown): boolean {
    if (this.isForced || !(error instanceof HipError) || error.code !== 'LIBRARY_ERROR') return false;
    this.giveUp(error.message);
    return true;
  }

  /** `auto` goes on without the library. */
  giveUp(reason: string): void {
    this.#without = reason;
    this.#handle = undefined;
    debug(2, () => `${this.hip.platform}:${this.hip.ordinal} does without a library for ${this.variable}: ${reason}`);
  }

  get #own(): readonly Name[] {
    return this.all[this.hip.platform];
  }

  #nameNow(): Name | undefined {
    if (this.#choice !== 'auto' && this.#choice !== 'library') return this.#choice as Name;
    return this.#own.find((name) => libraryReport(name).available);
  }

  #require(choice: 'library' | Name): void {
    const { platform } = this.hip;
    const wanted = choice === 'library' ? this.#own : this.#own.filter((name) => name === choice);
    if (wanted.length === 0) {
      const known = ['auto', 'library', 'kernels', ...this.#own].join(', ');
      const what = choice === 'library' ? `there is no library for ${this.variable}` : `'${choice}' does not work`;
      throw new HipError('INVALID_ARGUMENT', `${what} on ${platform} devices. Choose one of ${known}`, { platform });
    }
    const reports = wanted.map(libraryReport);
    if (reports.some((report) => report.available)) return;
    const { code, message, remedy } = reports[0].reason!;
    throw new HipError(code, `${message}. ${remedy}`, { platform });
  }
}

/** What a library chose for a convolution, or null where it has nothing. */
export interface PlannedConvolution {
  readonly handle: ConvolutionHandle;
  readonly plan: ConvolutionPlan | null;
}

const MAX_PLANS = 256;

export class DeviceLibraries {
  readonly gemm: Chooser<BlasLibrary, BlasHandle>;
  readonly convolution: Chooser<ConvolutionLibrary, ConvolutionHandle>;
  /** By the numbers of a convolution. */
  readonly plans = new LayoutCache<PlannedConvolution>(({ handle, plan }) => plan && handle.drop(plan), MAX_PLANS);

  constructor(hip: HipDevice, options: DeviceOptions) {
    this.gemm = new Chooser(hip, 'X_GEMM', BLAS_LIBRARIES, (name) => openBlas(hip, name));
    this.convolution = new Chooser(hip, 'X_CONV', CONVOLUTION_LIBRARIES, (name) => hip.openConvolution(name));
    if (options.gemm) this.gemm.choice = options.gemm;
    else this.gemm.fromEnvironment();
    if (options.convolution) this.convolution.choice = options.convolution;
    else this.convolution.fromEnvironment();
  }
}

/** The workspace is the device's until it is closed; being no tensor's, it is not counted with them. */
function openBlas(hip: HipDevice, name: BlasLibrary): BlasHandle {
  const handle = hip.openBlas(name);
  if (hip.platform === 'host') return handle;
  try {
    handle.setWorkspace(hip.alloc(BLAS_WORKSPACE_BYTES), BLAS_WORKSPACE_BYTES);
  } catch (error) {
    // Without it the library allocates what it needs, or chooses products that need nothing.
    if (!(error instanceof HipError) || error.code !== 'OUT_OF_MEMORY') throw error;
  }
  return handle;
}
