/** Announces `rocm`, `cuda` and `cpu` to core's registry. Importing this package is what makes them available. */
import { type BackendProvider, DeviceError, registerBackend } from '@x/core';
import { HipError, type Platform, platforms } from '@x/hip';
import { KernelDevice } from './device';

function provider(kind: 'rocm' | 'cuda' | 'cpu', platform: Platform, module: string): BackendProvider {
  return {
    kind,
    module,
    list() {
      const report = platforms().find((entry) => entry.platform === platform)!;
      if (!report.available)
        return {
          devices: [],
          reason: [report.reason?.message, report.reason?.remedy].filter(Boolean).join('. '),
        };
      const devices = Array.from({ length: report.deviceCount }, (_, ordinal) => ({
        ordinal,
        description: `${platform} device ${ordinal}`,
      }));
      return { devices };
    },
    open(ordinal) {
      try {
        return KernelDevice.open(kind, ordinal);
      } catch (error) {
        if (error instanceof HipError)
          throw new DeviceError('DEVICE_UNAVAILABLE', `cannot open ${kind}:${ordinal}: ${error.message}`);
        throw error;
      }
    },
  };
}

/** Called once by the package's index. @param module its URL */
export function registerProviders(module: string): void {
  registerBackend(provider('rocm', 'rocm', module));
  registerBackend(provider('cuda', 'cuda', module));
  registerBackend(provider('cpu', 'host', module));
}
