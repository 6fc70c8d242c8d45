/**
 * ModuleStore: loads each kernel module once per device and caches its functions by name (candle's `ModuleStore` and
 * `get_or_load_func`, candle-core/src/cuda_backend/device.rs). Differences: function handles are cached too, errors name
 * kernel, module and target, and a code object whose warp size is not the device's is refused.
 *
 * Where a module comes from, in order: NVIDIA's machine code, where the driver takes it; the code object of the device's exact
 * target, of its generic family, or, when neither was built, the module's source compiled at run time. PTX, which the driver
 * compiles once a machine, is given to it a kernel at a time.
 */
import { warnOnce } from '@x/core';
import { type HipDevice, HipError, type HipFunction, type HipModule, type ParamType } from '@x/hip';
import { cubinTargets, type KernelInfo, type KernelModule, PtxText, parseCodeObject, resolveTarget } from '@x/kernels';
import { debug } from './debug';
import { KernelLookupError } from './errors';
import { compileCached, type RuntimeSource } from './runtime-compile';

interface LoadedModule {
  label: string;
  target: string;
  /** The driver's module with a kernel. */
  moduleOf(kernel: string): HipModule;
  kernels: Record<string, KernelInfo>;
  functions: Map<string, HipFunction>;
  dispose(): void;
}

/** What the driver has compiled before is there sooner. */
const CACHED_MS = 30;

/** PTX begins with a comment or a directive, ELF does not. */
const ELF = 0x7f;

/** The level of the host's instructions that a target is built for, whatever else it has; undefined of GPUs. */
const levelOf = (target: string): string | undefined => /^x86-64-v\d/.exec(target)?.[0];

/** In packages no level is missing; a checkout has what was built. */
function warnOfLowerLevel(target: string, arch: string): void {
  warnOnce(
    'KERNELS_OF_LOWER_LEVEL',
    `this CPU is ${arch}, and its kernels of ${target} are used, which are slower, up to several times, since none of its own level were built. In a checkout of the project, run \`pnpm kernels --targets host\`.`,
    target,
  );
}

export interface ModuleStoreStats {
  /** Modules and run-time sources since the device was opened, each once, also where the driver gets its kernels one by one. */
  modulesLoaded: number;
  functionsLoaded: number;
}

/** The kernels of one device, loaded when they are asked for (candle's `ModuleStore`). */
export class ModuleStore {
  readonly #device: HipDevice;
  readonly #modules = new Map<string, LoadedModule>();
  readonly #raw = new Map<string, LoadedModule>();
  #compiled = 0;
  #functionsLoaded = 0;

  /** @param onCompiled called after each kernel that the driver has compiled, with how many there were */
  constructor(
    device: HipDevice,
    private readonly onCompiled: (count: number) => void = () => {},
  ) {
    this.#device = device;
  }

  /**
   * The kernel `name` of a shipped module; the module is loaded on first use.
   * @throws KernelLookupError KERNEL_TARGET_MISSING, KERNEL_NOT_FOUND, KERNEL_WARP_SIZE
   */
  getOrLoadFunc(name: string, module: KernelModule): HipFunction {
    let loaded = this.#modules.get(module.name);
    if (!loaded) {
      loaded = this.#loadShipped(module);
      this.#modules.set(module.name, loaded);
    }
    return this.#function(loaded, name);
  }

  /**
   * A kernel from source that is compiled at run time (hiprtc, NVRTC, clang) and cached in memory and on disk.
   * The same source, headers and options compile once. Parameter types come from the `KERNEL` macro's signature, or
   * from `options.params` for a plain `extern "C" __global__` kernel.
   */
  getOrLoadFuncRaw(name: string, source: string, options: RuntimeSource['options'] = {}): HipFunction {
    const compiled = compileCached({
      source,
      options,
      platform: this.#device.platform,
      arch: this.#device.properties.arch,
    });
    let loaded = this.#raw.get(compiled.key);
    if (!loaded) {
      loaded = this.#load(`run-time source ${compiled.key.slice(0, 12)}`, this.#device.properties.arch, compiled.bytes);
      this.#raw.set(compiled.key, loaded);
    }
    return this.#function(loaded, name, options.params?.[name]);
  }

  stats(): ModuleStoreStats {
    return { modulesLoaded: this.#modules.size + this.#raw.size, functionsLoaded: this.#functionsLoaded };
  }

  /** Unloads all modules; functions of theirs cannot be launched afterwards. */
  dispose(): void {
    for (const loaded of [...this.#modules.values(), ...this.#raw.values()]) loaded.dispose();
    this.#modules.clear();
    this.#raw.clear();
  }

  #loadShipped(module: KernelModule): LoadedModule {
    const { arch } = this.#device.properties;
    const machineCode = this.#loadCubin(module);
    if (machineCode) return machineCode;
    const targets = resolveTarget(arch);
    for (const target of targets) {
      const object = module.codeObject(target);
      if (!object) continue;
      debug(2, () => `module ${module.name}: code object ${target} for ${arch}`);
      if (levelOf(target) !== levelOf(arch)) warnOfLowerLevel(target, arch);
      const { bytes, kernels } = object;
      return bytes[0] === ELF
        ? this.#register(module.name, target, bytes, kernels)
        : this.#registerText(module.name, target, bytes, kernels);
    }
    debug(
      2,
      () =>
        `module ${module.name}: no code object for ${arch} (looked for ${targets.join(', ')}), compiling its source`,
    );
    const refused = (cause: unknown) => KernelLookupError.noCodeObject(module.name, arch, targets, cause);
    let source: string;
    try {
      ({ source } = module);
    } catch (cause) {
      // Neither: a bundle or a traced copy of the program without the packages of kernels.
      throw refused(cause);
    }
    const compiled = compileCached({ source, options: {}, platform: this.#device.platform, arch }, refused);
    return this.#load(module.name, arch, compiled.bytes);
  }

  /** The module in machine code of an NVIDIA GPU; undefined where there is none, or none that the driver takes. */
  #loadCubin(module: KernelModule): LoadedModule | undefined {
    const { arch } = this.#device.properties;
    for (const target of cubinTargets(arch)) {
      const object = module.codeObject(target);
      if (!object) continue;
      try {
        const loaded = this.#register(module.name, target, object.bytes, object.kernels);
        debug(2, () => `module ${module.name}: machine code ${target} for ${arch}`);
        return loaded;
      } catch (error) {
        if (!(error instanceof HipError) || error.code !== 'DRIVER_ERROR') throw error;
        debug(1, () => `module ${module.name}: the driver refuses ${target} and is given PTX: ${error.message}`);
      }
    }
    return undefined;
  }

  #load(label: string, target: string, bytes: Uint8Array): LoadedModule {
    return this.#register(label, target, bytes, parseCodeObject(bytes).kernels);
  }

  #register(label: string, target: string, bytes: Uint8Array, kernels: Record<string, KernelInfo>): LoadedModule {
    this.#checkWarpSize(label, target, kernels);
    const module = this.#device.loadModule(bytes);
    return { label, target, kernels, moduleOf: () => module, functions: new Map(), dispose: () => module.dispose() };
  }

  /** Of PTX each kernel is a module of its own, made when it is asked for: the driver compiles all that it is given. */
  #registerText(label: string, target: string, bytes: Uint8Array, kernels: Record<string, KernelInfo>): LoadedModule {
    this.#checkWarpSize(label, target, kernels);
    const text = new PtxText(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('latin1'));
    const modules: HipModule[] = [];
    const moduleOf = (kernel: string) => {
      const started = performance.now();
      const module = this.#device.loadModule(Buffer.from(text.kernel(kernel)!, 'latin1'));
      const took = performance.now() - started;
      debug(2, () => `${kernel}: compiled by the driver in ${took.toFixed(0)} ms`);
      modules.push(module);
      if (took > CACHED_MS) this.onCompiled(++this.#compiled);
      return module;
    };
    const dispose = () => {
      for (const module of modules) module.dispose();
    };
    return { label, target, kernels, moduleOf, functions: new Map(), dispose };
  }

  #checkWarpSize(label: string, target: string, kernels: Record<string, KernelInfo>): void {
    const warp = this.#device.properties.warpSize;
    const other = Object.values(kernels).find(({ warpSize }) => warpSize !== warp);
    if (other) throw KernelLookupError.warpSize(label, target, other.warpSize, warp);
  }

  #function(loaded: LoadedModule, name: string, params?: readonly ParamType[]): HipFunction {
    const known = loaded.functions.get(name);
    if (known) return known;
    const info = loaded.kernels[name];
    if (!info) throw KernelLookupError.noKernel(name, loaded.label, loaded.target, Object.keys(loaded.kernels));
    // A kernel without a signature has parameters of known width only, which `getFunction` refuses by name.
    const loadedFunction = loaded.moduleOf(name).getFunction(name, params ?? (info.params as readonly ParamType[]));
    loaded.functions.set(name, loadedFunction);
    this.#functionsLoaded++;
    return loadedFunction;
  }
}
