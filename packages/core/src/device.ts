/**
 * Devices by name. Mirrors candle's `Device` enum (candle-core/src/device.rs); instead of cargo features, a backend package
 * registers a provider when it is imported (backend-registry.ts).
 *
 * Opening is lazy: `Device.rocm(0)` checks that the device exists, its `backend` is opened on first use. There is one
 * `Device` a location, so devices compare with `===` as well as `equals`.
 */
import type { BackendDevice, CompiledProgram, CompileOptions, DeviceLocation, DeviceMemory } from './backend';
import { type DeviceKind, GPU_PACKAGE, KIND, KINDS, missing, providerOf } from './backend-registry';
import { brand } from './brand';
import { refuseInCapture } from './capture-state';
import { COUNT, check, FUNCTION, STRING } from './check';
import { randomOf } from './composed/random';
import { createContext } from './context';
import { CandleError, DeviceError, DisposedError, UnsupportedError } from './errors';
import { CapturedGraph, type GraphOutputs } from './graph';
import { type DeviceUsage, usageOf } from './memory';
import { assertOneCore, foreignCore, LINE, shared } from './one-core';
import { scope } from './scope';
import { show } from './show';

/** A device, or its name as {@link Device.parse} takes it. */
export type DeviceLike = Device | string;

const registry = shared('devices', () => ({
  opened: new Map<string, Device>(),
  skipped: [] as SkippedDevice[],
  scoped: createContext<Device>(),
}));
const { opened, scoped } = registry;

/** A line of {@link Device.list}. */
export interface DeviceInfo {
  /** `rocm:0`; what {@link Device.parse} takes. */
  name: string;
  location: DeviceLocation;
  available: boolean;
  /** A sentence for people; empty when not available. */
  description: string;
  /** Why it is not available. */
  reason?: string;
}

/** A kind of device that cannot be used here, and why. */
export interface SkippedDevice {
  kind: DeviceKind;
  reason: string;
}

/** A place where tensors are: one object a location, which opens its {@link Device.backend} on first use. */
export class Device {
  readonly location: DeviceLocation;
  /** @internal What `memoryStats()` counts for this name. */
  readonly usage: DeviceUsage;
  readonly #name: string;
  #backend: BackendDevice | undefined;
  #disposed = false;

  private constructor(location: DeviceLocation) {
    this.location = location;
    this.#name = nameOf(location);
    this.usage = usageOf(this.#name);
  }

  /** The plain TypeScript reference backend. */
  static js(): Device {
    return Device.at('js', 0);
  }

  /**
   * Compiled kernels when @x/rocm-backend is imported, otherwise plain TypeScript as on {@link Device.js}. Where that
   * package's native addon cannot run, also plain TypeScript: its `description` says why, and a warning
   * (`CPU_WITHOUT_KERNELS`) once a process.
   */
  static cpu(): Device {
    return Device.at('cpu', 0);
  }

  /**
   * An AMD GPU.
   * @throws DeviceError `DEVICE_UNAVAILABLE`, naming the package to import or why there is no such GPU
   */
  static rocm(ordinal = 0): Device {
    return Device.at('rocm', ordinal);
  }

  /** An NVIDIA GPU; errors as {@link Device.rocm}. */
  static cuda(ordinal = 0): Device {
    return Device.at('cuda', ordinal);
  }

  /** The device at a location, the same object each time until it is disposed. */
  static at(kind: DeviceKind, ordinal = 0): Device {
    assertOneCore();
    check('Device.at', 'kind', kind, KIND);
    check('Device.at', 'ordinal', ordinal, COUNT);
    const name = nameOf({ kind, ordinal });
    const existing = opened.get(name);
    if (existing) return existing;
    const provider = providerOf(kind);
    if (!provider) throw new DeviceError('DEVICE_UNAVAILABLE', `${name}: ${missing(kind)}.`);
    const { devices, reason } = provider.list();
    if (!devices.some((device) => device.ordinal === ordinal)) {
      const why = reason ?? `there are ${devices.length} ${kind} devices`;
      const known =
        devices.length > 0 ? devices.map((d) => nameOf({ kind, ordinal: d.ordinal })).join(', ') : 'Device.cpu()';
      throw new DeviceError('DEVICE_UNAVAILABLE', `${name} is not available: ${why}; use ${known}.`);
    }
    const device = new Device({ kind, ordinal });
    opened.set(name, device);
    return device;
  }

  /**
   * `js`, `cpu`, `rocm`, `rocm:1`, `cuda:0`: the names that {@link Device.toString} gives.
   * @throws DeviceError `DEVICE_UNKNOWN`
   */
  static parse(name: string): Device {
    const match = typeof name === 'string' && /^(js|cpu|rocm|cuda)(?::(\d{1,4}))?$/.exec(name);
    const kind = match ? (match[1] as DeviceKind) : undefined;
    const isHost = kind === 'js' || kind === 'cpu';
    if (!match || !kind || (isHost && match[2] !== undefined)) {
      throw new DeviceError(
        'DEVICE_UNKNOWN',
        `${show(name)} is no device; valid names: js, cpu, rocm:N, cuda:N with N from 0.`,
      );
    }
    return Device.at(kind, Number(match[2] ?? 0));
  }

  /**
   * The device that is meant: itself, or the one of that name; {@link Device.current} where none is named.
   * @throws DeviceError `DEVICE_UNKNOWN`
   */
  static of(device?: DeviceLike | null): Device {
    if (device instanceof Device) return device;
    const foreign = foreignCore(device);
    if (foreign) throw foreign;
    return device === undefined || device === null ? Device.current() : Device.parse(device as string);
  }

  /**
   * The best device that opens: rocm, then cuda, then cpu, which is there on every machine ({@link Device.cpu}).
   * {@link Device.skipped} tells what was passed over.
   */
  static async auto(): Promise<Device> {
    const skipped: SkippedDevice[] = [];
    for (const kind of ['rocm', 'cuda', 'cpu'] as const) {
      try {
        const device = Device.at(kind, 0);
        await device.backend.synchronize();
        registry.skipped = skipped;
        return device;
      } catch (error) {
        skipped.push({ kind, reason: error instanceof Error ? error.message : String(error) });
      }
    }
    registry.skipped = skipped;
    const reasons = skipped.map(({ kind, reason }) => `${kind}: ${reason.replace(/\.$/, '')}.`).join(' ');
    throw new DeviceError('DEVICE_UNAVAILABLE', `no device opens. ${reasons} Use Device.js(), which always works.`);
  }

  /** Where tensors are made when no device is named: that of the innermost {@link Device.scoped}, else `Device.cpu()`. */
  static current(): Device {
    return scoped.getStore() ?? Device.cpu();
  }

  /**
   * Runs `fn` in a `scope` whose tensors are made on `device` unless another one is named; they are disposed at the end
   * but for those in what it returns. With an async `fn` that lasts until its promise settles, and code outside that runs
   * meanwhile is not affected.
   * @param device a device or its name, as {@link Device.parse} takes it
   */
  static scoped<T>(device: DeviceLike, fn: (device: Device) => T): T {
    check('Device.scoped', 'fn', fn, FUNCTION);
    const on = device instanceof Device ? device : Device.parse(device);
    return scope(() => scoped.run(on, () => fn(on)));
  }

  /** What the last {@link Device.auto} passed over, and why. */
  static skipped(): readonly SkippedDevice[] {
    return registry.skipped;
  }

  /** Every device that is there, and one entry with the reason for each kind of which there is none. */
  static list(): DeviceInfo[] {
    return KINDS.flatMap((kind): DeviceInfo[] => {
      const found = providerOf(kind)?.list() ?? { devices: [], reason: `${missing(kind)}.` };
      if (found.devices.length === 0) {
        const location = { kind, ordinal: 0 };
        const reason = found.reason ?? `no ${kind} device was found`;
        return [{ name: nameOf(location), location, available: false, description: '', reason }];
      }
      return found.devices.map(({ ordinal, description }) => {
        const location = { kind, ordinal };
        return { name: nameOf(location), location, available: true, description };
      });
    });
  }

  get kind(): DeviceKind {
    return this.location.kind;
  }

  get ordinal(): number {
    return this.location.ordinal;
  }

  get isDisposed(): boolean {
    return this.#disposed;
  }

  /** The device itself, opened on first use. */
  get backend(): BackendDevice {
    if (this.#backend) return this.#backend;
    if (this.#disposed)
      throw new DisposedError('DISPOSED', `${this} was disposed; get it again with Device.parse('${this}').`);
    const provider = providerOf(this.kind);
    if (!provider) throw new DeviceError('DEVICE_UNAVAILABLE', `${this}: ${missing(this.kind)}.`);
    try {
      this.#backend = provider.open(this.ordinal);
    } catch (cause) {
      if (cause instanceof CandleError) throw cause;
      const why = cause instanceof Error ? cause.message : String(cause);
      throw new DeviceError(
        'DEVICE_UNAVAILABLE',
        `${this} does not open: ${why}; use another device, e.g. ${this.kind === 'cpu' ? 'Device.js()' : 'Device.cpu()'}.`,
        { cause },
      );
    }
    return this.#backend;
  }

  /** A sentence for people, e.g. the GPU's name. Opens the device. */
  get description(): string {
    return this.backend.description;
  }

  /** Whether both are one location. @throws DeviceError `DEVICE_UNKNOWN` for a name that is none */
  equals(other: DeviceLike): boolean {
    const { kind, ordinal } = other instanceof Device ? other : Device.parse(other);
    return this.kind === kind && this.ordinal === ordinal;
  }

  /** Waits until all enqueued work is done. */
  async synchronize(): Promise<void> {
    this.#refuse('synchronize');
    return this.backend.synchronize();
  }

  /** As {@link synchronize}, blocking the event loop. */
  synchronizeSync(): void {
    this.#refuse('synchronizeSync');
    this.backend.synchronizeSync();
  }

  /** Restarts the random stream: a whole number in 0..2^53. The same seed gives the same numbers on every device. @throws CaptureError in a captured function */
  setSeed(seed: number): void {
    check('setSeed', 'seed', seed, COUNT);
    refuseInCapture('setSeed: replays would not begin their random numbers anew', 'set the seed before replay()');
    randomOf(this.backend).setSeed(seed);
  }

  /** The seed set last, or the default one (candle's `get_current_seed`). */
  getCurrentSeed(): number {
    return randomOf(this.backend).seed;
  }

  /**
   * Kernels from HIP C++ source, compiled for this device at run time and cached on disk: the same source runs on AMD and
   * NVIDIA GPUs and on the CPU. `#include "x.h"` brings in the kernel headers; a kernel is declared as `KERNEL(name,
   * (parameters))`. Blocks while it compiles.
   * @throws UnsupportedError on a device without kernels, else what the compiler says
   */
  compile(source: string, options: CompileOptions = {}): CompiledProgram {
    check('compile', 'source', source, STRING);
    const { backend } = this;
    if (backend.compile) return backend.compile(source, options);
    throw new UnsupportedError(
      'UNSUPPORTED',
      `compile: ${this} runs no kernels (${backend.description}); use Device.rocm(), Device.cuda() or Device.cpu() with ${GPU_PACKAGE} imported, where its native addon runs.`,
    );
  }

  /**
   * Makes a graph of the work of `fn`, which {@link CapturedGraph.replay} repeats: one call of the driver, for a few
   * microseconds on the host, in the place of hundreds of launches.
   *
   * The work is done once by this call, and once more by each replay. `fn` may be called more than once, so it should do
   * nothing but compute on tensors: it is synchronous, reads no values, makes no random numbers and uses one device. What it
   * computes from outside are inputs, which must live as long as the graph; what numbers and shapes of JavaScript it uses
   * are fixed. Memory that it allocates belongs to the graph.
   *
   * Where there are no graphs (`js`, or `X_GRAPHS=0`), a replay calls `fn` again; the results are the same.
   * @param fn returns a tensor, arrays or plain objects of tensors, or nothing when it only writes in place
   * @example
   * ```ts
   * const x = Tensor.from([1, 2]);
   * const graph = x.device.capture(() => x.mul(10));
   * x.write([3, 4]);
   * graph.replay().toVecSync(); // => [30, 40]
   * graph.dispose();
   * ```
   * @throws CaptureError `CAPTURE_UNSUPPORTED` for what a graph cannot repeat, `CAPTURE_FAILED` when the device makes none;
   * what `fn` throws. The device can be used as before afterwards.
   */
  capture<T extends GraphOutputs>(fn: () => T): CapturedGraph<T> {
    return CapturedGraph.capture(this, fn);
  }

  /** Kernels, library calls and graphs launched since the device was opened; 0 on devices without kernels. */
  get launchCount(): number {
    return this.backend.launchCount ?? 0;
  }

  /**
   * Kernels and library calls since the device was opened, those of a graph at each of its replays; 0 on devices without kernels.
   * What the host calls the driver for is {@link launchCount}.
   */
  get kernelCount(): number {
    return this.backend.kernelCount ?? 0;
  }

  /** Bytes in use and cached on this device. */
  memory(): DeviceMemory {
    return this.backend.memory();
  }

  /**
   * Bytes that there is room for now: what the driver has free, and what is kept for reuse. Of a host, its memory that is available.
   * Others may take it. Undefined where nobody says (`js`).
   */
  availableBytes(): number | undefined {
    return this.backend.availableBytes?.();
  }

  /** Gives cached memory back to the driver. */
  emptyCache(): void {
    this.#refuse('emptyCache');
    this.backend.emptyCache();
  }

  /** Closes the device; its tensors are unusable afterwards. Harmless when repeated. */
  dispose(): void {
    if (this.#disposed) return;
    this.#refuse('dispose');
    this.#disposed = true;
    if (opened.get(this.toString()) === this) opened.delete(this.toString());
    const backend = this.#backend;
    this.#backend = undefined;
    backend?.dispose();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }

  /** `js`, `cpu`, `rocm:0`, `cuda:1`. */
  toString(): string {
    return this.#name;
  }

  /** @throws CaptureError `CAPTURE_UNSUPPORTED` during a capture, when nothing that was enqueued runs */
  #refuse(op: string): void {
    refuseInCapture(`${op}: ${this} cannot be waited for`, 'do it before capture(), or after replay()');
  }

  [Symbol.for('nodejs.util.inspect.custom')](): string {
    return `Device(${this})`;
  }
}

brand(Device, 'x.core.device', LINE);

function nameOf({ kind, ordinal }: DeviceLocation): string {
  return kind === 'js' || kind === 'cpu' ? kind : `${kind}:${ordinal}`;
}
