/** Announces `rocm`, `cuda` and `cpu` to core's registry. Importing this package is what makes them available. */
import { type BackendProvider, registerBackend } from '@x/core';
import { type PlatformName, platforms } from '@x/hip';
import { RocmDevice } from './device';

function provider(kind: 'rocm' | 'cuda' | 'cpu', platform: PlatformName): BackendProvider {
  return {
    kind,
    list() {
      const report = platforms().find((entry) => entry.platform === platform)!;
      if (!report.available) return { devices: [], reason: `${report.reason?.message ?? 'not available'} ${report.reason?.remedy ?? ''}`.trim() };
      const devices = Array.from({ length: report.deviceCount }, (_, ordinal) => ({ ordinal, description: `${platform} device ${ordinal}` }));
      return { devices };
    },
    open: (ordinal) => RocmDevice.open(kind, ordinal),
  };
}

/** Called once by the package's index. */
export function registerProviders(): void {
  registerBackend(provider('rocm', 'rocm'));
  registerBackend(provider('cuda', 'cuda'));
  registerBackend(provider('cpu', 'host'));
}
