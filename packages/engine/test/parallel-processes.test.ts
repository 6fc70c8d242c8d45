/** One model on the devices of several processes, which find each other as launchers say. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { fileURLToPath } from 'node:url';
import { memoryStats } from '@x/core';
import { bundled } from '@x/testing/bundle';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { type LanguageModel, loadModel, type ProcessGroup, processGroup } from '../src';
import { FrameReader, MAX_FRAME, writeFrame } from '../src/parallel/frames';
import { greet, introduce } from '../src/parallel/handshake';
import { gather } from '../src/parallel/sockets';
import { GGUF, openDevice, TINY } from './helpers';

openDevice('cpu');
const TOKEN = 'a secret of tests, long enough';

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as { port: number };
  server.close();
  return port;
}

function groupAt(port: number, rank: number, size = 2): ProcessGroup {
  return { rank, size, host: '127.0.0.1', port, localRank: 0, token: TOKEN };
}

/** A process with a rank, and what it printed when it ended. */
function follower(port: number, rank: number, { size = 2, token = TOKEN, model = GGUF } = {}) {
  const { follow } = bundled({ follow: fileURLToPath(new URL('./follow.ts', import.meta.url)) });
  const env = {
    ...process.env,
    RANK: `${rank}`,
    WORLD_SIZE: `${size}`,
    MASTER_ADDR: '127.0.0.1',
    MASTER_PORT: `${port}`,
    X_GROUP_TOKEN: token,
  };
  const child: ChildProcess = spawn(process.execPath, [fileURLToPath(follow), model], { env });
  let printed = '';
  child.stdout!.on('data', (chunk) => {
    printed += chunk;
  });
  child.stderr!.on('data', (chunk) => {
    printed += chunk;
  });
  const done = once(child, 'exit').then(([status]) => ({ status, printed: printed.trim() }));
  return { child, done };
}

async function text(model: LanguageModel, prompt: string, maxTokens = 24): Promise<string> {
  let written = '';
  for await (const piece of model.generate(prompt, { maxTokens, temperature: 0, ignoreEos: true }))
    written += piece.text;
  return written;
}

describe('a model in two processes', () => {
  it('writes what one process writes, and ends the other one', async () => {
    const before = memoryStats();
    const port = await freePort();
    const other = follower(port, 1);
    const two = await loadModel(GGUF, { device: 'cpu', processes: groupAt(port, 0) });
    using one = await loadModel(GGUF, { device: 'cpu' });
    for (const prompt of ['Once upon a time', 'The old wolf '.repeat(60)])
      expect(await text(two, prompt)).toBe(await text(one, prompt));
    two.dispose();
    expect(await other.done).toEqual({ status: 0, printed: 'ended' });
    one.dispose();
    expect(memoryStats()).toEqual(before);
  });

  it.each([
    ['SIGKILL', 'RANK_LOST', 'rank 1 of 2 (another process) is gone'],
    ['SIGSTOP', 'RANK_TIMEOUT', 'rank 1 of 2 (another process) has not answered for'],
  ] as const)('fails as one when a process gets %s', async (signal, code, message) => {
    const port = await freePort();
    const other = follower(port, 1);
    const model = await loadModel(GGUF, { device: 'cpu', processes: groupAt(port, 0), rankTimeoutMs: 1000 });
    // What is done for the first time may take longer than a step.
    await text(model, 'Once upon a time');
    await new Promise((resolve) => setTimeout(resolve, 1000));
    const writing = (async () => {
      for (;;) await text(model, 'Once upon a time');
    })();
    setTimeout(() => other.child.kill(signal), 200);
    const begun = performance.now();
    await expect(writing).rejects.toMatchObject({ code, rank: 1, message: expect.stringContaining(message) });
    expect(performance.now() - begun).toBeLessThan(8000);
    expect(() => model.generate('Once')).toThrow(message);
    model.dispose();
    await model.ended();
    other.child.kill('SIGKILL');
    await other.done;
  });

  it('does not go on without its leader, nor with another model', async () => {
    const port = await freePort();
    const other = follower(port, 1, { model: TINY });
    const loading = loadModel(GGUF, { device: 'cpu', processes: groupAt(port, 0) });
    await expect(loading).rejects.toMatchObject({ name: 'CollectiveError', code: 'RANKS_DIFFER', rank: 1 });
    expect((await other.done).status).toBe(0);
    // A leader that is gone.
    const orphan = follower(port, 1);
    const [channel] = await gather(groupAt(port, 0), undefined);
    await channel.terminate();
    const { status, printed } = await orphan.done;
    expect(status).toBe(1);
    expect(JSON.parse(printed)).toMatchObject({ code: 'RANK_LOST', rank: 0 });
  });
});

describe('strangers', () => {
  it('are refused, whatever they say', async () => {
    const port = await freePort();
    const gathered = gather(groupAt(port, 0), undefined);
    const open = async () => {
      const socket = connect(port, '127.0.0.1').on('error', () => {});
      await once(socket, 'connect');
      return socket;
    };
    // Others' protocols, and nothing at all.
    for (const bytes of ['GET / HTTP/1.1\r\n\r\n', Buffer.alloc(5000, 255), '']) {
      const socket = await open();
      socket.end(bytes);
      socket.resume();
      await once(socket, 'close');
    }
    const wrong = await open();
    await expect(introduce(wrong, 'another secret, as long', 1, 2)).rejects.toThrow('another X_GROUP_TOKEN');
    await expect(introduce(await open(), TOKEN, 2, 2)).rejects.toThrow('its rank is taken or not of the group');
    await expect(introduce(await open(), TOKEN, 1, 3)).rejects.toThrow('its rank is taken or not of the group');
    const right = await open();
    await introduce(right, TOKEN, 1, 2);
    const [channel] = await gathered;
    expect(channel.rank).toBe(1);
    // One that belongs to the group breaks the rules.
    const ended = new Promise((resolve) => {
      channel.onEnd = resolve;
      channel.start();
    });
    right.write(Buffer.from([255, 255, 255, 255, 0]));
    expect(await ended).toContain(`at most ${MAX_FRAME} are taken`);
  });

  it('are found out when they listen', async () => {
    const server = createServer(
      (socket) => void greet(socket, 'another secret, as long', 2, () => true).catch(() => {}),
    );
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as { port: number };
    const socket = connect(port, '127.0.0.1');
    await expect(introduce(socket, TOKEN, 1, 2)).rejects.toThrow('another X_GROUP_TOKEN');
    server.close();
  });

  it('are not waited for longer than is said', async () => {
    const port = await freePort();
    await expect(gather(groupAt(port, 0, 3), undefined, 100)).rejects.toMatchObject({
      code: 'RANK_TIMEOUT',
      rank: 1,
      message: expect.stringContaining('rank 1, 2 of 3 did not connect within'),
    });
    const stop = new AbortController();
    const gathering = gather(groupAt(port, 0), stop.signal);
    stop.abort(new Error('enough'));
    await expect(gathering).rejects.toThrow('enough');
    const taken = createServer().listen(port, '127.0.0.1');
    await once(taken, 'listening');
    await expect(gather(groupAt(port, 0), undefined)).rejects.toThrow(`cannot listen at 127.0.0.1:${port}`);
    taken.close();
  });
});

describe('messages', () => {
  it('come as they were sent, however they are cut', () => {
    const written: Buffer[] = [];
    const socket = { cork() {}, uncork() {}, write: (bytes: Buffer) => void written.push(Buffer.from(bytes)) };
    const messages = [{ a: 1 }, { values: new Uint32Array([1, 2, 2 ** 32 - 1]) }, 'text', { list: [1, undefined] }];
    for (const message of messages) writeFrame(socket as unknown as Socket, message);
    const all = Buffer.concat(written);
    for (const size of [1, 3, 7, all.length]) {
      const received: unknown[] = [];
      const reader = new FrameReader((message) => received.push(message));
      for (let at = 0; at < all.length; at += size) reader.push(all.subarray(at, at + size));
      expect(received).toEqual(messages);
    }
    expect(() => new FrameReader(() => {}).push(Buffer.alloc(4, 255))).toThrow('a message of 4294967295 bytes');
  });
});

describe('processGroup', () => {
  const torchrun = { RANK: '1', WORLD_SIZE: '2', LOCAL_RANK: '1', MASTER_ADDR: 'node0', MASTER_PORT: '29500' };

  afterEach(() => void vi.unstubAllEnvs());

  it('reads what launchers set', () => {
    expect(processGroup({})).toBeUndefined();
    expect(processGroup({ WORLD_SIZE: '1', RANK: '0' })).toBeUndefined();
    expect(processGroup({ ...torchrun, MASTER_ADDR: 'localhost' })?.token).toBeUndefined();
    vi.stubEnv('X_GROUP_TOKEN', TOKEN);
    const group = { rank: 1, size: 2, host: 'node0', port: 29500, localRank: 1, token: TOKEN };
    expect(processGroup(torchrun)).toEqual(group);
    const elastic = { ...torchrun, TORCHELASTIC_USE_AGENT_STORE: 'True' };
    expect(processGroup(elastic)?.port).toBe(29501);
    vi.stubEnv('X_GROUP_PORT', '4000');
    expect(processGroup(elastic)?.port).toBe(4000);
  });

  it.each([
    [{ WORLD_SIZE: 'two' }, 'WORLD_SIZE is "two"'],
    [{ RANK: undefined }, 'RANK is not set'],
    [{ RANK: '2' }, 'RANK is "2"; give a whole number from 0 to 1'],
    [{ MASTER_ADDR: '' }, 'MASTER_ADDR is not set'],
    [{ MASTER_PORT: '0' }, 'MASTER_PORT is "0"'],
    [{ LOCAL_RANK: '-1' }, 'LOCAL_RANK is "-1"'],
    [{}, 'there is no secret; set X_GROUP_TOKEN'],
    [{}, 'X_GROUP_TOKEN has 5 characters', 'short'],
  ])('refuses %o: %s', (changed, message, token = '') => {
    vi.stubEnv('X_GROUP_TOKEN', token);
    expect(() => processGroup({ ...torchrun, ...changed })).toThrow(message);
  });

  it('is refused where it does not fit the call', async () => {
    const group = groupAt(29500, 1);
    await expect(loadModel(GGUF, { device: 'cpu', processes: group })).rejects.toThrow('call followModel');
    await expect(loadModel(GGUF, { device: 'cpu', processes: { ...group, port: 0 } })).rejects.toThrow('port is 0');
    const both = { processes: groupAt(29500, 0), devices: ['cpu', 'cpu'] };
    await expect(loadModel(GGUF, both)).rejects.toThrow('processes have a device each');
  });
});
