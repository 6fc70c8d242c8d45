// Every error that reaches a user is a CandleError with a code, whichever package it comes from and however it was loaded.
import { fileURLToPath } from 'node:url';
import { CandleError, ShapeError } from '@x/core';
import { HipError } from '@x/hip';
import { KernelError } from '@x/kernels';
import { KernelLookupError } from '@x/rocm-backend';
import { bundled } from '@x/testing/bundle';
import { TransformersError } from '@x/transformers';
import { expect, test } from 'vitest';

test('errors of all packages are CandleErrors with a code', () => {
  const errors = [
    new ShapeError('INVALID_SHAPE', 'a'),
    new TransformersError('BAD_CONFIG', 'b'),
    new HipError('NO_DEVICE', 'c'),
    new KernelError('KERNEL_TARGET_MISSING', 'd'),
    new KernelLookupError('KERNEL_NOT_FOUND', 'e'),
  ];
  for (const error of errors) {
    expect(error).toBeInstanceOf(CandleError);
    expect(error).toBeInstanceOf(Error);
    expect(error.code).toMatch(/^[A-Z_]+$/);
    expect(error.name).toBe(error.constructor.name);
    expect(Object.keys(error)).not.toContain('x.candle.error');
  }
});

test('others are not, and subclasses tell their own', () => {
  for (const other of [new Error('a'), null, undefined, 5, 'CandleError', {}, { name: 'CandleError', code: 'X' }])
    expect(other instanceof CandleError).toBe(false);
  expect(new TransformersError('BAD_CONFIG', 'b') instanceof ShapeError).toBe(false);
  expect(new HipError('NO_DEVICE', 'c') instanceof ShapeError).toBe(false);
});

test('those of another copy of core are', async () => {
  const { core } = bundled({ core: fileURLToPath(new URL('../../core/src/index.ts', import.meta.url)) });
  const copy: typeof import('@x/core') = await import(core);
  expect(copy.CandleError).not.toBe(CandleError);
  expect(new copy.ShapeError('INVALID_SHAPE', 'a')).toBeInstanceOf(CandleError);
});
