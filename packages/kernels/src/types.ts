/**
 * The types of kernel parameters. The named ones come from a code object's own description (`x_sig_<kernel>`); `b8` …
 * `b64` are a parameter of that width, and `bytes<n>` a structure, of a kernel that has none.
 */
export type KernelParamType =
  | 'ptr'
  | 'u8'
  | 'u32'
  | 'i16'
  | 'i32'
  | 'i64'
  | 'u64'
  | 'f16'
  | 'bf16'
  | 'f32'
  | 'f64'
  | 'f8e4m3'
  | 'bool'
  | 'b8'
  | 'b16'
  | 'b32'
  | 'b64'
  | `bytes${number}`;

/** One kernel of a code object. A resource that the format does not state is null. */
export interface KernelInfo {
  name: string;
  /** Parameters in order, each packed at its natural alignment. */
  params: KernelParamType[];
  /** Lanes of a warp that the code was compiled for: 1 on the host, 32 or 64 on a GPU. */
  warpSize: number;
  /** Vector, accumulation and scalar registers of a lane (AMD). */
  vgprs: number | null;
  agprs: number | null;
  sgprs: number | null;
  /** Static shared memory of a block in bytes. */
  ldsBytes: number | null;
  /** Private memory of a thread in bytes, spills included. */
  scratchBytes: number | null;
  vgprSpills: number | null;
  sgprSpills: number | null;
  /** The most threads a block may have. */
  maxThreads: number | null;
}

export type CodeObjectFormat = 'hsaco' | 'host' | 'ptx';

/** What a code object says about itself. */
export interface ParsedCodeObject {
  format: CodeObjectFormat;
  /** The processor it names: gfx1100, sm_80; null for a host object, which names none. */
  arch: string | null;
  /** By kernel name, in name order. */
  kernels: Record<string, KernelInfo>;
}

/** One module in `objects/<target>/manifest.json`. */
export interface ManifestModule {
  file: string;
  /** Bytes of the file. */
  size: number;
  sha256: string;
  /** Hash of everything that the object was built from. */
  key: string;
  kernels: KernelInfo[];
}

/** `objects/<target>/manifest.json`. */
export interface Manifest {
  version: 1;
  target: string;
  /** First line of the compiler's version. */
  compiler: string;
  /** AMD code object version, null elsewhere. */
  codeObjectVersion: number | null;
  modules: Record<string, ManifestModule>;
}
