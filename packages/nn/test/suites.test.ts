/** candle-nn's tests and ours, one body each, on every device that is present. */
import { devices } from './helpers';
import { attentionSuite } from './suites/attention';
import { buildingSuite } from './suites/building';
import { gradientsSuite } from './suites/gradients';
import { kvCacheSuite } from './suites/kv-cache';
import { lossSuite } from './suites/loss';
import { moeSuite } from './suites/moe';
import { normsSuite } from './suites/norms';
import { numbersSuite } from './suites/numbers';
import { opsSuite } from './suites/ops';
import { optimSuite } from './suites/optim';
import { rnnSuite } from './suites/rnn';
import { trainingSuite } from './suites/training';
import { varlenSuite } from './suites/varlen';

const SUITES = [
  normsSuite,
  opsSuite,
  numbersSuite,
  lossSuite,
  kvCacheSuite,
  attentionSuite,
  varlenSuite,
  rnnSuite,
  optimSuite,
  buildingSuite,
  moeSuite,
  gradientsSuite,
  trainingSuite,
];

for (const device of devices) for (const suite of SUITES) suite(String(device), () => device);
