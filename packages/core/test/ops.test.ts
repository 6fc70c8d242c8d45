/** The op suites on the devices that core alone has. @x/rocm-backend runs the same suites on its own. */
import { Device } from '../src';
import { elementwiseSuite } from './suites/elementwise';
import { indexingSuite } from './suites/indexing';
import { productsSuite } from './suites/products';
import { reduceSuite } from './suites/reduce';
import { viewsSuite } from './suites/views';

for (const name of ['js', 'cpu']) {
  const device = () => Device.parse(name);
  elementwiseSuite(name, device);
  reduceSuite(name, device);
  indexingSuite(name, device);
  productsSuite(name, device);
  viewsSuite(name, device);
}
