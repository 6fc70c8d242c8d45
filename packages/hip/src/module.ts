/** A loaded code object, from which kernels are taken by name. */
import type { DeviceContext } from './context';
import { DeviceObject } from './device-object';
import { invalidArgument } from './errors';
import { HipFunction } from './function';
import { isParamType, type ParamType, planParams } from './params';

/** Functions taken from it cannot be launched once it is disposed. */
export class HipModule extends DeviceObject {
  /** @internal Use `device.loadModule()`. */
  constructor(context: DeviceContext, handle: number) {
    super(context, handle, 'module', 'moduleUnload');
  }

  /**
   * The kernel `name` with its parameters' types, in order. Throws FUNCTION_NOT_FOUND when the module has no such kernel.
   * Keep the result: each call asks the driver.
   */
  getFunction(name: string, params: readonly ParamType[]): HipFunction {
    const module = this.handle;
    const wrong = params.find((type) => !isParamType(type));
    if (wrong !== undefined) {
      throw invalidArgument(`kernel '${name}': there is no parameter type '${wrong}'`, this.context.platform);
    }
    const plan = planParams(params);
    const limit = this.context.native.launchArgsBytes;
    if (plan.bytes > limit) {
      throw invalidArgument(
        `kernel '${name}' takes ${plan.bytes} bytes of arguments; a launch has at most ${limit}`,
        this.context.platform,
      );
    }
    const handle = this.context.native.getFunction(this.context.id, module, name);
    return new HipFunction(this.context, this, handle, name, plan);
  }
}
