/**
 * The vendor libraries behind matrix products and convolutions, found at run time like the platforms. Mirrors candle's
 * build features `cudnn`, `mkl` and `accelerate`, which choose them at compile time. A device works without any of them.
 */
import { addon } from './addon';
import { HipError, type HipErrorCode } from './errors';
import { failureOf, type Platform, type PlatformFailure } from './platforms';

/** Libraries with matrix products. */
export type BlasLibrary = 'rocblas' | 'hipblaslt' | 'cublas' | 'openblas';
/** Libraries with convolutions. */
export type ConvolutionLibrary = 'miopen' | 'cudnn';
/** Libraries with collectives. */
export type CollectiveLibrary = 'rccl' | 'nccl';
export type LibraryName = BlasLibrary | ConvolutionLibrary | CollectiveLibrary;

/** Element types that libraries take: the float dtypes of candle's matmul. */
export type LibraryType = 'bf16' | 'f16' | 'f32' | 'f64';

/** In the order of the addon's numbers for them. */
const TYPES: readonly LibraryType[] = ['bf16', 'f16', 'f32', 'f64'];

interface Library {
  readonly number: number;
  readonly platform: Platform;
  readonly purpose: 'gemm' | 'convolution' | 'collectives';
}

/** What the addon calls them, and in which order they are preferred on their platform. */
const LIBRARIES: Readonly<Record<LibraryName, Library>> = {
  rocblas: { number: 0, platform: 'rocm', purpose: 'gemm' },
  hipblaslt: { number: 1, platform: 'rocm', purpose: 'gemm' },
  miopen: { number: 2, platform: 'rocm', purpose: 'convolution' },
  cublas: { number: 3, platform: 'cuda', purpose: 'gemm' },
  cudnn: { number: 4, platform: 'cuda', purpose: 'convolution' },
  openblas: { number: 5, platform: 'host', purpose: 'gemm' },
  rccl: { number: 6, platform: 'rocm', purpose: 'collectives' },
  nccl: { number: 7, platform: 'cuda', purpose: 'collectives' },
};

const names = Object.keys(LIBRARIES) as LibraryName[];
const named = (purpose: Library['purpose'], platform: Platform) =>
  names.filter((name) => LIBRARIES[name].purpose === purpose && LIBRARIES[name].platform === platform);

/** The BLAS libraries of each platform, the preferred one first. */
export const BLAS_LIBRARIES: Readonly<Record<Platform, readonly BlasLibrary[]>> = {
  rocm: named('gemm', 'rocm') as BlasLibrary[],
  cuda: named('gemm', 'cuda') as BlasLibrary[],
  host: named('gemm', 'host') as BlasLibrary[],
};

/** The convolution libraries of each platform. */
export const CONVOLUTION_LIBRARIES: Readonly<Record<Platform, readonly ConvolutionLibrary[]>> = {
  rocm: named('convolution', 'rocm') as ConvolutionLibrary[],
  cuda: named('convolution', 'cuda') as ConvolutionLibrary[],
  host: named('convolution', 'host') as ConvolutionLibrary[],
};

/** The library through which devices of a platform compute together; the host needs none. */
export const COLLECTIVE_LIBRARIES: Readonly<Record<Platform, CollectiveLibrary | undefined>> = {
  rocm: 'rccl',
  cuda: 'nccl',
  host: undefined,
};

export interface LibraryReport {
  readonly name: LibraryName;
  readonly platform: Platform;
  /** What it is for. Our own kernels do the same without a library, but for collectives. */
  readonly purpose: 'gemm' | 'convolution' | 'collectives';
  readonly available: boolean;
  /** The file that was loaded. */
  readonly library?: string;
  /** As far as the library says. */
  readonly version?: string;
  /** Every path and name that was tried, in order. */
  readonly searched: readonly string[];
  /** Why not, and what to install: present exactly when `available` is false. */
  readonly reason?: PlatformFailure;
}

/** @internal The addon's number of a library. */
export function libraryNumber(name: LibraryName): number {
  const library = Object.hasOwn(LIBRARIES, name) ? LIBRARIES[name] : undefined;
  if (library) return library.number;
  throw new HipError('INVALID_ARGUMENT', `there is no library '${name}'. Use one of ${names.join(', ')}`);
}

/** @internal The addon's number of an element type. */
export function typeNumber(type: LibraryType): number {
  const index = TYPES.indexOf(type);
  if (index >= 0) return index;
  throw new HipError('INVALID_ARGUMENT', `libraries have no type '${type}'. Use one of ${TYPES.join(', ')}`);
}

/** Reports on the libraries of one platform, or of all. Loads those that are there; never throws. */
export function libraryReports(platform?: Platform): LibraryReport[] {
  return names.filter((name) => !platform || LIBRARIES[name].platform === platform).map(libraryReport);
}

/** Reports on one library, and loads it if it is there. Never throws for a name of {@link LibraryName}. */
export function libraryReport(name: LibraryName): LibraryReport {
  const { number, platform, purpose } = LIBRARIES[name];
  try {
    const found = addon().library(number);
    return {
      name,
      platform,
      purpose,
      available: found.available,
      searched: found.searched,
      ...(found.available && { library: found.library }),
      ...(found.available && found.version && { version: found.version }),
      ...(!found.available && {
        reason: { code: found.code as HipErrorCode, message: found.message, remedy: found.remedy },
      }),
    };
  } catch (error) {
    return { name, platform, purpose, available: false, searched: [], reason: failureOf(error) };
  }
}
