// The switches of this package, read when they are asked for. See packages/core/src/settings.ts, on which this package does
// not depend; this file is JavaScript because the set-up uses it before anything is built.

// The clang++ that builds kernels and compiles for the host; undefined to search.
export function clangPath() {
  return process.env.X_CLANG || undefined;
}

// Read by the native addon, when a platform or library is first asked for.
export const NATIVE = [
  'X_HIP_LIBRARY',
  'X_HOST_THREADS',
  'X_HOST_ARCH',
  'X_HOST_SPIN',
  'X_ROCBLAS_LIBRARY',
  'X_HIPBLASLT_LIBRARY',
  'X_MIOPEN_LIBRARY',
  'X_CUBLAS_LIBRARY',
  'X_CUDNN_LIBRARY',
  'X_OPENBLAS_LIBRARY',
  'X_RCCL_LIBRARY',
  'X_NCCL_LIBRARY',
  'X_COLLECTIVES_ADDRESS',
];
