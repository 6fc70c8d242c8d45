// Groups of host devices at the binding: more ranks of one process than libuv has threads, and what strangers get.
import { createConnection } from 'node:net';
import { expect, test } from 'vitest';
import { openDevice } from '../src';

const openSeveral = (count: number) => Array.from({ length: count }, () => openDevice('host'));

test('as many ranks of a process as there are come together', async () => {
  const devices = openSeveral(7);
  const id = devices[0].groupId();
  const joined = await Promise.all(
    devices.map((device, rank) => device.joinGroup({ id, rank, size: 7, timeoutMs: 20_000 })),
  );
  expect(joined.map(({ rank, size }) => [rank, size])).toEqual(devices.map((_, rank) => [rank, 7]));
  for (const one of joined) expect(one.failure()).toBeUndefined();
  for (const one of joined) one.dispose();
  for (const device of devices) device.dispose();
});

test('two that come as one rank, and sizes that differ, are refused at once', async () => {
  for (const others of [
    [
      { rank: 0, size: 3 },
      { rank: 1, size: 3 },
      { rank: 1, size: 3 },
    ],
    [
      { rank: 0, size: 2 },
      { rank: 1, size: 3 },
    ],
  ]) {
    const devices = openSeveral(others.length);
    const id = devices[0].groupId();
    // The first one to come meets the others.
    const first = devices[0].joinGroup({ id, ...others[0], timeoutMs: 3000 });
    await new Promise((done) => setTimeout(done, 50));
    const rest = others.slice(1).map((member, i) => devices[i + 1].joinGroup({ id, ...member, timeoutMs: 3000 }));
    const outcomes = await Promise.allSettled([first, ...rest]);
    const codes = outcomes.map((outcome) => (outcome.status === 'rejected' ? outcome.reason.code : 'joined'));
    expect(codes[0]).toBe('RANKS_DIFFER');
    for (const code of codes) expect(['RANKS_DIFFER', 'RANK_TIMEOUT']).toContain(code);
    for (const device of devices) device.dispose();
  }
});

test('strangers at the port change nothing', async () => {
  const [a, b] = openSeveral(2);
  const id = a.groupId();
  const port = Buffer.from(id).readUInt16BE(28);
  const strangers = ['', 'GET / HTTP/1.1\r\n\r\n', 'x'.repeat(1000)].map((text) => {
    const socket = createConnection(port, '127.0.0.1');
    socket.on('error', () => {});
    socket.write(text);
    return socket;
  });
  const joined = await Promise.all(
    [a, b].map((device, rank) => device.joinGroup({ id, rank, size: 2, timeoutMs: 15_000 })),
  );
  expect(joined.map(({ rank }) => rank)).toEqual([0, 1]);
  for (const socket of strangers) socket.destroy();
  for (const one of joined) one.dispose();
  for (const device of [a, b]) device.dispose();
});

test('a device that is closed while it joins leaves nothing behind', async () => {
  const device = openDevice('host');
  const joining = device.joinGroup({ id: device.groupId(), rank: 0, size: 2, timeoutMs: 300 });
  device.dispose();
  await expect(joining).rejects.toMatchObject({ code: 'RANK_TIMEOUT' });
});
