/** Core's op suites on every device with kernels: one body a behaviour, literal expected values. */
import { convSuite } from '../../core/test/suites/conv';
import { elementwiseSuite } from '../../core/test/suites/elementwise';
import { indexingSuite } from '../../core/test/suites/indexing';
import { poolSuite } from '../../core/test/suites/pool';
import { productsSuite } from '../../core/test/suites/products';
import { reduceSuite } from '../../core/test/suites/reduce';
import { sortSuite } from '../../core/test/suites/sort';
import { upsampleSuite } from '../../core/test/suites/upsample';
import { viewsSuite } from '../../core/test/suites/views';
import { kernelDevices } from './devices';

for (const device of kernelDevices()) {
  for (const suite of [
    elementwiseSuite,
    reduceSuite,
    indexingSuite,
    productsSuite,
    viewsSuite,
    convSuite,
    poolSuite,
    upsampleSuite,
    sortSuite,
  ])
    suite(String(device), () => device);
}
