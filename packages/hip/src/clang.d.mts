/** A clang++ that was looked at. */
export interface ClangCandidate {
  readonly path: string;
  /** First line of `--version`. */
  readonly version?: string;
  /** 22.1.8 */
  readonly release?: string;
  readonly major?: number;
  /** Why it was not taken. */
  readonly reason?: string;
}

export interface Clang extends ClangCandidate {
  readonly version: string;
  readonly release: string;
  readonly major: number;
}

/** `path` and what goes with it are those of the one that was taken; without it, `reason` says why and what to do. */
export type ClangSearch = { readonly candidates: readonly ClangCandidate[]; readonly searched: readonly string[] } & (
  | (Clang & { readonly reason?: undefined })
  | { readonly path?: undefined; readonly version?: undefined; readonly reason: string }
);

/** The oldest major version that the kernels are written for. */
export const OLDEST_CLANG: number;

/** The clang++ to take. Never throws. `rocmFirst`: ROCm's own before newer ones, for AMD's GPUs. */
export function searchClang(options?: { rocmFirst?: boolean }): ClangSearch;

/** A tool of clang's own LLVM (`ld.lld`, `llvm-objdump`), no older than it, or undefined. */
export function toolOf(clang: Clang, name: string): string | undefined;
