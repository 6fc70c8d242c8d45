/** candle-nn's tests and ours, one body each, on every device that is present. */
import { NN_SUITES } from '@x/testing/nn';
import { devices } from '@x/testing/nn/helpers';

for (const device of devices) for (const suite of NN_SUITES) suite(String(device), () => device);
