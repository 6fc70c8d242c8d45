/** A backend as small as one may be: the required operations of the plain one, without any capability. */
import { type BackendDevice, type DeviceLocation, JsDevice } from '@x/core';

/** What {@link BackendDevice} requires. `Required` by name: a capability that is added is none of them. */
const REQUIRED: ReadonlySet<PropertyKey> = new Set<keyof BackendDevice>([
  'location',
  'description',
  'ops',
  'allocUninit',
  'zeros',
  'fromHost',
  'write',
  'synchronize',
  'synchronizeSync',
  'memory',
  'emptyCache',
  'dispose',
]);

export function minimalBackend(location: DeviceLocation): BackendDevice {
  const device = new JsDevice(location, 'required operations only');
  return new Proxy<BackendDevice>(device, {
    get(target, key) {
      if (!REQUIRED.has(key)) return undefined;
      const value: unknown = Reflect.get(target, key, target);
      return typeof value === 'function' ? value.bind(target) : value;
    },
  });
}
