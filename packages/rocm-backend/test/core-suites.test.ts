/** Core's op suites on every device with kernels: one body a behaviour, literal expected values. */
import { OP_SUITES } from '@x/testing/core';
import { kernelDevices } from '@x/testing/devices';

for (const device of kernelDevices()) for (const suite of OP_SUITES) suite(String(device), () => device);
