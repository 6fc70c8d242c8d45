/**
 * Builds stand-ins for rocBLAS, hipBLASLt, MIOpen and RCCL (beside the fake HIP runtime), NCCL, cuDNN (beside a fake libcuda) and
 * OpenBLAS, and runs code on them.
 */
import { existsSync, mkdtempSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { compileLibrary } from '@x/testing/compiled';
import { buildFakeHip, runIsolated } from '../fake-hip';
import { LIBRARY_SIGNATURES } from '../library-signatures';

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

const FLAGS = ['-O1', '-Wall', '-Werror'];

const FILES = {
  rocblas: 'librocblas.so',
  hipblaslt: 'libhipblaslt.so',
  miopen: 'libMIOpen.so',
  rccl: 'librccl.so',
} as const;
type FakeRocmLibrary = keyof typeof FILES;
export type FakeLibrary = keyof typeof LIBRARY_SIGNATURES;

/** Prototypes of a library in C, made from the table; with them, a definition that differs does not compile. */
function prototypesOf(library: FakeLibrary): string {
  const { functions, types, enums, structs } = LIBRARY_SIGNATURES[library];
  return [
    '#pragma once',
    '#include <cstddef>',
    '#include <cstdint>',
    structs ?? '',
    ...Object.entries(types).map(([name, what]) => `typedef ${what} ${name};`),
    `enum : int { ${Object.entries(enums)
      .map(([name, value]) => `${name} = ${value}`)
      .join(', ')} };`,
    ...functions.map(
      ({ name, returns, params }) =>
        `extern "C" __attribute__((visibility("default"))) ${returns} ${name}(${params.join(', ')});`,
    ),
  ].join('\n');
}

/** Compiles a source of this directory, with what it includes besides, to a library. */
function compile(library: FakeLibrary, output: string, definitions: readonly string[] = []): void {
  const headers = { 'signatures.h': prototypesOf(library) };
  compileLibrary(here(`./fake_${library}.cc`), output, [...FLAGS, ...definitions], headers);
}

/** The fake HIP's path in a directory that has the wanted libraries beside it, where the addon looks first. */
export function buildFakes(libraries: readonly FakeRocmLibrary[]): string {
  const hip = buildFakeHip(['-DFAKE_R0600']);
  // RCCL has NCCL's interface.
  for (const library of libraries) compile(library === 'rccl' ? 'nccl' : library, join(dirname(hip), FILES[library]));
  return hip;
}

/** The environment in which the fake libcuda is the driver. */
function buildFakeCuda(directory: string): Record<string, string> {
  compileLibrary(here('../fake-cuda/fake_cuda.cc'), join(directory, 'libcuda.so.1'), FLAGS);
  return { LD_LIBRARY_PATH: [directory, process.env.LD_LIBRARY_PATH].filter(Boolean).join(':') };
}

/**
 * The environment in which the fake libcuda is the driver and the stand-in for cuDNN its library. `definitions`:
 * -DFAKE_WITHOUT_GRAPHS leaves out the functions of operation graphs.
 */
export function buildFakeCudnn(definitions: readonly string[] = []): Record<string, string> {
  const directory = mkdtempSync(join(tmpdir(), 'x-fake-cuda-'));
  const library = join(directory, 'libcudnn.so.9');
  compile('cudnn', library, definitions);
  return { ...buildFakeCuda(directory), X_CUDNN_LIBRARY: library };
}

/** The environment in which the fake libcuda is the driver, without libraries. */
export function buildFakeDriver(): Record<string, string> {
  return buildFakeCuda(mkdtempSync(join(tmpdir(), 'x-fake-cuda-')));
}

/** The environment in which the fake libcuda is the driver and the stand-in for NCCL its library. */
export function buildFakeNccl(): Record<string, string> {
  const directory = mkdtempSync(join(tmpdir(), 'x-fake-cuda-'));
  const library = join(directory, 'libnccl.so.2');
  compile('nccl', library);
  return { ...buildFakeCuda(directory), X_NCCL_LIBRARY: library };
}

/** The stand-in for RCCL, to lie beside a HIP runtime. */
export function buildFakeRccl(directory: string): void {
  compile('nccl', join(directory, FILES.rccl));
}

/** The stand-in for OpenBLAS, whose interface is CBLAS. */
export function buildFakeOpenBlas(): string {
  const library = join(mkdtempSync(join(tmpdir(), 'x-fake-openblas-')), 'libopenblas.so');
  compileLibrary(here('./fake_openblas.cc'), library, FLAGS);
  return library;
}

/** What a run against the stand-ins returned, and the calls that they noted. */
export interface FakeRun<T> {
  value: T;
  log: string[];
}

/** Runs the body in a process of its own with `hip`, if given, as its HIP runtime; `core` and `backend` are the packages. */
export function runOnFakes<T>(
  hip: string | undefined,
  body: string,
  environment: Record<string, string> = {},
): FakeRun<T> {
  const log = join(mkdtempSync(join(tmpdir(), 'x-fake-log-')), 'calls');
  const value = runIsolated<T>(
    body,
    { ...(hip && { X_HIP_LIBRARY: hip }), FAKE_LOG: log, X_GEMM: undefined, X_CONV: undefined, ...environment },
    { above: true },
  );
  return { value, log: existsSync(log) ? readFileSync(log, 'utf8').trim().split('\n') : [] };
}

/** What bodies of {@link runOnFakes} start with: a device of the platform, and `both` to compare it with the reference. */
export const preludeFor = (platform: 'rocm' | 'cuda') => `
const { Layout, Device } = core;
const open = (options) => backend.RocmDevice.open('${platform}', 0, options);
const js = Device.js().backend;
const caught = (run) => { try { run(); } catch (e) { return { code: e.code, message: e.message, call: e.call, driverName: e.driverName }; } return { code: 'none' }; };
let seed = 1;
const random = (n) => Float32Array.from({ length: n }, () => ((seed = (seed * 16807) % 2147483647) % 17 - 8) / 4);
const bytesOf = (dtype, values) => dtype === 'f32' ? values : dtype === 'f64' ? Float64Array.from(values)
  : Uint16Array.from(values, dtype === 'f16' ? core.f32ToF16 : core.f32ToBf16);
// The largest difference to the reference, both as numbers.
const values = (buffer, dtype) => dtype === 'f32' ? new Float32Array(buffer) : dtype === 'f64' ? new Float64Array(buffer)
  : Float32Array.from(new Uint16Array(buffer), dtype === 'f16' ? core.f16ToF32 : core.bf16ToF32);
const both = (device, dtype, sizes, run) => {
  const made = sizes.map((size) => bytesOf(dtype, random(size)));
  const results = [js, device].map((d) => {
    const operands = made.map((data) => d.fromHost(data, dtype));
    const out = run(operands);
    const read = values(out.toHostSync(), dtype);
    for (const storage of [...operands, out]) storage.dispose();
    return read;
  });
  return results[0].length === results[1].length ? Math.max(...results[0].map((v, i) => Math.abs(v - results[1][i]))) : -1;
};
`;

/** After a prelude and `device`: convolutions of every kind, both directions; the largest difference to the reference. */
export const EVERY_CONVOLUTION = `
let worst = 0;
for (const dtype of ['f32', 'f16', 'bf16']) for (const stride of [1, 2]) for (const dilation of [1, 2]) {
  const p = { b: 2, cIn: 3, cOut: 4, groups: 1, hIn: 9, wIn: 10, kH: 3, kW: 2, padding: 1, stride, dilation, outputPadding: stride - 1 };
  const size = (n, kk) => Math.floor((n + 2 - dilation * (kk - 1) - 1) / stride) + 1;
  const back = (n, kk) => (n - 1) * stride - 2 + dilation * (kk - 1) + 1 + p.outputPadding;
  const x = Layout.contiguous([2, 3, 9, 10]);
  const line = Layout.contiguous([2, 3, 10]);
  worst = Math.max(worst,
    both(device, dtype, [540, 72], ([s, w]) => s.device.conv.conv2d({ storage: s, layout: x }, { storage: w, layout: Layout.contiguous([4, 3, 3, 2]) }, { ...p, hOut: size(9, 3), wOut: size(10, 2) })),
    both(device, dtype, [540, 72], ([s, w]) => s.device.conv.convTranspose2d({ storage: s, layout: x }, { storage: w, layout: Layout.contiguous([3, 4, 3, 2]) }, { ...p, hOut: back(9, 3), wOut: back(10, 2) })),
    both(device, dtype, [60, 24], ([s, w]) => s.device.conv.conv1d({ storage: s, layout: line }, { storage: w, layout: Layout.contiguous([4, 3, 2]) }, { ...p, lIn: 10, k: 2, lOut: size(10, 2) })),
    both(device, dtype, [60, 24], ([s, w]) => s.device.conv.convTranspose1d({ storage: s, layout: line }, { storage: w, layout: Layout.contiguous([3, 4, 2]) }, { ...p, lIn: 10, k: 2, lOut: back(10, 2) })));
}
const { launch, library } = device.hip.counters();
const live = device.memory().liveBytes;
device.dispose();
return { worst, launches: launch, library, live };`;
