/** Core's op suites on every device with kernels: one body a behaviour, literal expected values. */
import { elementwiseSuite } from '../../core/test/suites/elementwise';
import { indexingSuite } from '../../core/test/suites/indexing';
import { productsSuite } from '../../core/test/suites/products';
import { reduceSuite } from '../../core/test/suites/reduce';
import { viewsSuite } from '../../core/test/suites/views';
import { kernelDevices } from './devices';

for (const device of kernelDevices()) {
  for (const suite of [elementwiseSuite, reduceSuite, indexingSuite, productsSuite, viewsSuite])
    suite(String(device), () => device);
}
