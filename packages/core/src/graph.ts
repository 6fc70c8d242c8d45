/**
 * Captured graphs: the work of a function, recorded once and repeated by one call of the driver. What it is for: a decode
 * step of a language model is hundreds of launches of a few microseconds each, which cost the host more than the device.
 *
 * `Device.capture` calls its function once as any code: that loads kernels, makes library handles and uploads what views
 * need, none of which can be part of a graph, and gives the first results. Then it is called again while the device records
 * instead of computing. Where a device has no graphs, the function is what is kept, and called by each replay.
 */
import type { BackendGraph } from './backend';
import { noteWrite, type Recording, refuseInCapture, refusePromise, whileCapturing } from './capture-state';
import { check, FUNCTION } from './check';
import type { Device } from './device';
import { CaptureError, DisposedError } from './errors';
import { Layout } from './layout';
import { keep, scope } from './scope';
import { settings } from './settings';
import { sameShape } from './shape';
import { show } from './show';
import type { StorageRef } from './storage-ref';
import type { Tensor } from './tensor';
import { isTensor, markWritten, storageOf } from './tensor/base';

/** What a captured function returns: tensors, alone or in arrays and plain objects; nothing when it writes in place. */
export type GraphOutputs =
  | Tensor
  | undefined
  // biome-ignore lint/suspicious/noConfusingVoidType: what a function without a return statement returns
  | void
  | readonly GraphOutputs[]
  | { readonly [name: string]: GraphOutputs };

/** What `Device.capture` gives: work that {@link replay} repeats, and the outputs that it writes to. */
export class CapturedGraph<T extends GraphOutputs = GraphOutputs> {
  readonly device: Device;
  /**
   * What the function returned, as detached tensors that belong to the graph: each replay writes its results into them. Do
   * not dispose them; `copy()` what is to outlive the next replay.
   */
  readonly outputs: T;
  readonly #tensors: readonly Tensor[];
  readonly #fn: () => T;
  readonly #graph: BackendGraph | null;
  /** What the graph writes to beside its outputs. */
  readonly #written: readonly StorageRef[];
  /** What its steps on the host read and write. */
  readonly #forHost: readonly Tensor[];
  #disposed = false;

  private constructor(
    device: Device,
    fn: () => T,
    outputs: T,
    graph: BackendGraph | null,
    written: Iterable<StorageRef> = [],
    forHost: readonly Tensor[] = [],
  ) {
    this.device = device;
    this.outputs = outputs;
    this.#tensors = tensorsIn(outputs);
    this.#fn = fn;
    this.#graph = graph;
    this.#written = [...written].filter(({ shares }) => shares > 0);
    this.#forHost = forHost;
    if (graph) forgotten.register(this, graph, this);
  }

  /** @internal `Device.capture`. */
  static capture<T extends GraphOutputs>(device: Device, fn: () => T): CapturedGraph<T> {
    check('capture', 'fn', fn, FUNCTION);
    refuseInCapture('capture: a graph cannot be captured', 'capture one after the other');
    const { backend } = device;
    const first = results(device, fn);
    if (!backend.capture || !settings.graphs()) return new CapturedGraph(device, fn, first, null);
    let outputs: T | undefined;
    let graph: BackendGraph | null = null;
    const written = new Set<StorageRef>();
    const forHost: Tensor[] = [];
    try {
      graph = backend.capture((divide) => {
        const recording: Recording = {
          written,
          divide: (tensors, run) => {
            const own = tensors.map((tensor) => keep(tensor.detach()));
            forHost.push(...own);
            divide(() => run(...own));
          },
        };
        outputs = results(device, fn, recording);
      });
      if (graph === null) return new CapturedGraph(device, fn, first, null);
      overwrite(tensorsIn(outputs), tensorsIn(first));
      disposeAll(first);
      return new CapturedGraph(device, fn, outputs as T, graph, written, forHost);
    } catch (error) {
      disposeAll(first);
      disposeAll(outputs);
      disposeAll(forHost);
      graph?.dispose();
      throw error;
    }
  }

  /** Whether the device repeats the work by itself; false where a replay calls the function again. */
  get isCaptured(): boolean {
    return this.#graph !== null;
  }

  /** Kernels and library calls of a replay; 0 where {@link isCaptured} is false. */
  get launches(): number {
    return this.#graph?.launches.length ?? 0;
  }

  /** Their names, in order. */
  get launchNames(): readonly string[] {
    return this.#graph?.launches ?? [];
  }

  get isDisposed(): boolean {
    return this.#disposed;
  }

  /**
   * Enqueues the work once more, on what its inputs then hold, and returns {@link outputs}, overwritten. It does not wait.
   * @throws DisposedError when the graph, an input, an output or the device was disposed; CaptureError during a capture
   */
  replay(): T {
    if (this.#disposed) {
      throw new DisposedError('DISPOSED', `replay: the graph of ${this.device} was disposed; capture it again.`);
    }
    refuseInCapture('replay: a graph cannot become part of another', 'call the function itself instead');
    for (const tensor of this.#tensors) {
      storageOf('replay', tensor);
      markWritten(tensor);
    }
    for (const ref of this.#written) noteWrite(ref);
    if (this.#graph === null) this.#again();
    else this.#graph.replay();
    return this.outputs;
  }

  /** Waits for the device, disposes the outputs and gives the graph's memory back. Harmless when repeated. */
  dispose(): void {
    if (this.#disposed) return;
    refuseInCapture('dispose: a graph cannot be disposed', 'dispose it before or afterwards');
    this.#disposed = true;
    forgotten.unregister(this);
    for (const tensor of [...this.#tensors, ...this.#forHost]) tensor.dispose();
    if (!this.device.isDisposed) this.#graph?.dispose();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }

  #again(): void {
    const fresh = results(this.device, this.#fn);
    try {
      overwrite(this.#tensors, tensorsIn(fresh));
    } finally {
      disposeAll(fresh);
    }
  }
}

/** Gives back what belongs to graphs that were collected without having been disposed. */
const forgotten = new FinalizationRegistry<BackendGraph>((graph) => graph.dispose());

/** What `fn` returns, as detached tensors of no scope; everything else that it makes is disposed. */
function results<T extends GraphOutputs>(device: Device, fn: () => T, recording?: Recording): T {
  return whileCapturing(device, recording, () =>
    keep(
      scope(() => {
        const returned = fn();
        refusePromise('capture: the function', returned);
        return detached(device, returned, []) as T;
      }),
    ),
  );
}

/** `value` with every tensor replaced by a detached one of its own. */
function detached(device: Device, value: GraphOutputs, path: readonly string[]): GraphOutputs {
  if (value === undefined || value === null) return undefined;
  if (isTensor(value)) {
    if (value.device === device) return value.detach();
    throw new CaptureError(
      'CAPTURE_UNSUPPORTED',
      `capture: the function returned ${value.describe()}${at(path)}, and the graph is of ${device}; move it to ${device}.`,
    );
  }
  if (Array.isArray(value)) return value.map((item, i) => detached(device, item, [...path, String(i)]));
  const prototype = typeof value === 'object' ? Object.getPrototypeOf(value) : undefined;
  if (prototype === Object.prototype || prototype === null) {
    const entries = Object.entries(value as Record<string, GraphOutputs>);
    return Object.fromEntries(entries.map(([name, item]) => [name, detached(device, item, [...path, name])]));
  }
  throw new CaptureError(
    'CAPTURE_UNSUPPORTED',
    `capture: the function returned ${show(value)}${at(path)}, which no replay would change; return tensors, or arrays and plain objects of tensors.`,
  );
}

function at(path: readonly string[]): string {
  return path.length === 0 ? '' : ` at ${path.join('.')}`;
}

/** In a fixed order. */
function tensorsIn(value: GraphOutputs): Tensor[] {
  if (value === undefined || value === null) return [];
  return isTensor(value) ? [value] : Object.values(value as Record<string, GraphOutputs>).flatMap(tensorsIn);
}

function disposeAll(value: GraphOutputs): void {
  for (const tensor of tensorsIn(value)) tensor.dispose();
}

/** Copies what lies behind each of `sources` into the memory of its target, which is laid out alike. */
function overwrite(targets: readonly Tensor[], sources: readonly Tensor[]): void {
  if (targets.length !== sources.length) throw changed(`${targets.length} tensors`, `${sources.length}`);
  for (const [i, target] of targets.entries()) {
    const source = sources[i];
    const to = storageOf('replay', target);
    const from = storageOf('replay', source);
    // An input that is returned, or a view of it, is up to date.
    if (to === from) continue;
    if (!sameLayout(target, source) || to.elemCount !== from.elemCount)
      throw changed(target.describe(), source.describe());
    const layout = Layout.contiguous([from.elemCount]);
    if (from.elemCount > 0) target.device.backend.ops.copy({ storage: from, layout }, { storage: to, layout });
  }
}

function sameLayout(a: Tensor, b: Tensor): boolean {
  return (
    a.dtype === b.dtype &&
    sameShape(a.shape, b.shape) &&
    sameShape(a.stride, b.stride) &&
    a.layout.startOffset === b.layout.startOffset
  );
}

function changed(before: string, now: string): CaptureError {
  return new CaptureError(
    'CAPTURE_FAILED',
    `capture: the function returned ${before} at first and ${now} when it was called again; return the same shapes and dtypes each time, or capture a graph for each.`,
  );
}
