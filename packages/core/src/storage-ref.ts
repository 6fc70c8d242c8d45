/**
 * Who owns a storage: a {@link StorageRef} counts the tensors (views included) that share it and gives it back with the
 * last one; a {@link TensorHandle} is one tensor's share. This is candle's `Arc<RwLock<Storage>>`, with the drop made
 * explicit because JavaScript has none; a FinalizationRegistry releases the share of a tensor that was forgotten.
 */
import type { GradRecord } from './autograd/record';
import type { BackendStorage } from './backend';
import { refuseOtherDevice } from './capture-state';
import type { Device } from './device';
import { sizeInBytes } from './dtype';
import { noLeak, watchForLeak } from './leaks';
import { countTensors } from './memory';
import { currentScope, type Scope, type Scoped } from './scope';

export class StorageRef {
  readonly storage: BackendStorage;
  readonly device: Device;
  readonly bytes: number;
  /** Rises with every write in place; a record knows by it whether what it kept is still what it was. */
  version = 0;
  /** Live tensors that see this memory. */
  tensors = 0;
  #shares = 0;
  #surrendered = false;

  constructor(storage: BackendStorage, device: Device) {
    try {
      refuseOtherDevice(device);
    } catch (error) {
      storage.dispose();
      throw error;
    }
    this.storage = storage;
    this.device = device;
    this.bytes = storage.elemCount * sizeInBytes(storage.dtype);
    device.usage.liveStorages++;
    device.usage.liveBytes += this.bytes;
  }

  /** Tensors and records that hold this storage. */
  get shares(): number {
    return this.#shares;
  }

  share(): void {
    this.#shares++;
  }

  /** The storage for another owner: it outlives this one's shares. */
  surrender(): BackendStorage {
    this.#surrendered = true;
    return this.storage;
  }

  unshare(): void {
    if (--this.#shares > 0) return;
    this.device.usage.liveStorages--;
    this.device.usage.liveBytes -= this.bytes;
    if (this.#surrendered) return;
    // A disposed device has given all its memory back already.
    if (!this.device.isDisposed) this.storage.dispose();
  }
}

export class TensorHandle {
  /** Null once released. */
  ref: StorageRef | null;
  /** The scope that will release this, if any. */
  scope: Scope | undefined;
  /** Whether the collector watches the tensor. */
  registered = false;
  /** How the tensor came about, when it depends on a variable; null otherwise. */
  record: GradRecord | null = null;

  constructor(ref: StorageRef) {
    this.ref = ref;
    ref.share();
    ref.tensors++;
    countTensors(1);
    currentScope()?.adopt(this);
    watchForLeak(this);
  }

  /** Takes a share in the history of the tensor. */
  attach(record: GradRecord): void {
    record.hold();
    this.record?.drop();
    this.record = record;
  }

  /** Cuts the tensor off from what it was computed from. */
  forget(): void {
    this.record?.drop();
    this.record = null;
  }

  /** Gives the share back; harmless when repeated. */
  release(): void {
    const ref = this.ref;
    if (!ref) return;
    this.ref = null;
    this.scope?.forget(this);
    countTensors(-1);
    noLeak(this);
    if (this.registered) registry?.unregister(this);
    ref.tensors--;
    ref.unshare();
    this.forget();
  }
}

let registry: FinalizationRegistry<TensorHandle> | undefined;

/** Tensors of the running piece of synchronous code that are not registered yet. */
const young: Scoped[] = [];
const MAX_YOUNG = 4096;

/**
 * Lets the collector release the share of `owner` when it is forgotten. Registering costs as much as the rest of making a
 * tensor, and a registry calls back only between pieces of synchronous code; so it gets, at the end of such a piece, those
 * tensors that are still alive, and most never.
 */
export function releaseWhenCollected(owner: Scoped): void {
  if (young.length === 0) queueMicrotask(registerYoung);
  else if (young.length === MAX_YOUNG) registerYoung();
  young.push(owner);
}

function registerYoung(): void {
  registry ??= new FinalizationRegistry((forgotten) => forgotten.release());
  for (const owner of young) {
    const { handle } = owner;
    if (handle.ref === null) continue;
    registry.register(owner, handle, handle);
    handle.registered = true;
  }
  young.length = 0;
}
