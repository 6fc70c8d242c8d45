/** candle-nn's tests and ours, one body each, on every device that is present. */

import { attentionSuite } from '@x/testing/nn/attention';
import { buildingSuite } from '@x/testing/nn/building';
import { gradientsSuite } from '@x/testing/nn/gradients';
import { devices } from '@x/testing/nn/helpers';
import { kvCacheSuite } from '@x/testing/nn/kv-cache';
import { lossSuite } from '@x/testing/nn/loss';
import { moeSuite } from '@x/testing/nn/moe';
import { normsSuite } from '@x/testing/nn/norms';
import { numbersSuite } from '@x/testing/nn/numbers';
import { opsSuite } from '@x/testing/nn/ops';
import { optimSuite } from '@x/testing/nn/optim';
import { rnnSuite } from '@x/testing/nn/rnn';
import { trainingSuite } from '@x/testing/nn/training';
import { varlenSuite } from '@x/testing/nn/varlen';

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
