/**
 * The switches: environment variables that change how the packages behave, each with its type and default. They are read
 * when they are asked for, never at import; in a browser each has its default. docs/switches.md says the same for users,
 * and tools/lint/switches.mjs that it is the same. `@x/hip` and `@x/kernels`, which stand alone, have a file like this one.
 */
import { nodeProcess } from './platform';

/** Reads one switch. */
export interface Setting<T> {
  /** What the variable says now, or the default where it is not set or empty. */
  (): T;
  readonly variable: string;
  readonly default: T;
}

/** Each is called for its value: `settings.debug()`. */
export const settings = {
  /**
   * What is told on stderr: 0 nothing, 1 devices, out of range ids and leaks, 2 modules and libraries too, 3 allocations, 4
   * every launch. What is no whole number counts as 1.
   */
  debug: setting('X_DEBUG', 0, level),
  /** Whether captured functions become graphs. Off, each replay calls the function again. */
  graphs: setting('X_GRAPHS', true, flag),
  /** Whether a decode step is enqueued before the token is known that it begins with. */
  stepAhead: setting('X_STEP_AHEAD', true, flag),
  /** Whether tensors go from GPU to GPU without the host, where the GPUs reach each other. */
  peer: setting('X_PEER', true, flag),
  /** Whether sums over two GPUs are part of the norms behind them; undefined for where that is known to work, on NVIDIA's. */
  peerNorms: setting<boolean | undefined>('X_PEER_NORMS', undefined, flag),
  /** Whether every launch, copy and event is waited for, so that a fault is reported where it happened. */
  launchBlocking: setting('X_LAUNCH_BLOCKING', false, flag),
  /** What matrix products go through; the device, which knows its libraries, refuses what is none. */
  gemm: setting('X_GEMM', 'auto', text),
  /** What convolutions go through, as {@link gemm}. */
  convolution: setting('X_CONV', 'auto', text),
  /** What products of many rows with quantized weights use on GPUs: `auto`, `dp4a` or `mma`; refused by the device. */
  quantized: setting('X_QUANTIZED', 'auto', text),
  /** Whether quantized weights are kept as numbers for products of many rows, while half of a GPU's memory stays free. */
  denseWeights: setting('X_DENSE_WEIGHTS', true, flag),
  /** Where kernels compiled at run time are kept; empty for the user's cache directory. An absolute path. */
  cacheDirectory: setting('X_CACHE_DIR', '', text),
  /** What processes that compute a model together show each other; empty for none. */
  groupToken: setting('X_GROUP_TOKEN', '', text),
  /** Where they meet, in place of `MASTER_PORT`; empty for that. */
  groupPort: setting('X_GROUP_PORT', '', text),
  /** Whether quantized weights become f32 when a `QMatMul` is made of them. */
  dequantizeAll: setting('X_DEQUANTIZE_ALL', false, flag),
  /** The same for f16. */
  dequantizeAllF16: setting('X_DEQUANTIZE_ALL_F16', false, flag),
} as const;

/** @param parse takes what is set and not empty */
function setting<T>(variable: string, byDefault: T, parse: (value: string) => T): Setting<T> {
  const read = (): T => {
    const value = nodeProcess?.env[variable];
    return value === undefined || value === '' ? byDefault : parse(value);
  };
  return Object.assign(read, { variable, default: byDefault });
}

function text(value: string): string {
  return value;
}

/** Anything but 0 is on, as in candle. */
function flag(value: string): boolean {
  return value !== '0';
}

/** A whole number from 0; anything else is on, and no more than that. An error could come up anywhere. */
function level(value: string): number {
  return /^\d{1,9}$/.test(value) ? Number(value) : 1;
}
