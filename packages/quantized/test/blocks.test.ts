/** Every block type on the plain device and on every device with kernels. */
import { Device } from '@x/core';
import { kernelDevices } from '@x/testing/devices';
import { blockSuite } from '@x/testing/quantized/blocks';

for (const device of [Device.js(), ...kernelDevices()]) blockSuite(String(device), () => device);
