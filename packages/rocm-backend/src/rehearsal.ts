/**
 * A device that computes nothing, in front of one whose kernels the driver compiles from text. All code above it runs as on the
 * real one, since the choice of kernels depends on the device's properties, on shapes and on dtypes only; what it asks for,
 * the real device's module store begins to compile on other threads. It makes no call of the driver that costs anything.
 */
import {
  type BlasHandle,
  type BlasLibrary,
  type HipDevice,
  HipError,
  type HipEvent,
  type HipFunction,
  type HipStream,
} from '@x/hip';
import type { KernelModule } from '@x/kernels';
import { ModuleStore } from './module-store';

/** Like the driver's, addresses are not 0 and lie on the boundaries that kernels for 16 bytes an access look for. */
const FIRST_ADDRESS = 2 ** 20;
const GRANULE = 256;

type Members<T> = Pick<T, keyof T>;

/** What an operation launches. */
class SilentFunction implements Members<Omit<HipFunction, 'params'>> {
  readonly params = [];
  constructor(readonly name: string) {}
  launch(): void {}
}

class SilentStream implements Members<Omit<HipStream, 'handleOn' | 'endCapture'>> {
  readonly isDisposed = false;
  readonly isCapturing = false;
  async synchronize(): Promise<void> {}
  synchronizeSync(): void {}
  waitEvent(): void {}
  beginCapture(): void {}
  dispose(): void {}
  [Symbol.dispose](): void {}
}

class SilentEvent implements Members<Omit<HipEvent, 'handleOn'>> {
  readonly isDisposed = false;
  record(): void {}
  async synchronize(): Promise<void> {}
  synchronizeSync(): void {}
  query(): boolean {
    return true;
  }
  elapsedMs(): number {
    return 0;
  }
  dispose(): void {}
  [Symbol.dispose](): void {}
}

/** A library for products, which would take what cuBLAS does. */
function silentBlas(library: BlasLibrary): Members<BlasHandle> {
  const takes: BlasHandle['takes'] = (type, outType = type) =>
    type === outType || (outType === 'f32' && (type === 'f16' || type === 'bf16'));
  return { library, takes, setWorkspace() {}, gemm() {} };
}

class SilentDevice
  implements
    Members<
      Omit<
        HipDevice,
        | 'loadModule'
        | 'loadModuleAhead'
        | 'counters'
        | 'libraries'
        | 'groupId'
        | 'joinGroup'
        | 'peerMemory'
        | 'openConvolution'
        | 'openFileReader'
      >
    >
{
  readonly platform: HipDevice['platform'];
  readonly ordinal: number;
  readonly properties: HipDevice['properties'];
  readonly defaultStream = new SilentStream() as unknown as HipStream;
  currentStream = this.defaultStream;
  isDisposed = false;
  readonly #real: HipDevice;
  #next = FIRST_ADDRESS;

  constructor(real: HipDevice) {
    this.#real = real;
    this.platform = real.platform;
    this.ordinal = real.ordinal;
    this.properties = real.properties;
  }

  createStream(): HipStream {
    return new SilentStream() as unknown as HipStream;
  }
  createEvent(): HipEvent {
    return new SilentEvent() as unknown as HipEvent;
  }
  openBlas(library: BlasLibrary): BlasHandle {
    return silentBlas(library) as BlasHandle;
  }
  openConvolution(): never {
    throw new HipError('LIBRARY_ERROR', 'a rehearsal plans no convolutions', { platform: this.platform });
  }
  /** What there is for caches depends on it. */
  memoryInfo(): { free: number; total: number } {
    return this.#real.memoryInfo();
  }
  alloc(bytes: number): number {
    const address = this.#next;
    this.#next += Math.ceil(bytes / GRANULE) * GRANULE;
    return address;
  }
  free(): void {}
  memcpyHtoD(): void {}
  memcpyDtoD(): void {}
  memcpyFrom(): void {}
  memset(): void {}
  reaches(): boolean {
    return false;
  }
  /** Views that are read to are new ones, of zeros. */
  memcpyDtoHSync(): void {}
  async memcpyDtoH(): Promise<void> {}
  async synchronize(): Promise<void> {}
  synchronizeSync(): void {}
  dispose(): void {
    this.isDisposed = true;
  }
  [Symbol.dispose](): void {
    this.dispose();
  }
}

export function silentDevice(real: HipDevice): HipDevice {
  return new SilentDevice(real) as unknown as HipDevice;
}

/** Begins to load on the real device what is asked for. */
export class RehearsedModules extends ModuleStore {
  readonly #real: ModuleStore;
  readonly #functions = new Map<string, HipFunction>();

  constructor(device: HipDevice, real: ModuleStore) {
    super(device);
    this.#real = real;
  }

  override getOrLoadFunc(name: string, module: KernelModule): HipFunction {
    return this.#function(name, () => this.#real.prepare(name, module));
  }

  /** Source is compiled by other means, and kept on disk. */
  override getOrLoadFuncRaw(name: string): HipFunction {
    return this.#function(name, () => {});
  }

  #function(name: string, prepare: () => void): HipFunction {
    let silent = this.#functions.get(name);
    if (!silent) {
      prepare();
      silent = new SilentFunction(name) as unknown as HipFunction;
      this.#functions.set(name, silent);
    }
    return silent;
  }
}
