/**
 * Loads the native addon on first use and describes what it exports. Handles (devices, streams, functions, ...) are small
 * integers, addresses are numbers; every call throws a {@link HipError} that the addon makes through the factory set here.
 */
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { version } from '../package.json';
import type { GroupFailure } from './communicator';
import type { DeviceProperties } from './device';
import { HipError, makeNativeError } from './errors';
import { cutShort } from './whole';

/** A page of raw memory on the JavaScript side: any typed array, a DataView, or an ArrayBuffer. */
export type HostView = ArrayBufferView | ArrayBuffer;

export interface NativeReport {
  deviceCount: number;
  library: string;
  version: string;
  searched: string[];
  code: string;
  name: string;
  message: string;
  remedy: string;
}

export interface NativeCompiler {
  available: boolean;
  library: string;
  version: string;
  searched: string[];
  reason: string;
}

export interface NativeLibrary {
  available: boolean;
  library: string;
  version: string;
  searched: string[];
  code: string;
  message: string;
  remedy: string;
}

export interface NativeDevice {
  id: number;
  properties: DeviceProperties;
  /** A launch record of 32-bit words, then packed arguments; `launch` reads it. */
  launchBuffer: SharedArrayBuffer;
  launch: () => void;
}

export interface NativePeerMemory {
  id: number;
  address: number;
  control: number;
  name: Uint8Array;
}

/** How often each driver entry was called on a device since it was opened. */
export interface Counters {
  moduleLoad: number;
  moduleUnload: number;
  getFunction: number;
  launch: number;
  malloc: number;
  free: number;
  htod: number;
  dtoh: number;
  dtod: number;
  memset: number;
  graphLaunch: number;
  /** Products, convolutions and collectives given to a library. */
  library: number;
}

/** What a driver table has done since a fault was last planned, and what is live on the platform; without zeros. */
export interface NativeFaultState {
  /** Calls that failed because they were planned to. */
  hits: number;
  /** Calls by entry point of the table (native/driver.h). */
  counts: Record<string, number>;
  /** `contexts`, `allocations`, their `bytes`, `pinned`, `streams`, `events`, `modules`, `graphs`, `graphExecs`. */
  live: Record<string, number>;
}

/** The addon's exports; the first argument of the device functions is the device's number. */
export interface NativeAddon {
  readonly launchArgsOffset: number;
  readonly launchArgsBytes: number;
  setErrorFactory(make: typeof makeNativeError): void;
  report(platform: number): NativeReport;
  open(platform: number, ordinal: number): NativeDevice;
  close(device: number): void;
  counters(device: number): Counters;
  compiler(platform: number): NativeCompiler;
  compile(platform: number, source: string, name: string, options: string[]): Uint8Array;
  memoryInfo(device: number): [free: number, total: number];
  alloc(device: number, bytes: number): number;
  free(device: number, address: number): void;
  htod(device: number, dst: number, view: HostView, stream: number): void;
  /** Undefined where the platform does not page-lock the memory. */
  pin(device: number, view: HostView): number | undefined;
  unpin(device: number, pinned: number): void;
  htodPinned(device: number, pinned: number, from: number, dst: number, bytes: number, stream: number): void;
  fileReader(device: number): number;
  /** Bytes that came, or minus the system's error number. */
  fileRead(
    device: number,
    reader: number,
    fd: number,
    position: number,
    dst: number,
    bytes: number,
    stream: number,
  ): Promise<number>;
  fileReaderClose(device: number, reader: number): void;
  dtod(device: number, dst: number, src: number, bytes: number, stream: number): void;
  reaches(device: number, source: number): boolean;
  copyFrom(
    device: number,
    dst: number,
    stream: number,
    source: number,
    src: number,
    sourceStream: number,
    bytes: number,
  ): void;
  memset(device: number, dst: number, byte: number, bytes: number, stream: number): void;
  dtoh(device: number, view: HostView, src: number, stream: number): Promise<void>;
  dtohSync(device: number, view: HostView, src: number, stream: number): void;
  deviceSynchronize(device: number): Promise<void>;
  deviceSynchronizeSync(device: number): void;
  streamCreate(device: number): number;
  streamDestroy(device: number, stream: number): void;
  streamSynchronize(device: number, stream: number): Promise<void>;
  streamSynchronizeSync(device: number, stream: number): void;
  streamWaitEvent(device: number, stream: number, event: number): void;
  beginCapture(device: number, stream: number): void;
  endCapture(device: number, stream: number): number;
  eventCreate(device: number): number;
  eventDestroy(device: number, event: number): void;
  eventRecord(device: number, event: number, stream: number): void;
  eventSynchronize(device: number, event: number): Promise<void>;
  eventSynchronizeSync(device: number, event: number): void;
  eventQuery(device: number, event: number): boolean;
  eventElapsed(device: number, start: number, end: number): number;
  graphInstantiate(device: number, graph: number): number;
  graphDestroy(device: number, graph: number): void;
  execUpdate(device: number, exec: number, graph: number): boolean;
  execLaunch(device: number, exec: number, stream: number): void;
  execDestroy(device: number, exec: number): void;
  moduleLoad(device: number, code: HostView): number;
  moduleUnload(device: number, module: number): void;
  getFunction(device: number, module: number, name: string): number;
  library(library: number): NativeLibrary;
  libraryOpen(device: number, library: number): void;
  gemm(device: number, library: number, stream: number, problem: Float64Array): void;
  gemmTakes(device: number, library: number, type: number, outType: number): boolean;
  gemmWorkspace(device: number, library: number, address: number, bytes: number): void;
  convolutionPlan(
    device: number,
    library: number,
    stream: number,
    shape: Float64Array,
  ): [plan: number, workspaceBytes: number, algorithm: string];
  convolutionRun(
    device: number,
    library: number,
    stream: number,
    plan: number,
    x: number,
    filter: number,
    y: number,
    workspace: number,
  ): void;
  convolutionDrop(device: number, library: number, plan: number): void;
  streamCapturing(device: number, stream: number): boolean;
  groupId(device: number): Uint8Array;
  groupJoin(device: number, id: Uint8Array, rank: number, size: number, timeoutMs: number): Promise<number>;
  groupCall(device: number, communicator: number, stream: number, call: Float64Array): void;
  groupBegin(device: number, communicator: number): void;
  groupEnd(device: number, communicator: number, stream: number): void;
  groupFailure(device: number, communicator: number): GroupFailure | undefined;
  groupAbort(device: number, communicator: number): void;
  groupLeave(device: number, communicator: number): void;
  peerMemory(device: number, bytes: number): NativePeerMemory;
  peerReach(device: number, memory: number, name: Uint8Array): number;
  peerWrite(device: number, memory: number, offset: number, view: HostView): void;
  peerMissing(device: number, memory: number): number;
  peerAbort(device: number, memory: number): void;
  peerFree(device: number, memory: number): void;
  /** For tests, before a device of the platform is open: see native/bind_faults.cc. */
  planFault(platform: number, entry: string, nth: number, status: number, reach: number): void;
  faultState(platform: number): NativeFaultState;
}

// In a bundle that was made a CommonJS one there is no `import.meta.url`: then from the program, or where it was started.
const require = createRequire(import.meta.url || process.argv[1] || `${process.cwd()}/`);

// Literal paths, so that bundlers and file tracers see the binaries: first the package of the platform, which is what comes
// from npm, then what scripts/build.mjs leaves here.
const BINARIES: Record<string, readonly (() => NativeAddon)[]> = {
  'linux-x64-gnu': [() => require('@x/hip-linux-x64-gnu/hip.node'), () => require('../prebuilds/linux-x64/hip.node')],
  'linux-x64-musl': [
    () => require('@x/hip-linux-x64-musl/hip.node'),
    () => require('../prebuilds/linux-x64-musl/hip.node'),
  ],
  'linux-arm64-gnu': [
    () => require('@x/hip-linux-arm64-gnu/hip.node'),
    () => require('../prebuilds/linux-arm64/hip.node'),
  ],
};

/** Why a module without the addon's functions stands in its place. */
const BUNDLED = 'a bundler has put something else in its place';
/** Node's permission model refuses addons too. */
const ALLOW_ADDONS =
  'permission' in process ? 'Start Node with --allow-addons, beside --permission' : 'Start Node without --no-addons';
const LEAVE_OUT =
  'Leave the @x packages out of the bundle (webpack: externals, esbuild and rollup: external, Next: serverExternalPackages) ' +
  'and install them beside it';

let loaded: NativeAddon | undefined;

/** The addon of this thread. Throws a HipError ADDON_MISSING naming the platform and what to do. */
export function addon(): NativeAddon {
  if (loaded) return loaded;
  const target = platformTarget();
  const candidates = BINARIES[target];
  if (!candidates) {
    const known = Object.keys(BINARIES).join(', ');
    throw missing(
      `@x/hip has no native binary for ${target}, only for ${known}`,
      'Run Node on one of those, for example in a Linux container or, on Windows, in WSL',
    );
  }
  let failure: unknown;
  for (const load of candidates) {
    try {
      if (load === candidates[0]) checkInstalled(target);
      const native = load();
      if (typeof native?.setErrorFactory !== 'function') throw new Error(BUNDLED);
      native.setErrorFactory(makeNativeError);
      loaded = native;
      return native;
    } catch (error) {
      // One that is there and does not load says more than one that is not there.
      if (!failure || (failure as NodeJS.ErrnoException).code === 'MODULE_NOT_FOUND') failure = error;
    }
  }
  const { code, message } = failure as NodeJS.ErrnoException;
  const what = `@x/hip's native binary for ${target}`;
  if (code === 'ERR_DLOPEN_DISABLED')
    throw missing(`${what} cannot be loaded: native addons are disabled`, ALLOW_ADDONS, failure);
  const why =
    code === 'MODULE_NOT_FOUND' ? 'is not there' : `cannot be loaded: ${String(message ?? failure).split('\n')[0]}`;
  throw missing(
    `${what} (package @x/hip-${target}) ${why}`,
    message === BUNDLED ? LEAVE_OUT : reinstall(target),
    failure,
  );
}

/** Throws where the installed binary was cut; what is wrong with it otherwise, loading it says. */
function checkInstalled(target: string): void {
  let path: string;
  try {
    path = require.resolve(`@x/hip-${target}/hip.node`);
  } catch {
    return;
  }
  const cut = cutShort(path);
  if (cut) throw new Error(`${path} was cut: it has ${cut.bytes} of ${cut.whole} bytes`);
}

/** `linux-x64-gnu`: the platform, the processor and, on Linux, the C library that this Node runs on. */
function platformTarget(): string {
  const target = `${process.platform}-${process.arch}`;
  return process.platform === 'linux' ? `${target}-${isMusl() ? 'musl' : 'gnu'}` : target;
}

/** musl's loader is there, and Node's report names no glibc. The report would look up the machine's network addresses too. */
function isMusl(): boolean {
  const machine = process.arch === 'x64' ? 'x86_64' : process.arch === 'arm64' ? 'aarch64' : process.arch;
  if (!existsSync(`/lib/ld-musl-${machine}.so.1`)) return false;
  const report = process.report as typeof process.report & { excludeNetwork?: boolean };
  if (!report?.getReport) return false;
  const before = report.excludeNetwork;
  report.excludeNetwork = true;
  try {
    const { header } = report.getReport() as { header?: { glibcVersionRuntime?: string } };
    return header !== undefined && header.glibcVersionRuntime === undefined;
  } finally {
    report.excludeNetwork = before;
  }
}

/** What works where the package was installed, and in a checkout. */
function reinstall(target: string): string {
  return (
    `Install it: \`npm install @x/hip-${target}@${version}\` (an installation without optional dependencies, or with a lock ` +
    'file made on another system, leaves it out). Or build it where @x/hip is installed: `npm install --no-save ' +
    'node-addon-api`, then `node node_modules/@x/hip/scripts/build.mjs` (needs g++). In a checkout: `npm run setup`'
  );
}

function missing(message: string, remedy: string, cause?: unknown): HipError {
  return new HipError('ADDON_MISSING', `${message}. ${remedy}`, { remedy, cause });
}
