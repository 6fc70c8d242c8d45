/** candle's backend functions and Tensor methods against the objects of the running packages. */
import { type BackendDevice, type BackendStorage, Device, JsDevice, Tensor } from '@x/core';
import '@x/rocm-backend';
import type { CandleFunction } from './candle';
import { type TestCase, testsNaming, where } from './report';
import type { Row } from './table';

/** An object of a running backend to look for functions on; undefined, with the reason, where there is none. */
export interface Backend {
  name: string;
  storage: BackendStorage | undefined;
  device: BackendDevice | undefined;
  note: string;
}

/** The backends `js` and `cpu`; a cpu that is only the TypeScript reference under another name counts as absent. */
export function openBackends(): Backend[] {
  return [Device.js, Device.cpu].map((open, index) => {
    const name = index === 0 ? 'js' : 'cpu';
    try {
      const device = open.call(Device).backend;
      if (name === 'cpu' && device instanceof JsDevice) throw new Error('cpu has no kernels here: it is js');
      const storage = device.zeros(1, 'f32');
      return { name, device, storage, note: `${name}: ${storage.constructor.name} of ${device.constructor.name}` };
    } catch (error) {
      return { name, device: undefined, storage: undefined, note: `${name}: ${(error as Error).message}` };
    }
  });
}

export function closeBackends(backends: Backend[]): void {
  for (const { storage } of backends) storage?.dispose();
}

/** Whether `object` or its prototypes define `name` with a value: a method, an accessor or a field. */
export function has(object: object | undefined, name: string): boolean {
  if (object === undefined) return false;
  return (object as Record<string, unknown>)[name] !== undefined;
}

/** Rows for functions that every backend must have; ours `Device.x` is a static method of core's Device class. */
/** A device, or that of a storage. */
function deviceOf(object: object): object {
  return (object as Partial<BackendStorage>).device ?? object;
}

/** What a device computes, which candle's storages do, and its random numbers, which candle's devices make. */
function capabilities(object: object): object[] {
  const { ops, fused, conv, resampling, sorting, random } = (object as Partial<BackendDevice>) ?? {};
  return [ops, fused, conv, resampling, sorting, random].filter((part) => part !== undefined);
}

export function functionRows(
  wanted: CandleFunction[],
  objects: { name: string; object: object | undefined }[],
  tests: TestCase[],
): Row[] {
  return wanted.map(({ name, ours }) => {
    const fixed = /^Device\.(\w+)$/.exec(ours)?.[1];
    const found =
      fixed === undefined
        ? objects
            .filter(
              ({ object }) => object && [object, ...capabilities(deviceOf(object))].some((part) => has(part, ours)),
            )
            .map((entry) => entry.name)
        : typeof (Device as unknown as Record<string, unknown>)[fixed] === 'function'
          ? objects.filter(({ object }) => object !== undefined).map((entry) => entry.name)
          : [];
    const status = found.length === objects.length ? 'ok' : 'missing';
    const shown = found.length === 0 ? '-' : `${ours}: ${found.join(' ')}`;
    return { item: name, ours: shown, status, tested: where(testsNaming(tests, ours)) };
  });
}

/** Rows for Tensor: instance methods and fields, static methods. */
export function tensorRows(wanted: CandleFunction[], tests: TestCase[]): Row[] {
  const tensor = Tensor.zeros([1]);
  try {
    return wanted.map(({ name, ours }) => {
      // Every function has `apply`, so a static method counts only if functions do not have it anyway.
      const isStatic = has(Tensor, ours) && !(ours in Function.prototype);
      const kind = has(tensor, ours) ? ours : isStatic ? `Tensor.${ours}` : undefined;
      const tested = kind === undefined ? '-' : where(testsNaming(tests, kind));
      return { item: name, ours: kind ?? '-', status: kind === undefined ? 'missing' : 'ok', tested };
    });
  } finally {
    tensor.dispose();
  }
}
