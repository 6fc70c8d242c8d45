/** candle-nn's tests and ours, one body each, on every device that is present. */
import { NN_SUITES } from '@x/testing/nn';
import { deviceNames, openDevice } from '@x/testing/nn/helpers';

for (const name of deviceNames) for (const suite of NN_SUITES) suite(name, () => openDevice(name));
