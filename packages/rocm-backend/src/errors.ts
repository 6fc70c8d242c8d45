/** Errors of looking kernels up. Launch and driver errors are `HipError` of `@x/hip`. */
import { type BackendDevice, CandleError, type DType, ShapeError, UnsupportedError } from '@x/core';
import { installCommand, kernelPackageFor } from '@x/kernels';

/** The other half of a remedy: who has the sources can build kernels. */
const CHECKOUT = 'In a checkout of the project, run: pnpm kernels --targets native';

/** The package that has the code objects, where there is one. */
function install(arch: string): string {
  const name = kernelPackageFor(arch);
  return name ? `Install the kernels for it (\`${installCommand(name)}\`), or ` : 'No package has kernels for it: ';
}

export type KernelLookupErrorCode = 'KERNEL_TARGET_MISSING' | 'KERNEL_NOT_FOUND' | 'KERNEL_WARP_SIZE';

/** A kernel that cannot be had for a device; told apart by `code`. */
export class KernelLookupError extends CandleError {
  override name = 'KernelLookupError';
  declare readonly code: KernelLookupErrorCode;

  // Narrows the codes that this class may carry.
  constructor(code: KernelLookupErrorCode, message: string, options?: { cause?: unknown }) {
    super(code, message, options);
  }

  /** Neither a code object for the device's target nor a compiler for the module's source. */
  static noCodeObject(module: string, arch: string, targets: readonly string[], cause: unknown): KernelLookupError {
    return new KernelLookupError(
      'KERNEL_TARGET_MISSING',
      `module ${module} has no code object for ${arch} (looked for ${targets.join(', ') || 'nothing: unknown architecture'}) ` +
        `and could not be compiled at run time: ${messageOf(cause).replace(/\.$/, '')}. ` +
        `${install(arch)}mend what that names (\`candle doctor\` lists compilers). ${CHECKOUT}`,
    );
  }

  /** A module without the kernel. @param known names of those that it has, for the message */
  static noKernel(kernel: string, module: string, target: string, known: readonly string[]): KernelLookupError {
    const root = kernel.replace(/_.*/, '');
    const near = known.filter((name) => name.startsWith(root)).slice(0, 8);
    return new KernelLookupError(
      'KERNEL_NOT_FOUND',
      `kernel ${kernel} is not in module ${module} for ${target}, which has ${known.length} kernels` +
        `${near.length > 0 ? ` (near: ${near.join(', ')})` : ''}. Check the name; all @x packages must be of one version. ` +
        CHECKOUT,
    );
  }

  /** A code object for another warp size than the device has. @param built lanes @param device lanes */
  static warpSize(module: string, target: string, built: number, device: number): KernelLookupError {
    return new KernelLookupError(
      'KERNEL_WARP_SIZE',
      `module ${module} for ${target} is built for waves of ${built} lanes, the device runs ${device}: results would be wrong. ` +
        `Install @x/kernels again, or unset X_KERNEL_DIR if it is set. ${CHECKOUT}`,
    );
  }
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** Refuses to give positions among more elements than u32, candle's type of positions, can number. */
export function checkPositions(op: string, count: number): void {
  if (count < 2 ** 32) return;
  throw new ShapeError(
    'INVALID_SHAPE',
    `${op} over ${count} elements: positions are u32 and end at 4294967295. Split the dim and combine the parts' results.`,
  );
}

/** The error for an op without a kernel for a dtype. */
export function unsupported(op: string, dtype: DType, device: BackendDevice): UnsupportedError {
  const { kind, ordinal } = device.location;
  return new UnsupportedError(
    'UNSUPPORTED',
    `${op} has no kernel for ${dtype} on ${kind}:${ordinal}. Convert the tensor first, for example with toDtype('f32').`,
  );
}
