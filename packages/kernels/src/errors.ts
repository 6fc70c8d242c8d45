/** What can go wrong with kernels: each code says what to do in its message. */
export type KernelErrorCode =
  | 'KERNEL_ARGUMENT_INVALID'
  | 'KERNEL_TARGET_MISSING'
  | 'KERNEL_SOURCE_MISSING'
  | 'KERNEL_MANIFEST_INVALID'
  | 'KERNEL_PACKAGE_INVALID'
  | 'KERNEL_PACKAGE_VERSION'
  | 'KERNEL_OBJECT_CORRUPT'
  | 'KERNEL_OBJECT_INVALID';

/** An error about a kernel module, its source or one of its code objects. */
export class KernelError extends Error {
  override readonly name = 'KernelError';

  constructor(
    readonly code: KernelErrorCode,
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

// @x/core, on which this package does not depend, counts it among its `CandleError`s by this.
Object.defineProperty(KernelError.prototype, Symbol.for('x.candle.error'), { value: true });
