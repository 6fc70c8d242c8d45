/**
 * The op suites: each a function of a device's name and the device. Files carry the names of candle's test files
 * (`tensor_tests` in several, by family), titles those of its test functions: `tensor_tests::narrow`.
 */
import type { Device } from '@x/core';
import { accessSuite } from './access';
import { argumentsSuite } from './arguments';
import { bilinearSuite } from './bilinear';
import { captureSuite } from './capture';
import { convSuite } from './conv';
import { customOpSuite } from './custom-op';
import { edgesSuite } from './edges';
import { fusedSuite } from './fused';
import { gradSuite } from './grad';
import { inPlaceSuite } from './in-place';
import { layoutSuite } from './layout';
import { matmulSuite } from './matmul';
import { numbersSuite } from './numbers';
import { poolSuite } from './pool';
import { tensorComparingSuite } from './tensor-comparing';
import { tensorCreationSuite } from './tensor-creation';
import { tensorDevicesSuite } from './tensor-devices';
import { tensorElementwiseSuite } from './tensor-elementwise';
import { tensorEmptySuite } from './tensor-empty';
import { tensorIdsSuite } from './tensor-ids';
import { tensorIndexingSuite } from './tensor-indexing';
import { tensorJoiningSuite } from './tensor-joining';
import { tensorReducingSuite } from './tensor-reducing';
import { tensorSortingSuite } from './tensor-sorting';
import { tensorSumsSuite } from './tensor-sums';
import { tensorViewsSuite } from './tensor-views';
import { writingSuite } from './writing';

export type OpSuite = (name: string, device: () => Device) => void;

export const OP_SUITES: readonly OpSuite[] = [
  tensorCreationSuite,
  tensorViewsSuite,
  tensorJoiningSuite,
  tensorElementwiseSuite,
  tensorComparingSuite,
  tensorReducingSuite,
  tensorSumsSuite,
  tensorIndexingSuite,
  tensorIdsSuite,
  tensorSortingSuite,
  tensorEmptySuite,
  tensorDevicesSuite,
  accessSuite,
  layoutSuite,
  matmulSuite,
  fusedSuite,
  convSuite,
  poolSuite,
  bilinearSuite,
  gradSuite,
  numbersSuite,
  customOpSuite,
  argumentsSuite,
  edgesSuite,
  inPlaceSuite,
  writingSuite,
  captureSuite,
];
