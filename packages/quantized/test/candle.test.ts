/** candle's quantized tests on the plain device and on every device with kernels. */
import { Device } from '@x/core';
import { kernelDevices } from '../../rocm-backend/test/devices';
import { matmulSuite } from './suites/matmul';
import { quantizeSuite } from './suites/quantize';

for (const device of [Device.js(), ...kernelDevices()]) {
  quantizeSuite(String(device), () => device);
  matmulSuite(String(device), () => device);
}
