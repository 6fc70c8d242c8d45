/** Every block type on the plain device and on every device with kernels. */
import { Device } from '@x/core';
import { kernelDevices } from '../../rocm-backend/test/devices';
import { blockSuite } from './suites/blocks';

for (const device of [Device.js(), ...kernelDevices()]) blockSuite(String(device), () => device);
