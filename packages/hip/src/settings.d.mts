/** The clang++ that builds kernels and compiles for the host (`X_CLANG`); undefined to search. */
export declare function clangPath(): string | undefined;
/** Switches that the native addon reads. */
export declare const NATIVE: readonly string[];
