// Kernels that may begin before the one launched ahead of them has ended, on a stand-in for libcuda: which of them the driver
// is asked that for. The mark is KERNEL_EARLY's (kernels/include/x/early.h).
import { expect, test } from 'vitest';
import { buildFakeCudnn, runOnFakes } from './fake-libraries';

test('only kernels that are marked may begin early', () => {
  const { value } = runOnFakes<number[][]>(
    undefined,
    `const device = hip.openDevice('cuda');
    const text = \`.version 8.0
.target sm_90a
.address_size 64
.visible .const .align 1 .u8 x_early_marked = 1;
.visible .entry plain(.param .u64 .ptr a) { ret; }
.visible .entry marked(.param .u64 .ptr a) { ret; }
\`;
    const module = device.loadModule(new TextEncoder().encode(text));
    const noted = device.alloc(8);
    return ['plain', 'marked'].map((name) => {
      module.getFunction(name, ['ptr']).launch(7, 32, 0, [noted]);
      const words = new Uint32Array(2);
      device.memcpyDtoHSync(words, noted);
      return [...words];
    });`,
    buildFakeCudnn(),
  );
  expect(value).toEqual([
    [1, 7],
    [2, 7],
  ]);
});
