/** Random numbers of a device without kernels for them: made on the host, the same ones. */
import type { BackendDevice, RandomOps } from '../backend';
import { shared } from '../one-core';
import { HostRandom } from '../random';

const hosts = shared('random', () => new WeakMap<BackendDevice, RandomOps>());

/** The random stream of a device. */
export function randomOf(device: BackendDevice): RandomOps {
  if (device.random) return device.random;
  let own = hosts.get(device);
  if (!own) {
    own = new HostRandom(device);
    hosts.set(device, own);
  }
  return own;
}
