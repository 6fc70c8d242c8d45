// Without the native addon everything still runs, in plain TypeScript: a child process with --no-addons.
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { bundled } from '@x/testing/bundle';
import { afterAll, expect, test } from 'vitest';

const root = fileURLToPath(new URL('../../..', import.meta.url));
const directory = mkdtempSync(join(tmpdir(), 'candle-no-addon-'));
afterAll(() => rmSync(directory, { recursive: true, force: true }));

const modules = bundled({
  core: join(root, 'packages/core/src/index.ts'),
  backend: join(root, 'packages/rocm-backend/src/index.ts'),
  cli: join(root, 'packages/candle/src/cli.ts'),
});

function runWithoutAddons(...args: string[]) {
  return spawnSync(process.execPath, args, {
    cwd: root,
    encoding: 'utf8',
    env: { ...process.env, NODE_OPTIONS: '--no-addons', X_TEST_DEVICES: undefined },
  });
}

test('tensors, devices and errors', () => {
  const script = join(directory, 'run.mjs');
  writeFileSync(
    script,
    `import { Device, Tensor } from ${JSON.stringify(modules.core)};
     import ${JSON.stringify(modules.backend)};
     const errorOf = (run) => { try { run(); } catch (e) { return [e.code, e.message]; } };
     const ones = Tensor.ones([2]).toVecSync();
     const auto = await Device.auto();
     const result = {
       ones, auto: String(auto), description: auto.description, list: Device.list(),
       rocm: errorOf(() => Device.rocm()), cuda: errorOf(() => Device.parse('cuda:0')),
       product: Tensor.ones([2, 3]).matmul(Tensor.ones([3, 2], 'f32', auto)).toVecSync(),
     };
     console.log('RESULT' + JSON.stringify(result));`,
  );
  const { stdout, stderr, status } = runWithoutAddons(script);
  expect(stderr.match(/CandleWarning/g)).toHaveLength(1);
  expect(stderr).toContain('[CPU_WITHOUT_KERNELS] CandleWarning: Device.cpu() computes in plain TypeScript');
  expect(status).toBe(0);
  const result = JSON.parse(stdout.slice(stdout.indexOf('RESULT') + 'RESULT'.length));
  expect(result).toMatchObject({
    ones: [1, 1],
    auto: 'cpu',
    product: [
      [3, 3],
      [3, 3],
    ],
  });
  const why = /native addons are disabled\. Start Node without --no-addons/;
  expect(result.description).toMatch(why);
  expect(result.list.map((entry: { available: boolean }) => entry.available)).toEqual([true, true, false, false]);
  for (const [code, message] of [result.rocm, result.cuda]) {
    expect(code).toBe('DEVICE_UNAVAILABLE');
    expect(message).toMatch(why);
    expect(message).toMatch(/use Device\.cpu\(\)\.$/);
  }
});

test('candle doctor says why, and what cpu is', () => {
  const cli = fileURLToPath(modules.cli);
  const { stdout, status } = runWithoutAddons(cli, 'doctor', '--json');
  const { platforms, devices, libraries, findings } = JSON.parse(stdout);
  // Where there is a card, a problem.
  expect(status).toBe(findings.some(({ level }: { level: string }) => level === 'problem') ? 1 : 0);
  for (const { reason } of [...platforms, ...libraries]) {
    expect(reason).toMatchObject({ code: 'ADDON_MISSING', remedy: 'Start Node without --no-addons' });
    expect(reason.message).toMatch(/native addons are disabled$/);
  }
  expect(devices).toMatchObject([{ device: 'cpu', name: 'plain TypeScript', codeObjects: null }]);
  const text = runWithoutAddons(cli, 'doctor').stdout;
  expect(text).toContain('cpu: plain TypeScript');
  expect(text).toContain('Start Node without --no-addons');
});

test('the permission model, which refuses addons too, is named', () => {
  const script = join(directory, 'permission.mjs');
  writeFileSync(
    script,
    `import { Device } from ${JSON.stringify(modules.core)};
     import ${JSON.stringify(modules.backend)};
     try { Device.rocm(); } catch ({ message }) { console.log(message); }`,
  );
  // Its name before and since Node 24.
  const model = process.allowedNodeEnvironmentFlags.has('--permission') ? '--permission' : '--experimental-permission';
  const permissions = [model, '--allow-fs-read=*', '--no-warnings'];
  const { stdout } = spawnSync(process.execPath, [...permissions, script], { encoding: 'utf8' });
  expect(stdout).toMatch(/native addons are disabled\. Start Node with --allow-addons, beside --permission/);
});
