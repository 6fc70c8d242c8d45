/** A code object that is being loaded on another thread. */
import type { DeviceContext } from './context';
import { HipModule } from './module';

export class ModuleLoad {
  readonly #context: DeviceContext;
  readonly #handle: number;
  #isTaken = false;

  /** @internal Use `device.loadModuleAhead()`. */
  constructor(context: DeviceContext, handle: number) {
    this.#context = context;
    this.#handle = handle;
  }

  /** Whether {@link take} would not wait. */
  get isDone(): boolean {
    if (this.#isTaken || this.#context.disposed) return true;
    return this.#context.native.moduleLoadEnded(this.#context.id, this.#handle);
  }

  /** The module, once. Waits for a load under way; one that has not begun is done here. Throws what `loadModule` would have. */
  take(): HipModule {
    this.#context.check(this.#isTaken, 'load of a module');
    this.#isTaken = true;
    return new HipModule(this.#context, this.#context.native.moduleLoadTake(this.#context.id, this.#handle));
  }
}
