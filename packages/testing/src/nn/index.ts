/** candle-nn's tests and ours as suites over devices: one body a behaviour. */
import { attentionSuite } from './attention';
import { buildingSuite } from './building';
import { edgesSuite } from './edges';
import { gradientsSuite } from './gradients';
import { kvCacheSuite } from './kv-cache';
import { lossSuite } from './loss';
import { moeSuite } from './moe';
import { normsSuite } from './norms';
import { numbersSuite } from './numbers';
import { opsSuite } from './ops';
import { optimSuite } from './optim';
import { rnnSuite } from './rnn';
import { trainingSuite } from './training';
import { varlenSuite } from './varlen';

export const NN_SUITES = [
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
  edgesSuite,
  trainingSuite,
];
