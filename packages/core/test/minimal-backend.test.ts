/**
 * The op suites on a backend that has the required operations and nothing else: what is composed of them gives what a
 * backend's own kernels give.
 */
import { OP_SUITES } from '@x/testing/core';
import { minimalBackend } from '@x/testing/minimal-backend';
import { Device, registerBackend } from '../src';

registerBackend({
  kind: 'cpu',
  list: () => ({ devices: [{ ordinal: 0, description: 'required operations only' }] }),
  open: (ordinal) => minimalBackend({ kind: 'cpu', ordinal }),
});

for (const suite of OP_SUITES) suite('cpu', () => Device.cpu());
