/**
 * Copies between devices of one platform without the host. What a driver says about its devices is not enough: peer access
 * over PCIe is known to be offered and to deliver wrong bytes (IOMMU settings, virtual machines). So the first copy between
 * two devices is of a known pattern, and where it does not arrive tensors go through the host.
 */
import { settings } from '@x/core';
import { HipError } from '@x/hip';
import { debug } from './debug';
import type { KernelDevice } from './device';

/** More than a page, and no multiple of one. */
const TRIAL_BYTES = 64 * 1024 + 8;

export class Peers {
  readonly #device: KernelDevice;
  /** Whether copies from a device arrive. */
  readonly #reached = new WeakMap<KernelDevice, boolean>();

  constructor(device: KernelDevice) {
    this.#device = device;
  }

  /** Whether this device can copy from memory of `source`. The first call for a device waits for both. */
  reaches(source: KernelDevice): boolean {
    if (!settings.peer()) return false;
    let reached = this.#reached.get(source);
    if (reached === undefined) {
      reached = this.#tried(source);
      this.#reached.set(source, reached);
    }
    return reached;
  }

  #tried(source: KernelDevice): boolean {
    const names = `${this.#device.name} from ${source.name}`;
    try {
      if (!this.#device.hip.reaches(source.hip)) {
        debug(1, () => `${names}: no access, copies go through the host`);
        return false;
      }
      const arrived = this.#tryCopy(source);
      debug(
        1,
        () => `${names}: ${arrived ? 'direct copies' : 'a direct copy arrived damaged, copies go through the host'}`,
      );
      return arrived;
    } catch (error) {
      if (!(error instanceof HipError)) throw error;
      debug(1, () => `${names}: ${error.message}; copies go through the host`);
      return false;
    }
  }

  #tryCopy(source: KernelDevice): boolean {
    const device = this.#device;
    const pattern = Uint8Array.from({ length: TRIAL_BYTES }, (_, i) => 1 + ((i * 31 + (i >> 8)) % 255));
    const back = new Uint8Array(TRIAL_BYTES);
    const src = source.malloc(TRIAL_BYTES);
    try {
      const dst = device.malloc(TRIAL_BYTES);
      try {
        source.hip.memcpyHtoD(src, pattern);
        device.hip.memcpyFrom(source.hip, dst, src, TRIAL_BYTES);
        device.hip.memcpyDtoHSync(back, dst);
      } finally {
        device.free(dst);
      }
    } finally {
      source.free(src);
    }
    return pattern.every((byte, i) => back[i] === byte);
  }
}
