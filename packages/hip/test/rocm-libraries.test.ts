// rocBLAS, hipBLASLt and MIOpen through stand-ins that have exactly their C interfaces: what the addon really passes to them,
// from a device's matmul and convolutions down, without an AMD GPU. And that the addon declares these and cuDNN as they are.
import { readFileSync } from 'node:fs';
import { beforeAll, describe, expect, test } from 'vitest';
import { buildFakes, EVERY_CONVOLUTION, type FakeLibrary, preludeFor, runOnFakes } from './fake-libraries';
import { LIBRARY_SIGNATURES } from './library-signatures';

const LIBRARIES = Object.keys(LIBRARY_SIGNATURES) as FakeLibrary[];

describe.each(LIBRARIES)('the addon declares %s as its headers do', (library) => {
  const { functions, types, enums, structs } = LIBRARY_SIGNATURES[library];
  const source = readFileSync(new URL(`../native/${library}_api.h`, import.meta.url), 'utf8').replace(/\/\/.*/g, '');
  const structNames = [...(structs ?? '').matchAll(/struct (\w+)/g)].map((match) => match[1]);
  // What a type is to the ABI: pointers to handles and pointers to pointers keep their depth, const says nothing.
  const abi = (type: string): string => {
    const bare = type.replace(/\bconst\b/g, '').replace(/\s+/g, '');
    const [, base, stars] = /^(\w+)(\**)$/.exec(bare)!;
    const known = types[base];
    return known ? abi(`${known}${stars}`) : `${base === 'int' ? 'int32_t' : base}${stars}`;
  };
  // A parameter of ours is its type and a name, of which the name may be missing.
  const declared = (parameter: string) => {
    const words = parameter.trim().replace(/\*/g, '* ').replace(/\s+/g, ' ');
    return abi(words.replace(/ \w+$/, '').replace(/ \* ?/g, '*'));
  };

  test.each(functions.map(({ name }) => name))('%s', (name) => {
    const { returns, params, versions } = functions.find((signature) => signature.name === name)!;
    const found = new RegExp(`([\\w ]+\\*?) ?\\(\\*${name}\\)\\(([^;]*)\\);`).exec(source);
    expect(found, `${name} in native/${library}_api.h`).not.toBeNull();
    expect(abi(found![1])).toBe(abi(returns));
    expect(found![2].split(',').filter(Boolean).map(declared)).toEqual(params.map(abi));
    expect(versions[0]).toMatch(/^[2-9]\.\d+$/);
  });

  test('declares nothing else, and the same numbers and structs', () => {
    const pointers = [...source.matchAll(/\(\*(\w+)\)\(/g)].map((match) => match[1]);
    expect(pointers.sort()).toEqual(functions.map(({ name }) => name).sort());
    const numbers = new Set(Object.values(enums));
    for (const [, name, value] of source.matchAll(/\b(k\w+) = (\d+)/g)) {
      if (!/^k(FirstVersion|Max\w+)$/.test(name))
        expect(numbers, `${name} in native/${library}_api.h`).toContain(Number(value));
    }
    for (const name of structNames) expect(source).toMatch(new RegExp(`struct ${name} \\{`));
  });
});

const NO_KERNELS = { X_KERNEL_DIR: '/nowhere', X_CACHE_DIR: '/nowhere' };

const PRELUDE = preludeFor('rocm');

describe('rocBLAS', () => {
  let hip: string;
  beforeAll(() => {
    hip = buildFakes(['rocblas']);
  });

  test('is found beside the HIP runtime and reported', () => {
    const { value } = runOnFakes<{ library: string; version: string; available: boolean }[]>(
      hip,
      "return hip.openDevice('rocm').libraries();",
    );
    expect(value.map((report) => report.available)).toEqual([true, false, false, false]);
    expect(value[0].library).toBe(hip.replace('libamdhip64', 'librocblas'));
    expect(value[0].version).toBe('4.2.1.fake');
  });

  test('multiplies every dtype, row-major, transposed, narrowed and broadcast', () => {
    const { value, log } = runOnFakes<{ worst: number; launches: number; library: number }>(
      hip,
      `${PRELUDE}
      const device = open();
      const [b, m, n, k] = [3, 4, 5, 6];
      const lefts = [Layout.contiguous([b, m, k]), Layout.contiguous([b, k, m]).transpose(1, 2), Layout.contiguous([b, m, k + 2]).narrow(2, 1, k), Layout.contiguous([1, m, k]).broadcastAs([b, m, k])];
      const rights = [Layout.contiguous([b, k, n]), Layout.contiguous([b, n, k]).transpose(1, 2), Layout.contiguous([n, k]).transpose(0, 1).broadcastAs([b, k, n])];
      let worst = 0;
      for (const dtype of ['f32', 'f64', 'f16', 'bf16']) for (const l of lefts) for (const r of rights)
        worst = Math.max(worst, both(device, dtype, [200, 200], ([x, y]) => x.device.ops.matmul({ storage: x, layout: l }, { storage: y, layout: r }, { b, m, n, k })));
      const { launch, library } = device.hip.counters();
      device.dispose();
      return { worst, launches: launch, library };`,
    );
    // Quarters up to 2: every sum of six products is exact in all four dtypes but bf16.
    expect(value.worst).toBeLessThan(0.07);
    expect(value).toMatchObject({ launches: 0, library: 48 });
    const gemms = log.filter((line) => line.startsWith('gemm'));
    expect(gemms).toHaveLength(48);
    // out^T [5, 4] = rhs^T lhs^T: the operands have changed places, f32 is 151.
    expect(gemms[0]).toBe('gemm 151 NN m5 n4 k6 lda5/30 ldb6/24 ldc5/20 x3');
    expect(gemms[1]).toBe('gemm 151 TN m5 n4 k6 lda6/30 ldb6/24 ldc5/20 x3');
    expect(gemms[2]).toBe('gemm 151 TN m5 n4 k6 lda6/0 ldb6/24 ldc5/20 x3');
    expect(gemms[3]).toBe('gemm 151 NT m5 n4 k6 lda5/30 ldb4/24 ldc5/20 x3');
    expect(gemms[6]).toBe('gemm 151 NN m5 n4 k6 lda5/30 ldb8/32 ldc5/20 x3');
    expect(gemms[12]).toBe('gemm 152 NN m5 n4 k6 lda5/30 ldb6/24 ldc5/20 x3');
    expect(log.slice(0, 3)).toEqual(['create 1', 'workspace 33554432', 'stream']);
    expect(log.at(-1)).toBe('destroy 0');
  });

  test('one handle a device, made when first needed, its stream set again when that changes', () => {
    const { value, log } = runOnFakes<number[]>(
      hip,
      `const device = hip.openDevice('rocm');
      const same = device.openBlas('rocblas') === device.openBlas('rocblas');
      const blas = device.openBlas('rocblas');
      const workspace = device.alloc(4096);
      blas.setWorkspace(workspace, 4096);
      const x = device.alloc(64);
      const matrix = { ptr: x, transposed: false, ld: 1, batchStride: 0 };
      const run = (stream) => blas.gemm({ type: 'f32', batch: 1, m: 1, n: 1, k: 1, lhs: matrix, rhs: matrix, out: x + 32 }, stream);
      const other = device.createStream();
      run(); run(); run(other); run(other); run();
      device.dispose();
      return [same];`,
    );
    expect(value).toEqual([true]);
    expect(log.filter((line) => line === 'stream')).toHaveLength(3);
    expect(log.filter((line) => /create|destroy/.test(line))).toEqual(['create 1', 'destroy 0']);
  });

  test('changing the choice back and forth keeps one handle and one workspace', () => {
    const { value, log } = runOnFakes<number[]>(
      hip,
      `${PRELUDE}
      const device = open();
      const x = device.fromHost(random(64), 'f32');
      const square = Layout.contiguous([1, 8, 8]);
      const mallocs = [];
      for (const choice of ['library', 'kernels', 'rocblas', 'auto', 'library']) {
        device.gemm = choice;
        if (choice !== 'kernels') x.device.ops.matmul({ storage: x, layout: square }, { storage: x, layout: square }, { b: 1, m: 8, n: 8, k: 8 }).dispose();
        mallocs.push(device.hip.counters().malloc);
      }
      device.dispose();
      return mallocs;`,
    );
    expect(new Set(value).size).toBe(1);
    expect(log.filter((line) => /create|workspace/.test(line))).toEqual(['create 1', 'workspace 33554432']);
  });

  test('a refusal is an error with its name when asked for, and kernels by auto', () => {
    const body = `${PRELUDE}
      const device = open({ gemm: CHOICE });
      const x = device.fromHost(random(64), 'f32');
      const square = Layout.contiguous([1, 8, 8]);
      const error = caught(() => x.device.ops.matmul({ storage: x, layout: square }, { storage: x, layout: square }, { b: 1, m: 8, n: 8, k: 8 }));
      return { ...error, launches: device.hip.counters().launch };`;
    const forced = runOnFakes<Record<string, unknown>>(hip, body.replace('CHOICE', "'rocblas'"), {
      FAKE_ROCBLAS: 'refuse',
    }).value;
    expect(forced).toMatchObject({
      code: 'LIBRARY_ERROR',
      call: 'rocblas_gemm_strided_batched_ex',
      driverName: 'rocblas_status_invalid_value',
      launches: 0,
    });
    expect(forced.message).toContain('a f32 product of 1 x [8, 8]');
    // The fake HIP runs no kernels, so without code objects auto ends in the error about those.
    const auto = runOnFakes<Record<string, unknown>>(hip, body.replace('CHOICE', "'auto'"), {
      FAKE_ROCBLAS: 'refuse',
      ...NO_KERNELS,
    }).value;
    expect(auto.code).toMatch(/^KERNEL_/);
  });

  test('a library that is missing is named, with where it was looked for', () => {
    const { value } = runOnFakes<{ code: string; message: string }[]>(
      hip,
      `${PRELUDE} return [caught(() => open({ gemm: 'hipblaslt' })), caught(() => open({ convolution: 'library' }))];`,
    );
    expect(value.map((error) => error.code)).toEqual(['LIBRARY_NOT_FOUND', 'LIBRARY_NOT_FOUND']);
    expect(value[0].message).toMatch(/hipBLASLt was not found.*Install hipblaslt/);
    expect(value[1].message).toMatch(/MIOpen was not found.*Install ROCm's miopen-hip/);
  });
});

describe('hipBLASLt', () => {
  let hip: string;
  beforeAll(() => {
    hip = buildFakes(['hipblaslt']);
  });

  test('multiplies every dtype; a problem is planned once', () => {
    const { value, log } = runOnFakes<{ worst: number; library: number }>(
      hip,
      `${PRELUDE}
      const device = open({ gemm: 'hipblaslt' });
      const [b, m, n, k] = [2, 4, 5, 6];
      let worst = 0;
      for (let round = 0; round < 2; round++)
        for (const dtype of ['f32', 'f64', 'f16', 'bf16'])
          for (const l of [Layout.contiguous([b, m, k]), Layout.contiguous([b, k, m]).transpose(1, 2)])
            for (const r of [Layout.contiguous([b, k, n]), Layout.contiguous([n, k]).transpose(0, 1).broadcastAs([b, k, n])])
              worst = Math.max(worst, both(device, dtype, [100, 100], ([x, y]) => x.device.ops.matmul({ storage: x, layout: l }, { storage: y, layout: r }, { b, m, n, k })));
      const { library } = device.hip.counters();
      device.dispose();
      return { worst, library };`,
    );
    expect(value.worst).toBeLessThan(0.07);
    expect(value.library).toBe(32);
    expect(log.filter((line) => line === 'heuristic')).toHaveLength(16);
    expect(log.filter((line) => line === 'matmul')).toHaveLength(32);
    expect(log.at(-1)).toBe('destroy, left over 0');
  });

  test('is what auto takes without rocBLAS; no algorithm and an old version are said', () => {
    const product = `${PRELUDE}
      const device = open(OPTIONS);
      const x = device.fromHost(random(64), 'f32');
      const square = Layout.contiguous([1, 8, 8]);
      return caught(() => x.device.ops.matmul({ storage: x, layout: square }, { storage: x, layout: square }, { b: 1, m: 8, n: 8, k: 8 }));`;
    const run = (options: string, mode: string) =>
      runOnFakes<{ code: string; message: string }>(hip, product.replace('OPTIONS', options), { FAKE_HIPBLASLT: mode })
        .value;
    expect(run('{}', '').code).toBe('none');
    expect(run("{ gemm: 'library' }", 'none').code).toBe('LIBRARY_ERROR');
    const old = run("{ gemm: 'hipblaslt' }", 'old');
    expect(old.message).toContain('version 500 of hipBLASLt, older than 0.6');
    const missing = run("{ gemm: 'hipblaslt' }", 'none');
    expect(missing).toMatchObject({ code: 'LIBRARY_ERROR' });
    expect(missing.message).toContain('no algorithm');
  });
});

describe('MIOpen', () => {
  let hip: string;
  beforeAll(() => {
    hip = buildFakes(['rocblas', 'miopen']);
  });

  test('convolves in one and two dimensions and both directions', () => {
    const { value, log } = runOnFakes<{ worst: number; launches: number; library: number; live: number }>(
      hip,
      `${PRELUDE}
      const device = open({ convolution: 'library' });
${EVERY_CONVOLUTION}`,
    );
    expect(value.worst).toBeGreaterThanOrEqual(0);
    expect(value.worst).toBeLessThan(0.26);
    expect(value).toMatchObject({ launches: 0, library: 48, live: 0 });
    expect(log.filter((line) => line === 'forward')).toHaveLength(24);
    expect(log.filter((line) => line === 'backward')).toHaveLength(24);
    expect(log.at(-1)).toBe('destroy, left over 0');
  });

  test('plans a shape once', () => {
    const { value, log } = runOnFakes<number>(
      hip,
      `${PRELUDE}
      const device = open({});
      const [x, w] = [device.fromHost(random(75), 'f32'), device.fromHost(random(27), 'f32')];
      const p = { b: 1, cIn: 3, cOut: 1, groups: 1, hIn: 5, wIn: 5, kH: 3, kW: 3, hOut: 3, wOut: 3, padding: 0, stride: 1, dilation: 1 };
      for (let i = 0; i < 5; i++) x.device.conv.conv2d({ storage: x, layout: Layout.contiguous([1, 3, 5, 5]) }, { storage: w, layout: Layout.contiguous([1, 3, 3, 3]) }, p).dispose();
      return device.hip.counters().library;`,
    );
    expect(value).toBe(5);
    expect(log.filter((line) => line === 'offer')).toHaveLength(2); // the count, then the list
    expect(log.filter((line) => line === 'create')).toHaveLength(1);
  });

  test('no solution is an error when asked for; too much output padding goes to the kernels', () => {
    const { value } = runOnFakes<{ code: string; message: string }[]>(
      hip,
      `${PRELUDE}
      const device = open({ convolution: 'miopen' });
      const [x, w] = [device.fromHost(random(75), 'f32'), device.fromHost(random(27), 'f32')];
      const p = { b: 1, cIn: 3, cOut: 1, groups: 1, hIn: 5, wIn: 5, kH: 3, kW: 3, hOut: 3, wOut: 3, padding: 0, stride: 1, dilation: 1 };
      const layouts = [Layout.contiguous([1, 3, 5, 5]), Layout.contiguous([3, 1, 3, 3])];
      return [
        caught(() => x.device.conv.conv2d({ storage: x, layout: layouts[0] }, { storage: w, layout: Layout.contiguous([1, 3, 3, 3]) }, p)),
        caught(() => x.device.conv.convTranspose2d({ storage: x, layout: layouts[0] }, { storage: w, layout: layouts[1] }, { ...p, outputPadding: 1, hOut: 8, wOut: 8 })),
      ];`,
      { FAKE_MIOPEN: 'none', ...NO_KERNELS },
    );
    expect(value[0].code).toBe('LIBRARY_ERROR');
    expect(value[0].message).toContain('no solution');
    expect(value[0].message).toContain('a f32 convolution of [1, 3, 5, 5] with [1, 3, 3, 3] to [1, 1, 3, 3]');
    expect(value[1].code).toMatch(/^KERNEL_/);
  });
});
