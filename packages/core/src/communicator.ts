/**
 * Tensors of several devices that compute together: one rank a device, each in a thread or process of its own, after
 * `torch.distributed` and candle's use of NCCL (candle-examples, llama_multiprocess). All ranks make the same calls in the same
 * order, with the same shapes and dtypes; results are not differentiated.
 */
import type { BackendCommunicator, CollectiveOps, Reduction } from './backend';
import { BOOLEAN, check, fields, kind, WHOLE } from './check';
import { Device, type DeviceLike } from './device';
import type { DType } from './dtype';
import { CollectiveError, DeviceError, DisposedError, ShapeError, UnsupportedError } from './errors';
import { addGroup, removeGroup } from './joined-groups';
import { elemCount, formatShape, resolveDim, type Shape, validateShape } from './shape';
import type { Tensor } from './tensor';
import { isTensor, markWritten, storageOf, tensorOf } from './tensor/base';

export interface CommunicatorOptions {
  /** What {@link Communicator.uniqueId} gave one rank, which hands it to the others. */
  id: Uint8Array;
  /** From 0 to size - 1, each once. */
  rank: number;
  /** Ranks of the group. */
  size: number;
  /** How long a rank waits for another before the group has failed; default 10,000. */
  timeoutMs?: number;
  /**
   * Whether values of the device's tensors can no longer be read once the group has failed, until the communicator is disposed;
   * default true. With `false`, whoever reads looks at {@link Communicator.failure}.
   */
  guardReads?: boolean;
}

const REDUCTIONS: readonly Reduction[] = ['sum', 'prod', 'min', 'max', 'avg'];
const REDUCTION = kind((value) => REDUCTIONS.includes(value as Reduction), `use one of ${REDUCTIONS.join(', ')}`);
const ID = kind((value) => value instanceof Uint8Array && value.length > 0, 'give what uniqueId gave, as a Uint8Array');
const TENSOR = kind(isTensor, 'give a tensor');
const FUNCTION = kind((value) => typeof value === 'function', 'give a function that returns a tensor');
/** Far above any group, and below what would be memory for its own sake. */
const MAX_SIZE = 65_536;
/** The longest wait that the systems' calls take. */
const MAX_TIMEOUT_MS = 2 ** 31 - 1;
const upTo = (most: number) =>
  kind(
    (value) => Number.isInteger(value) && (value as number) >= 1 && (value as number) <= most,
    `give a whole number from 1 to ${most}`,
  );
const TIMEOUT = upTo(MAX_TIMEOUT_MS);
const OPTIONS = fields({ id: ID, rank: WHOLE, size: upTo(MAX_SIZE) });

/** One rank of a group. */
export class Communicator {
  readonly #backend: BackendCommunicator;
  #disposed = false;

  private constructor(
    readonly device: Device,
    backend: BackendCommunicator,
    guardReads: boolean,
  ) {
    this.#backend = backend;
    if (guardReads) addGroup(device, this);
  }

  /**
   * A name for a new group of devices of this kind; made on one rank and given to all.
   * @throws UnsupportedError where such devices cannot compute together; HipError `LIBRARY_NOT_FOUND` without NCCL or RCCL
   */
  static uniqueId(device: DeviceLike): Uint8Array {
    return opsOf('uniqueId', Device.of(device)).uniqueId();
  }

  /**
   * Joins a group; resolves when all ranks have. Calls are enqueued, and what they give is there when it is read: where the group
   * has failed, reading values of any tensor of the device throws that failure.
   * @throws CollectiveError when they do not within the time; UnsupportedError, HipError as {@link uniqueId}
   */
  static async join(device: DeviceLike, options: CommunicatorOptions): Promise<Communicator> {
    check('join', 'options', options, OPTIONS);
    const { id, rank, size, timeoutMs = 10_000, guardReads = true } = options;
    check('join', 'timeoutMs', timeoutMs, TIMEOUT);
    check('join', 'guardReads', guardReads, BOOLEAN);
    if (rank < 0 || rank >= size)
      throw new CollectiveError('BAD_RANK', `join: rank is ${rank} of ${size} ranks; they are counted from 0.`);
    const own = Device.of(device);
    return new Communicator(own, await opsOf('join', own).join({ id, rank, size, timeoutMs }), guardReads);
  }

  get rank(): number {
    return this.#backend.rank;
  }

  /** Ranks of the group. */
  get size(): number {
    return this.#backend.size;
  }

  /** Of each element over all ranks: the same tensor on each. */
  allReduce(tensor: Tensor, reduction: Reduction = 'sum'): Tensor {
    const x = this.#rows('allReduce', tensor, reduction);
    try {
      return this.#made(x.shape, x.dtype, (out) =>
        this.#backend.allReduce(x.storagePart(), out.storagePart(), x.elemCount, reduction),
      );
    } finally {
      if (x !== tensor) x.dispose();
    }
  }

  /** As {@link allReduce}, over what a contiguous tensor holds. */
  allReduceInPlace(tensor: Tensor, reduction: Reduction = 'sum'): void {
    const x = this.#whole('allReduceInPlace', tensor);
    check('allReduceInPlace', 'reduction', reduction, REDUCTION);
    markWritten(x);
    if (x.elemCount > 0) this.#backend.allReduce(x.storagePart(), x.storagePart(), x.elemCount, reduction);
  }

  /**
   * {@link allReduceInPlace} of a sum that all ranks use next in the same operations, or none does: a device may leave it to the
   * kernel that reads it first, such as the norm of a residual.
   */
  sumLater(tensor: Tensor): void {
    const x = this.#whole('sumLater', tensor);
    markWritten(x);
    if (x.elemCount === 0) return;
    const backend = this.#backend;
    if (backend.sumLater) backend.sumLater(x.storagePart(), x.elemCount);
    else backend.allReduce(x.storagePart(), x.storagePart(), x.elemCount, 'sum');
  }

  /**
   * {@link sumLater} of what `product` makes with one matrix product, and does not touch: a device may put parts of it to where they
   * are added up.
   */
  sumOfProduct(product: () => Tensor): Tensor {
    this.#alive('sumOfProduct');
    check('sumOfProduct', 'product', product, FUNCTION);
    const backend = this.#backend;
    const part = backend.forSum ? backend.forSum(product) : product();
    this.sumLater(part);
    return part;
  }

  /** Whether sums that are asked for with {@link sumLater} are part of other kernels, so that nothing is gained by work beside them. */
  get joinsSums(): boolean {
    return this.#backend.joinsSums ?? false;
  }

  /** The tensors of all ranks one behind the other along `dim`. */
  allGather(tensor: Tensor, dim = 0): Tensor {
    const x = this.#rows('allGather', tensor);
    const at = resolveDim('allGather', dim, x.shape);
    const { size } = this;
    try {
      const gathered = this.#made([size, ...x.shape], x.dtype, (out) =>
        this.#backend.allGather(x.storagePart(), out.storagePart(), x.elemCount),
      );
      const shape = x.shape.map((length, i) => (i === at ? length * size : length));
      // What lies in front of the dimension has one element: the ranks' parts are in order already.
      if (elemCount(x.shape.slice(0, at)) === 1) return replaced(gathered, (all) => all.reshape(shape));
      const order = [...x.shape.keys()].map((i) => i + 1);
      order.splice(at, 0, 0);
      return replaced(gathered, (all) => all.permute(order).reshape(shape));
    } finally {
      if (x !== tensor) x.dispose();
    }
  }

  /** The rank's part, along dimension 0, of what {@link allReduce} would give. @throws ShapeError where that does not divide */
  reduceScatter(tensor: Tensor, reduction: Reduction = 'sum'): Tensor {
    const x = this.#rows('reduceScatter', tensor, reduction);
    const { size } = this;
    try {
      if (x.rank === 0 || x.shape[0] % size !== 0) {
        const message = `reduceScatter: ${formatShape(x.shape)} has no whole part of dimension 0 for each of ${size} ranks; pad it.`;
        throw new ShapeError('INVALID_SHAPE', message);
      }
      const shape = [x.shape[0] / size, ...x.shape.slice(1)];
      return this.#made(shape, x.dtype, (out) =>
        this.#backend.reduceScatter(x.storagePart(), out.storagePart(), x.elemCount / size, reduction),
      );
    } finally {
      if (x !== tensor) x.dispose();
    }
  }

  /** Overwrites a contiguous tensor with the one of `root`. */
  broadcast(tensor: Tensor, root = 0): void {
    const x = this.#whole('broadcast', tensor);
    this.#peer('broadcast', 'root', root);
    markWritten(x);
    if (x.elemCount > 0) this.#backend.broadcast(x.storagePart(), x.elemCount, root);
  }

  /** To another rank, which calls {@link recv}. */
  send(tensor: Tensor, to: number): void {
    this.#peer('send', 'to', to);
    const x = this.#rows('send', tensor);
    try {
      if (x.elemCount > 0) this.#backend.send(x.storagePart(), x.elemCount, to);
    } finally {
      if (x !== tensor) x.dispose();
    }
  }

  /** What another rank sends with {@link send}. */
  recv(shape: Shape, dtype: DType, from: number): Tensor {
    this.#peer('recv', 'from', from);
    const sizes = validateShape('recv', shape);
    return this.#made(sizes, dtype, (out) => this.#backend.recv(out.storagePart(), out.elemCount, from));
  }

  /** Makes the sends and receives of `calls` one exchange, in which no rank waits for another in a circle. */
  grouped<T>(calls: () => T): T {
    this.#alive('grouped');
    let result: T;
    this.#backend.grouped(() => {
      result = calls();
    });
    return result!;
  }

  /** Why the group failed; undefined while it works. */
  failure(): Error | undefined {
    return this.#backend.failure();
  }

  /** Ends what is under way on this rank, so that nothing waits for the others. Only {@link dispose} follows. */
  abort(): void {
    if (!this.#disposed) this.#backend.abort();
  }

  /** Leaves the group. Harmless when repeated. */
  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    removeGroup(this.device, this);
    this.#backend.dispose();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }

  #alive(op: string): void {
    if (this.#disposed)
      throw new DisposedError('DISPOSED', `${op}: the communicator was disposed; join a group again.`);
    const failure = this.#backend.failure();
    if (failure) throw failure;
  }

  #checked(op: string, tensor: Tensor): void {
    this.#alive(op);
    check(op, 'tensor', tensor, TENSOR);
    storageOf(op, tensor);
    if (!tensor.device.equals(this.device)) {
      const message = `${op}: the tensor is on ${tensor.device}, the communicator on ${this.device}; move it with toDevice.`;
      throw new DeviceError('DEVICE_MISMATCH', message);
    }
  }

  /** The tensor, or a contiguous copy, which is the caller's. */
  #rows(op: string, tensor: Tensor, reduction: Reduction = 'sum'): Tensor {
    this.#checked(op, tensor);
    check(op, 'reduction', reduction, REDUCTION);
    return tensor.isContiguous() ? tensor : tensor.detach().contiguous();
  }

  #whole(op: string, tensor: Tensor): Tensor {
    this.#checked(op, tensor);
    if (tensor.isContiguous()) return tensor;
    const message = `${op}: the tensor, ${formatShape(tensor.shape)}, is a view whose elements do not lie together; give tensor.contiguous().`;
    throw new ShapeError('INVALID_SHAPE', message);
  }

  #peer(op: string, name: string, rank: number): void {
    this.#alive(op);
    check(op, name, rank, WHOLE);
    if (rank < 0 || rank >= this.size)
      throw new CollectiveError(
        'BAD_RANK',
        `${op}: ${name} is ${rank} of ${this.size} ranks; they are counted from 0.`,
      );
  }

  #made(shape: Shape, dtype: DType, fill: (out: Tensor) => void): Tensor {
    const { backend } = this.device;
    const count = elemCount(shape);
    const out = tensorOf(count === 0 ? backend.zeros(0, dtype) : backend.allocUninit(count, dtype), shape, this.device);
    try {
      if (count > 0) fill(out);
      return out;
    } catch (error) {
      out.dispose();
      throw error;
    }
  }
}

function opsOf(op: string, device: Device): CollectiveOps {
  const ops = device.backend.collectives;
  if (ops) return ops;
  const message = `${op}: ${device} (${device.backend.description}) cannot compute together with others; use cpu with its kernels, rocm or cuda devices.`;
  throw new UnsupportedError('UNSUPPORTED', message);
}

function replaced(tensor: Tensor, view: (tensor: Tensor) => Tensor): Tensor {
  try {
    return view(tensor);
  } finally {
    tensor.dispose();
  }
}
