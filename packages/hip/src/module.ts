/** A loaded code object, from which kernels are taken by name. */
import type { DeviceContext } from './context';
import { invalidArgument } from './errors';
import { HipFunction } from './function';
import { isParamType, type ParamType, planParams } from './params';

export class HipModule {
  readonly #context: DeviceContext;
  readonly #handle: number;
  #disposed = false;

  /** @internal Use `device.loadModule()`. */
  constructor(context: DeviceContext, handle: number) {
    this.#context = context;
    this.#handle = handle;
  }

  get isDisposed(): boolean {
    return this.#disposed || this.#context.disposed;
  }

  /**
   * The kernel `name` with its parameters' types, in order. Throws FUNCTION_NOT_FOUND when the module has no such kernel.
   * Keep the result: each call asks the driver.
   */
  getFunction(name: string, params: readonly ParamType[]): HipFunction {
    this.#context.check(this.#disposed, 'module');
    const wrong = params.find((type) => !isParamType(type));
    if (wrong !== undefined) {
      throw invalidArgument(`kernel '${name}': there is no parameter type '${wrong}'`, this.#context.platform);
    }
    const plan = planParams(params);
    const limit = this.#context.native.launchArgsBytes;
    if (plan.bytes > limit) {
      throw invalidArgument(
        `kernel '${name}' takes ${plan.bytes} bytes of arguments; a launch has at most ${limit}`,
        this.#context.platform,
      );
    }
    const handle = this.#context.native.getFunction(this.#context.id, this.#handle, name);
    return new HipFunction(this.#context, this, handle, name, plan);
  }

  /** Waits for the device and unloads; functions taken from the module cannot be launched any more. */
  dispose(): void {
    if (this.isDisposed) return;
    this.#disposed = true;
    this.#context.native.moduleUnload(this.#context.id, this.#handle);
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}
