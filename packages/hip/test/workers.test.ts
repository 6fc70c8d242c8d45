// Worker threads: every thread loads the addon for itself, works at the same time as the others, and may end in the middle.
import { expect, test } from 'vitest';
import { hipModule, runIsolated } from './fake-hip';
import { hostKernels } from './host-kernels';

const code = () => Buffer.from(hostKernels()).toString('base64');

const WORKER = `
  const { Worker } = await import('node:worker_threads');
  const { writeFileSync } = await import('node:fs');
  const start = (body) => {
    const file = import.meta.filename.replace('run.mjs', 'worker' + Math.random().toString(36).slice(2) + '.mjs');
    writeFileSync(file, "import { parentPort, workerData } from 'node:worker_threads';\\nimport { openSync } from 'node:fs';\\nimport * as hip from " + JSON.stringify(process.env.HIP_MODULE) + ";\\nconst code = Buffer.from(workerData.code, 'base64');\\n" + body);
    return new Worker(file, { workerData: { code: process.env.HIP_CODE } });
  };
  const ended = (worker) => new Promise((done, failed) => {
    const messages = [];
    worker.on('message', (m) => messages.push(m));
    worker.on('error', failed);
    worker.on('exit', (status) => done({ status, messages }));
  });
`;

function environment(): Record<string, string> {
  return { HIP_CODE: code(), HIP_MODULE: hipModule() };
}

test('threads work side by side, and one may leave its device open', () => {
  const results = runIsolated<{ status: number; messages: number[] }[]>(
    `${WORKER}
    const body = \`const device = hip.openDevice('host');
      const module = device.loadModule(code);
      const fill = module.getFunction('fill', ['ptr', 'u32', 'f32']);
      const out = device.alloc(4000);
      let sum = 0;
      for (let round = 1; round <= 20; round++) {
        fill.launch(1000, 1, 0, [out, 1000, round]);
        const view = new Float32Array(1000);
        await device.memcpyDtoH(view, out);
        sum += view.reduce((a, b) => a + b, 0);
      }
      parentPort.postMessage(sum);\`;
    return Promise.all([1, 2, 3].map(() => ended(start(body))));`,
    environment(),
  );
  expect(results).toEqual(new Array(3).fill({ status: 0, messages: [210_000] }));
});

test('a thread terminated while it waits takes nothing down', () => {
  const result = runIsolated<{ terminated: number; alive: number[] }>(
    `${WORKER}
    const busy = start(\`const device = hip.openDevice('host');
      const slow = device.loadModule(code).getFunction('slow_fill', ['ptr', 'u32', 'f32', 'u32']);
      const out = device.alloc(64);
      slow.launch(1, 1, 0, [out, 16, 1, 400]);
      const file = device.alloc(1 << 20);
      const reads = [
        device.memcpyDtoH(new Float32Array(16), out),
        device.synchronize(),
        device.openFileReader().read(openSync(process.execPath, 'r'), 0, file, 1 << 20),
      ];
      parentPort.postMessage('waiting');
      await Promise.all(reads);\`);
    const end = ended(busy);
    await new Promise((done) => busy.once('message', done));
    await busy.terminate();
    const { status } = await end;
    const device = hip.openDevice('host');
    const out = device.alloc(16);
    device.memset(out, 1, 16);
    const view = new Uint8Array(16);
    await device.memcpyDtoH(view, out);
    return { terminated: status, alive: Array.from(view) };`,
    environment(),
  );
  expect(result.terminated).toBe(1);
  expect(result.alive).toEqual(new Array(16).fill(1));
});

test('a process may end with work and reads under way', () => {
  const result = runIsolated<string>(
    `const device = hip.openDevice('host');
    const module = device.loadModule(Buffer.from(process.env.HIP_CODE, 'base64'));
    const out = device.alloc(64);
    module.getFunction('slow_fill', ['ptr', 'u32', 'f32', 'u32']).launch(1, 1, 0, [out, 16, 1, 300]);
    void device.memcpyDtoH(new Float32Array(16), out);
    const { openSync } = await import('node:fs');
    void device.openFileReader().read(openSync(process.execPath, 'r'), 0, device.alloc(1 << 20), 1 << 20);
    setTimeout(() => process.exit(0), 20);
    return 'ended';`,
    environment(),
  );
  expect(result).toBe('ended');
});
