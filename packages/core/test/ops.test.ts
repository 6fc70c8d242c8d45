/**
 * The op suites on the reference device. Without @x/rocm-backend `cpu` is the same code under another name; the suites on
 * devices with kernels are in packages/rocm-backend/test/core-suites.test.ts.
 */
import { Device } from '../src';
import { OP_SUITES } from './suites';

for (const suite of OP_SUITES) suite('js', () => Device.js());
