import { afterEach, expect, test, vi } from 'vitest';
import { settings } from './settings';

afterEach(() => vi.unstubAllEnvs());

test('every switch has its default where nothing is set, or nothing but an empty value', () => {
  for (const setting of Object.values(settings)) {
    vi.stubEnv(setting.variable, undefined);
    expect(setting(), setting.variable).toBe(setting.default);
    vi.stubEnv(setting.variable, '');
    expect(setting(), setting.variable).toBe(setting.default);
  }
});

test('switches are read when they are asked for', () => {
  vi.stubEnv('X_GEMM', 'kernels');
  expect(settings.gemm()).toBe('kernels');
  vi.stubEnv('X_GEMM', 'library');
  expect(settings.gemm()).toBe('library');
});

test('0 is off, anything else on', () => {
  for (const setting of [settings.graphs, settings.peer, settings.launchBlocking, settings.dequantizeAll]) {
    vi.stubEnv(setting.variable, '0');
    expect(setting()).toBe(false);
    vi.stubEnv(setting.variable, '1');
    expect(setting()).toBe(true);
  }
});

test('X_DEBUG is a level', () => {
  for (const [value, level] of [
    ['0', 0],
    ['4', 4],
    ['yes', 1],
    ['-1', 1],
    ['1.5', 1],
    ['NaN', 1],
    [' ', 1],
  ] as const) {
    vi.stubEnv('X_DEBUG', value);
    expect(settings.debug()).toBe(level);
  }
});
