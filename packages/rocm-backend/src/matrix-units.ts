/** Which matrix units the kernels of kernels/shared/mma.h may use on a device. */
import type { HipDevice } from '@x/hip';

/** WMMA came with gfx11, MFMA with gfx908; older CDNA and RDNA chips have neither. */
const AMD_ARCHS = /^gfx(908|90a|94|95|11|12)/;

export type MatrixUnits = 'nvidia' | 'amd';

/** Undefined on the host and on GPUs without such units. Every NVIDIA GPU that takes our PTX (sm_80) has them. */
export function matrixUnits({ platform, properties }: HipDevice): MatrixUnits | undefined {
  if (platform === 'cuda') return 'nvidia';
  return platform === 'rocm' && AMD_ARCHS.test(properties.arch) ? 'amd' : undefined;
}
