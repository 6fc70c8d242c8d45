/** Core's op suites on every device with kernels: one body a behaviour, literal expected values. */
import { OP_SUITES } from '../../core/test/suites';
import { kernelDevices } from './devices';

for (const device of kernelDevices()) for (const suite of OP_SUITES) suite(String(device), () => device);
