/** The code objects of every host level that is built and that this CPU runs give the same bits: only their speed differs. */
import { readFileSync } from 'node:fs';
import { QUANTIZED } from '@x/kernels';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { blockFormat } from '../../quantized/src/blocks';
import { BLOCK_TYPES, randomBlocks } from '../../quantized/test/suites/random-blocks';
import { RocmDevice } from '../src/index';
import { kernelDevices } from './devices';

/** x86-64-v2 is not among them: it rounds products before it adds them. */
const FEATURES = {
  'x86-64-v3': 'avx2',
  'x86-64-v3-vnni': 'avx_vnni',
  'x86-64-v4': 'avx512bw',
  'x86-64-v4-vnni': 'avx512_vnni',
};

const hasCpu = kernelDevices().some((device) => device.location.kind === 'cpu');
const flags = process.arch === 'x64' ? (/^flags\s*:(.*)$/m.exec(readFileSync('/proc/cpuinfo', 'utf8'))?.[1] ?? '') : '';
const levels = Object.entries(FEATURES)
  .filter(([, feature]) => flags.split(' ').includes(feature))
  .flatMap(([level]) => QUANTIZED.codeObject(level) ?? []);

describe.runIf(hasCpu && levels.length > 1)(`quantized products of ${levels.map(({ target }) => target)}`, () => {
  let device: RocmDevice;
  beforeAll(() => {
    device = RocmDevice.open('cpu', 0);
  });
  afterAll(() => device.dispose());

  // Products of 1, 4 and 8 columns, and columns that end within a step where a format's may.
  it.each(BLOCK_TYPES)('%s', (type) => {
    const [m, n, padded] = [13, 37, 2560];
    const k = blockFormat(type).blockSize === 256 ? padded : padded - 192;
    const weight = device.fromHost(randomBlocks(type, (n * k) / blockFormat(type).blockSize, 3), 'u8');
    const x = device.randUniform(m * k, 'f32', -1, 1);
    const columns = device.zeros((m * padded * 36) / 32, 'u8');
    const rows = { grid: [padded / 256, m, 1], block: 256 } as const;
    device.launch(QUANTIZED, 'quantize_q8_1', rows, [x.ptr, columns.ptr, k, padded]);
    const results = levels.map(({ bytes, kernels }) => {
      const name = `mul_mat_${type}`;
      using module = device.hip.loadModule(bytes);
      const y = device.zeros(m * n, 'f32');
      const args = [weight.ptr, columns.ptr, y.ptr, k, n, m, padded, n];
      module.getFunction(name, kernels[name].params as never).launch(3, 1, 0, args);
      const got = Buffer.from(y.toHostSync());
      y.dispose();
      return got;
    });
    for (const storage of [weight, x, columns]) storage.dispose();
    expect(new Float32Array(results[0].buffer, results[0].byteOffset, m * n).some((value) => value !== 0)).toBe(true);
    expect(results.map((got) => got.equals(results[0]))).toEqual(levels.map(() => true));
  });
});
