/** The op suites on the devices that core alone has. @x/rocm-backend runs the same suites on its own. */
import { Device } from '../src';
import { convSuite } from './suites/conv';
import { elementwiseSuite } from './suites/elementwise';
import { indexingSuite } from './suites/indexing';
import { poolSuite } from './suites/pool';
import { productsSuite } from './suites/products';
import { reduceSuite } from './suites/reduce';
import { sortSuite } from './suites/sort';
import { upsampleSuite } from './suites/upsample';
import { viewsSuite } from './suites/views';

for (const name of ['js', 'cpu']) {
  const device = () => Device.parse(name);
  elementwiseSuite(name, device);
  reduceSuite(name, device);
  indexingSuite(name, device);
  productsSuite(name, device);
  viewsSuite(name, device);
  convSuite(name, device);
  poolSuite(name, device);
  upsampleSuite(name, device);
  sortSuite(name, device);
}
