// cuDNN through a stand-in that has exactly its C interface, on a stand-in for libcuda: what the addon really passes to it,
// from a device's convolutions down, without an NVIDIA GPU.
import { beforeAll, describe, expect, test } from 'vitest';
import { buildFakeCudnn, EVERY_CONVOLUTION, preludeFor, runOnFakes } from './fake-libraries';

const PRELUDE = preludeFor('cuda');
const NO_KERNELS = { X_KERNEL_DIR: '/nowhere', X_CACHE_DIR: '/nowhere' };

/** The algorithms of one shape: f16, bf16, f32 in TF32, f32, and f16 transposed. */
const CHOICES = `
const cudnn = hip.openDevice('cuda').openConvolution('cudnn');
const shape = { type: 'f16', transposed: false, x: [2, 3, 9, 10], filter: [4, 3, 3, 3], y: [2, 4, 9, 10], padding: [1, 1], stride: [1, 1], dilation: [1, 1] };
const back = { ...shape, transposed: true, x: shape.y, y: shape.x };
return [shape, { ...shape, type: 'bf16' }, { ...shape, type: 'f32', reduced: true }, { ...shape, type: 'f32' }, back]
  .map((each) => cudnn.plan(each)).map(({ algorithm, workspaceBytes }) => [algorithm, workspaceBytes]);`;

interface Convolved {
  worst: number;
  launches: number;
  library: number;
  live: number;
}

function expectAllRight({ value, log }: { value: Convolved; log: string[] }): void {
  expect(value.worst).toBeGreaterThanOrEqual(0);
  expect(value.worst).toBeLessThan(0.26);
  expect(value).toMatchObject({ launches: 0, library: 48, live: 0 });
  expect(log.filter((line) => line.startsWith('forward'))).toHaveLength(24);
  expect(log.filter((line) => line.startsWith('backward'))).toHaveLength(24);
  expect(log.at(-1)).toBe('destroy, left over 0');
}

describe('cuDNN with operation graphs', () => {
  let fake: Record<string, string>;
  beforeAll(() => {
    fake = buildFakeCudnn();
  });

  test('is found and reported', () => {
    const { value } = runOnFakes<{ name: string; available: boolean; library: string; version: string }[]>(
      undefined,
      "return hip.openDevice('cuda').libraries();",
      fake,
    );
    const report = value.find(({ name }) => name === 'cudnn');
    expect(report).toMatchObject({ available: true, library: fake.X_CUDNN_LIBRARY, version: '9.14.0' });
  });

  test('convolves in one and two dimensions and both directions', () => {
    const run = runOnFakes<Convolved>(
      undefined,
      `${PRELUDE} const device = open({ convolution: 'library' }); ${EVERY_CONVOLUTION}`,
      fake,
    );
    expectAllRight(run);
    // Tensor cores are for f16 and bf16; the fallback list has what plain f32 may use, which is TF32 otherwise.
    expect(run.log.filter((line) => line.endsWith('engine 15'))).toHaveLength(32);
    expect(run.log.filter((line) => line.endsWith('engine 28'))).toHaveLength(16);
  });

  test('takes the first configuration that is deterministic, exact enough, small and can be planned', () => {
    const { value } = runOnFakes<[string, number][]>(undefined, CHOICES, fake);
    expect(value).toEqual([
      ['engine 15 (2=20, 3=30)', 1000],
      ['engine 15 (2=20, 3=30)', 1000],
      ['engine 15 (2=20, 3=30)', 1000],
      ['engine 28 (2=20, 3=30)', 4608],
      ['engine 15 (2=20, 3=30)', 1000],
    ]);
  });

  test('convolves what has its channels innermost', () => {
    const { value } = runOnFakes<{ first: number[]; last: number[] }>(
      undefined,
      `const device = hip.openDevice('cuda');
      const cudnn = device.openConvolution('cudnn');
      const sizes = { x: [2, 3, 4, 5], filter: [4, 3, 2, 3], y: [2, 4, 3, 3] };
      const shape = { type: 'f32', transposed: false, reduced: true, ...sizes, padding: [0, 0], stride: [1, 1], dilation: [1, 1] };
      const count = (dims) => dims.reduce((a, b) => a * b);
      const data = { x: Float32Array.from({ length: count(sizes.x) }, (_, i) => i % 7), filter: Float32Array.from({ length: count(sizes.filter) }, (_, i) => i % 5) };
      // From [n, c, h, w] to [n, h, w, c], or back.
      const turn = (from, [n, c, h, w], back) => from.map((_, at) => {
        const [inner, rows] = back ? [h * w, c] : [c, h * w];
        const [i, rest] = [at % inner, Math.floor(at / inner)];
        return from[(Math.floor(rest / rows) * inner + i) * rows + (rest % rows)];
      });
      const run = (channelsLast) => {
        const plan = cudnn.plan({ ...shape, channelsLast });
        const [x, filter, y] = ['x', 'filter', 'y'].map((name) => device.alloc(4 * count(sizes[name])));
        const workspace = device.alloc(plan.workspaceBytes);
        for (const [ptr, name] of [[x, 'x'], [filter, 'filter']])
          device.memcpyHtoD(ptr, channelsLast ? turn(data[name], sizes[name]) : data[name]);
        cudnn.run(plan, x, filter, y, workspace);
        const out = new Float32Array(count(sizes.y));
        device.memcpyDtoHSync(out, y);
        return Array.from(channelsLast ? turn(out, sizes.y, true) : out);
      };
      return { first: run(false), last: run(true) };`,
      fake,
    );
    expect(value.first.some((sum) => sum !== 0)).toBe(true);
    expect(value.last).toEqual(value.first);
  });

  test('refuses addresses that cuDNN was not told of', () => {
    const { value, log } = runOnFakes<string[]>(
      undefined,
      `const device = hip.openDevice('cuda');
      const cudnn = device.openConvolution('cudnn');
      const plan = cudnn.plan({ type: 'f16', transposed: false, x: [1, 1, 4, 4], filter: [1, 1, 1, 1], y: [1, 1, 4, 4], padding: [0, 0], stride: [1, 1], dilation: [1, 1] });
      const memory = device.alloc(4096);
      const codes = [];
      for (const [x, w, y] of [[2, 256, 512], [0, 264, 512], [0, 256, 514], [16, 256, 512]]) {
        try { cudnn.run(plan, memory + x, memory + w, memory + y, memory + 1024); codes.push('none'); } catch (e) { codes.push(e.code); }
      }
      return codes;`,
      fake,
    );
    expect(value).toEqual(['INVALID_ARGUMENT', 'INVALID_ARGUMENT', 'INVALID_ARGUMENT', 'none']);
    expect(log).toEqual(['forward, engine 15', 'destroy, left over 0']);
  });
});

describe('cuDNN without a plan of a graph', () => {
  const algorithms = [
    ['algorithm 1, math 1', 1000],
    ['algorithm 1, math 1', 1000],
    ['algorithm 1, math 1', 1000],
    ['algorithm 1, math 3', 1000],
    ['algorithm 1, math 1', 1000],
  ];

  test('whose library lacks the functions goes through the descriptors of version 7', () => {
    const fake = buildFakeCudnn(['-DFAKE_WITHOUT_GRAPHS']);
    const run = runOnFakes<Convolved>(
      undefined,
      `${PRELUDE} const device = open({ convolution: 'library' }); ${EVERY_CONVOLUTION}`,
      fake,
    );
    expectAllRight(run);
    expect(run.log.filter((line) => line.endsWith('descriptors tensor'))).toHaveLength(32);
    expect(run.log.filter((line) => line.endsWith('descriptors fma'))).toHaveLength(16);
    expect(runOnFakes(undefined, CHOICES, fake).value).toEqual(algorithms);
  });

  test('which alone takes channels innermost, convolves them as they are', () => {
    const body = `${PRELUDE}
      const device = open({ convolution: 'cudnn' });
      const p = { b: 1, cIn: 8, cOut: 8, groups: 1, hIn: 5, wIn: 5, kH: 3, kW: 3, hOut: 3, wOut: 3, padding: 0, stride: 1, dilation: 1 };
      return both(device, 'f16', [200, 576], ([s, w]) => s.device.conv.conv2d({ storage: s, layout: Layout.contiguous([1, 8, 5, 5]) }, { storage: w, layout: Layout.contiguous([8, 8, 3, 3]) }, p));`;
    const { value, log } = runOnFakes<number>(undefined, body, buildFakeCudnn(['-DFAKE_WITHOUT_GRAPHS']));
    expect(value).toBeGreaterThanOrEqual(0);
    expect(value).toBeLessThan(0.26);
    expect(log.filter((line) => line.startsWith('forward'))).toHaveLength(1);
  });

  test('whose engines take none of our shapes does too, and has an error when that has nothing either', () => {
    const fake = buildFakeCudnn();
    expect(runOnFakes(undefined, CHOICES, { ...fake, FAKE_CUDNN: 'noplan' }).value).toEqual(algorithms);
    const { value } = runOnFakes<{ code: string; message: string }>(
      undefined,
      `${PRELUDE}
      const device = open({ convolution: 'cudnn' });
      const [x, w] = [device.fromHost(random(75), 'f32'), device.fromHost(random(27), 'f32')];
      const p = { b: 1, cIn: 3, cOut: 1, groups: 1, hIn: 5, wIn: 5, kH: 3, kW: 3, hOut: 3, wOut: 3, padding: 0, stride: 1, dilation: 1 };
      return caught(() => device.conv.conv2d({ storage: x, layout: Layout.contiguous([1, 3, 5, 5]) }, { storage: w, layout: Layout.contiguous([1, 3, 3, 3]) }, p));`,
      { ...fake, ...NO_KERNELS, FAKE_CUDNN: 'none' },
    );
    expect(value.code).toBe('LIBRARY_ERROR');
    expect(value.message).toContain('no algorithm');
    expect(value.message).toContain('a f32 convolution of [1, 3, 5, 5] with [1, 3, 3, 3] to [1, 1, 3, 3]');
  });
});
