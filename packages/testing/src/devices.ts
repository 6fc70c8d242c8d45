/** The devices that the behaviour tests run on: every one that is present, or those named in X_TEST_DEVICES (`cpu,cuda:0`). */
import { Device } from '@x/core';
import '@x/rocm-backend';
import { testSettings } from './settings';

export function testDevices(): Device[] {
  const named = testSettings.devices;
  if (named) return named.map((name) => Device.parse(name));
  return Device.list()
    .filter((info) => info.available)
    .map((info) => Device.parse(info.name));
}

/** Devices with kernels: all but the TypeScript reference that they are compared with. */
export function kernelDevices(): Device[] {
  return testDevices().filter((device) => device.location.kind !== 'js');
}
