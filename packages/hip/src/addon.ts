/**
 * Loads the native addon on first use and describes what it exports. Handles (devices, streams, functions, ...) are small
 * integers, addresses are numbers; every call throws a {@link HipError} that the addon makes through the factory set here.
 */
import { createRequire } from 'node:module';
import type { DeviceProperties } from './device';
import { HipError, makeNativeError } from './errors';

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
  /** Products and convolutions given to a vendor library. */
  library: number;
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
}

const require = createRequire(import.meta.url);

// Literal paths, so that bundlers and file tracers see the binaries.
const BINARIES: Record<string, () => NativeAddon> = {
  'linux-x64': () => require('../prebuilds/linux-x64/hip.node'),
  'linux-arm64': () => require('../prebuilds/linux-arm64/hip.node'),
};

let loaded: NativeAddon | undefined;

/** The addon of this thread. Throws a HipError ADDON_MISSING naming the platform and what to do. */
export function addon(): NativeAddon {
  if (loaded) return loaded;
  const target = `${process.platform}-${process.arch}`;
  const load = BINARIES[target];
  if (!load) {
    const known = Object.keys(BINARIES).join(' and ');
    throw missing(
      `@x/hip has no native binary for ${target}, only for ${known}`,
      'Run Node on one of those, for example in a Linux container or, on Windows, in WSL',
    );
  }
  try {
    const native = load();
    native.setErrorFactory(makeNativeError);
    loaded = native;
    return native;
  } catch (cause) {
    const { code, message } = cause as NodeJS.ErrnoException;
    const what = `@x/hip's native binary for ${target}`;
    if (code === 'ERR_DLOPEN_DISABLED')
      throw missing(`${what} cannot be loaded: native addons are disabled`, 'Start Node without --no-addons', cause);
    const why =
      code === 'MODULE_NOT_FOUND' ? 'is not there' : `cannot be loaded: ${String(message ?? cause).split('\n')[0]}`;
    throw missing(`${what} (prebuilds/${target}/hip.node) ${why}`, REBUILD, cause);
  }
}

/** What works where the package was installed, and in a checkout. */
const REBUILD =
  'Install @x/hip again, or build the binary where it is installed: `npm install --no-save node-gyp node-addon-api`, then ' +
  '`node node_modules/@x/hip/scripts/build.mjs` (needs g++, make and python3). In a checkout: `npm run setup`';

function missing(message: string, remedy: string, cause?: unknown): HipError {
  return new HipError('ADDON_MISSING', `${message}. ${remedy}`, { remedy, cause });
}
