/** candle's quantized tests on the plain device and on every device with kernels. */
import { Device } from '@x/core';
import { kernelDevices } from '@x/testing/devices';
import { matmulSuite } from '@x/testing/quantized/matmul';
import { quantizeSuite } from '@x/testing/quantized/quantize';

for (const device of [Device.js(), ...kernelDevices()]) {
  quantizeSuite(String(device), () => device);
  matmulSuite(String(device), () => device);
}
