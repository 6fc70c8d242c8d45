/**
 * The op suites on the reference device. Without @x/rocm-backend `cpu` is the same code under another name; the suites on
 * devices with kernels are in packages/rocm-backend/test/core-suites.test.ts.
 */

import { OP_SUITES } from '@x/testing/core';
import { Device } from '../src';

for (const suite of OP_SUITES) suite('js', () => Device.js());
