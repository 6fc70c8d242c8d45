/** The backends that packages offer, by the kind of their devices: a package registers a provider when it is imported. */
import type { BackendProvider, DeviceLocation } from './backend';
import { check, type Kind, kind } from './check';
import { DeviceError } from './errors';
import { JsDevice } from './js/device';
import { shared } from './one-core';
import { ifNode, warn } from './platform';

/** `js`: plain TypeScript; `cpu`: kernels where a package has them, else the same; `rocm`, `cuda`: GPUs. */
export type DeviceKind = DeviceLocation['kind'];

export const KINDS: readonly DeviceKind[] = ['js', 'cpu', 'rocm', 'cuda'];
export const KIND: Kind = kind(
  (value) => KINDS.includes(value as DeviceKind),
  `use one of ${KINDS.join(', ')}`,
  (message) => new DeviceError('DEVICE_UNKNOWN', message),
);
export const GPU_PACKAGE = '@x/rocm-backend';
const providers = shared('backends', () => new Map<DeviceKind, BackendProvider>());

/** Offers the devices of one kind; a later registration of the same kind replaces an earlier one for devices not yet open. */
export function registerBackend(provider: BackendProvider): void {
  check('registerBackend', 'kind', provider?.kind, KIND);
  providers.set(provider.kind, provider);
}

/** The kinds that a backend package has registered; `js`, and `cpu` where no package has one, are built in. */
export function registeredBackends(): DeviceKind[] {
  return [...providers.keys()];
}

/** URLs of the modules whose import registers the backends that are registered here, for another thread to import. */
export function backendModules(): string[] {
  return [...new Set([...providers.values()].flatMap(({ module }) => module ?? []))];
}

/** The plain TypeScript backend under a name; `why` it takes the place of a package's backend that has no device here. */
function builtIn(kind: 'js' | 'cpu', why?: string): BackendProvider {
  const description = why ? `plain TypeScript on the CPU, because ${why}` : 'plain TypeScript on the CPU';
  return {
    kind,
    list: () => ({ devices: [{ ordinal: 0, description }] }),
    open: () => {
      if (why) warnOfFallback(why);
      return new JsDevice({ kind, ordinal: 0 }, description);
    },
  };
}

/** The backend of a kind. `cpu` is there on every machine: where a package's own kernels cannot run, in TypeScript. */
export function providerOf(kind: DeviceKind): BackendProvider | undefined {
  const provider = providers.get(kind);
  if (kind === 'rocm' || kind === 'cuda') return provider;
  if (!provider) return builtIn(kind);
  const { devices, reason } = provider.list();
  return devices.length > 0 ? provider : builtIn(kind, reason ?? 'its backend has no device');
}

const FALLBACK_WARNED = 'x.core.fallback-warned';

/** Once a process: environment data is shared by the ESM and the CommonJS build, and inherited by worker threads. */
function warnOfFallback(why: string): void {
  const threads = ifNode('worker_threads');
  if (threads?.getEnvironmentData(FALLBACK_WARNED)) return;
  threads?.setEnvironmentData(FALLBACK_WARNED, true);
  warn(
    `Device.cpu() computes in plain TypeScript, many times slower than with its compiled kernels, because ${why}`,
    'CPU_WITHOUT_KERNELS',
  );
}

/** Why there is no device of a kind that has no backend, for messages. */
export function missing(kind: DeviceKind): string {
  return `no backend for ${kind} devices is loaded; install ${GPU_PACKAGE} and import it (import '${GPU_PACKAGE}') before asking for one`;
}
