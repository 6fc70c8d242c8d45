/**
 * Named variables of a model that is trained: candle-nn's `VarMap` (var_map.rs). `VarBuilder.fromVarMap(map)` makes them as
 * layers ask for them; an optimiser takes `map.allVars()`. The map owns its variables, which outlive scopes and layers.
 */
import {
  CandleError,
  DeviceError,
  type DeviceLike,
  DisposedError,
  type DType,
  DTypeError,
  FileFormatError,
  formatShape,
  keep,
  kinds,
  type Shape,
  ShapeError,
  sameShape,
  type Tensor,
  type Var,
} from '@x/core';
import { SafetensorsFile, saveSafetensors } from '@x/core/files';
import { type Init, initVar } from './init';
import type { VarSource } from './var-builder/source';

/** Variables by name, made when they are first asked for, and owned by the map. */
export class VarMap implements Disposable {
  readonly #vars = new Map<string, Var>();
  #disposed = false;

  /** All variables by name, in the order they were made. */
  get data(): ReadonlyMap<string, Var> {
    return this.#vars;
  }

  /** All variables, in the order they were made. */
  allVars(): Var[] {
    return [...this.#vars.values()];
  }

  /**
   * The variable of a name, made and initialised if there is none.
   * @throws ShapeError, DTypeError or DeviceError when there is one that is not what is asked for
   */
  get(shape: Shape, path: string, init: Init, dtype: DType, device: DeviceLike): Var {
    this.checkAlive('get');
    const known = this.#vars.get(path);
    if (known) return checked(known, path, shape, dtype, device);
    const made = keep(initVar(init, shape, dtype, device));
    this.#vars.set(path, made);
    return made;
  }

  /** Gives one variable new values. @throws CandleError INVALID_ARGUMENT for an unknown name */
  setOne(name: string, value: Tensor): void {
    this.checkAlive('set');
    const known = this.#vars.get(name);
    if (!known) {
      throw new CandleError(
        'INVALID_ARGUMENT',
        `VarMap: there is no variable "${name}" among ${this.#vars.size}; make it with get, or check the name.`,
      );
    }
    known.set(value);
  }

  /** As {@link setOne} for each entry; after an error those before it are set. */
  set(values: Iterable<readonly [string, Tensor]> | Readonly<Record<string, Tensor>>): void {
    const entries = Symbol.iterator in values ? values : Object.entries(values);
    for (const entry of entries as Iterable<readonly [string, Tensor]>) {
      kinds.check('VarMap.set', 'an entry', entry, ENTRY);
      this.setOne(entry[0], entry[1]);
    }
  }

  /** Writes all variables to a safetensors file. @throws FileFormatError `FILE_UNWRITABLE` */
  async save(path: string): Promise<void> {
    this.checkAlive('save');
    await saveSafetensors(path, this.#vars);
  }

  /**
   * Reads new values for all variables of the map; other tensors of the file are left alone. All names and shapes are
   * checked before the first variable changes.
   * @throws FileFormatError as `SafetensorsFile.open`, and `FILE_NO_SUCH_TENSOR`; ShapeError
   */
  async load(path: string): Promise<void> {
    using file = this.open(path);
    for (const [name, variable] of this.#vars) {
      using values = await file.load(name, variable.device, { dtype: variable.dtype });
      variable.set(values);
    }
  }

  /** As {@link load}, blocking the event loop. */
  loadSync(path: string): void {
    using file = this.open(path);
    for (const [name, variable] of this.#vars) {
      using values = file.loadSync(name, variable.device, { dtype: variable.dtype });
      variable.set(values);
    }
  }

  /** For `VarBuilder.fromVarMap`. */
  get source(): VarSource {
    const lookUp = (name: string, device: DeviceLike, dtype: DType | undefined): Tensor => {
      const known = this.#vars.get(name)!;
      return checked(known, name, known.shape, dtype ?? known.dtype, device);
    };
    return {
      label: 'VarMap',
      names: () => [...this.#vars.keys()],
      shapeOf: (name) => this.#vars.get(name)?.shape,
      bytesOf: (name) => this.#vars.get(name)?.handle.ref?.bytes ?? 0,
      load: async (name, device, dtype) => lookUp(name, device, dtype),
      loadSync: lookUp,
      create: (name, shape, init, dtype, device) => this.get(shape, name, init, dtype, device),
      close() {},
    };
  }

  /** Gives all variables back: there are no more. */
  dispose(): void {
    this.#disposed = true;
    for (const variable of this.#vars.values()) variable.dispose();
    this.#vars.clear();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }

  private checkAlive(op: string): void {
    if (this.#disposed)
      throw new DisposedError(
        'DISPOSED',
        `VarMap.${op}: the map was disposed, and its variables with it; make another one.`,
      );
  }

  /** Opens a file and checks that it has what the map needs. */
  private open(path: string): SafetensorsFile {
    this.checkAlive('load');
    const file = SafetensorsFile.open(path);
    try {
      for (const [name, variable] of this.#vars) {
        if (!file.has(name)) {
          throw new FileFormatError(
            'FILE_NO_SUCH_TENSOR',
            `${path}: there is no tensor "${name}" among ${file.names.length}; check that the file is of this model.`,
            { path },
          );
        }
        const { shape } = file.info(name);
        if (!sameShape(shape, variable.shape)) throw shapeError(name, variable.shape, shape);
      }
      return file;
    } catch (error) {
      file.close();
      throw error;
    }
  }
}

function shapeError(name: string, shape: Shape, asked: Shape): ShapeError {
  return new ShapeError(
    'SHAPE_MISMATCH',
    `VarMap: variable "${name}" is ${formatShape(shape)} and not ${formatShape(asked)}; use another name or map.`,
  );
}

function checked(known: Var, path: string, shape: Shape, dtype: DType, device: DeviceLike): Var {
  if (!sameShape(known.shape, shape)) throw shapeError(path, known.shape, shape);
  if (known.dtype !== dtype) {
    throw new DTypeError(
      'DTYPE_MISMATCH',
      `VarMap: variable "${path}" is ${known.dtype} and asked for as ${dtype}; use another map, or convert what is read.`,
    );
  }
  if (!known.device.equals(device)) {
    throw new DeviceError(
      'DEVICE_MISMATCH',
      `VarMap: variable "${path}" is on ${known.device} and asked for on ${device}; use a map for each device.`,
    );
  }
  return known;
}

const VALUES = kinds.kind(
  (value) => typeof value === 'object' && value !== null,
  'give tensors by name, as { name: tensor } or a Map',
);
const ENTRY = kinds.kind(Array.isArray, 'give pairs of a name and a tensor');

kinds.checkCalls(
  VarMap.prototype,
  {
    get: { shape: kinds.SHAPE, path: kinds.STRING, init: kinds.OBJECT, dtype: kinds.DTYPE, device: kinds.DEVICE },
    setOne: { name: kinds.STRING, value: kinds.TENSOR },
    set: { values: VALUES },
    save: { path: kinds.STRING },
    load: { path: kinds.STRING },
    loadSync: { path: kinds.STRING },
  },
  'VarMap.',
);
