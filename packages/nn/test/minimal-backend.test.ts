/** The suites of modules on a backend that has the required operations and nothing else; core's test is of that name too. */
import { Device, registerBackend } from '@x/core';
import { minimalBackend } from '@x/testing/minimal-backend';
import { NN_SUITES } from '@x/testing/nn';

registerBackend({
  kind: 'cpu',
  list: () => ({ devices: [{ ordinal: 0, description: 'required operations only' }] }),
  open: (ordinal) => minimalBackend({ kind: 'cpu', ordinal }),
});

for (const suite of NN_SUITES) suite('cpu', () => Device.cpu());
