/**
 * For test files that share a process: each begins with closed devices and the same backends, for the first one to open `cpu` would
 * decide for all whose it is.
 */
import { Device, registeredBackends } from '@x/core';
import { afterAll, expect } from 'vitest';

const backends = registeredBackends();

afterAll(() => {
  for (const { name, available } of Device.list()) if (available) Device.parse(name).dispose();
  expect(registeredBackends(), 'backends that this file has added: see tools/test/projects.ts').toEqual(backends);
});
