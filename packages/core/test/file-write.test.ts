/** Where files are written to: links, permissions, pipes, devices, and folders that are none. One writer serves every format. */
import { execFileSync, spawn } from 'node:child_process';
import {
  chmodSync,
  chownSync,
  linkSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { writeGguf } from '../../quantized/src';
import { Tensor } from '../src';
import { NpzFile, readNpySync, replaceFile, SafetensorsFile, saveSafetensors, writeNpy, writeNpz } from '../src/files';

let folder = '';
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'file-write-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const at = (name: string) => join(folder, name);
const x = () => Tensor.from([1, 2, 3]);
const names = (path = folder) => readdirSync(path).sort();

const writers: [string, (path: string) => Promise<unknown>, (bytes: Uint8Array) => number[]][] = [
  [
    'safetensors',
    (path) => saveSafetensors(path, { x: x() }),
    (bytes) => Array.from(SafetensorsFile.open(bytes).loadSync('x').toArraySync(), Number),
  ],
  ['npy', (path) => writeNpy(path, x()), (bytes) => Array.from(readNpySync(bytes).toArraySync(), Number)],
  [
    'npz',
    (path) => writeNpz(path, { x: x() }),
    (bytes) => Array.from(NpzFile.open(bytes).loadSync('x').toArraySync(), Number),
  ],
  [
    'npz, deflated, zip64',
    (path) => writeNpz(path, { x: x(), y: x() }, { deflate: true, zip64: true }),
    (bytes) => Array.from(NpzFile.open(bytes).loadSync('x').toArraySync(), Number),
  ],
  [
    'gguf',
    (path) =>
      writeGguf(path, {
        metadata: {},
        tensors: [{ name: 'x', type: 'f32', shape: [3], data: new Uint8Array(Float32Array.of(1, 2, 3).buffer) }],
      }),
    (bytes) => Array.from(new Float32Array(bytes.slice(-32, -20).buffer)),
  ],
];

describe.each(writers)('%s', (_, write, read) => {
  const check = (bytes: Uint8Array) => expect(read(Uint8Array.from(bytes))).toEqual([1, 2, 3]);

  test('keeps permissions and owner of a file, gives a new one the usual ones', async () => {
    writeFileSync(at('old'), 'before');
    chmodSync(at('old'), 0o600);
    const root = process.getuid?.() === 0;
    if (root) chownSync(at('old'), 1234, 4321);
    await write(at('old'));
    check(readFileSync(at('old')));
    const { mode, uid, gid } = statSync(at('old'));
    expect(mode & 0o7777).toBe(0o600);
    if (root) expect([uid, gid]).toEqual([1234, 4321]);
    await write(at('new'));
    expect(statSync(at('new')).mode & 0o777).toBe(0o666 & ~process.umask());
    expect(names()).toEqual(['new', 'old']);
  });

  test('writes through links to their target, also one that is not there yet', async () => {
    mkdirSync(at('data'));
    writeFileSync(at('data/target'), 'before');
    chmodSync(at('data/target'), 0o640);
    symlinkSync('data', at('folder'));
    symlinkSync('../data/target', at('data/second'));
    symlinkSync('folder/second', at('first'));
    symlinkSync(join('data', 'later'), at('dangling'));
    await write(at('first'));
    await write(at('dangling'));
    for (const file of ['data/target', 'data/later']) check(readFileSync(at(file)));
    expect(statSync(at('data/target')).mode & 0o777).toBe(0o640);
    expect([readlinkSync(at('first')), readlinkSync(at('dangling'))]).toEqual(['folder/second', join('data', 'later')]);
    expect([names(), names(at('data'))]).toEqual([
      ['dangling', 'data', 'first', 'folder'],
      ['later', 'second', 'target'],
    ]);
  });

  test('writes into a pipe and to standard output, and leaves /dev/null what it is', async () => {
    execFileSync('mkfifo', [at('pipe')]);
    const reader = spawn('cat', [at('pipe')]);
    const parts: Buffer[] = [];
    reader.stdout.on('data', (part) => parts.push(part));
    const ended = new Promise((resolve) => reader.on('close', resolve));
    await write(at('pipe'));
    await ended;
    check(Buffer.concat(parts));
    expect(statSync(at('pipe')).isFIFO()).toBe(true);
    await write('/dev/null');
    expect(statSync('/dev/null').isCharacterDevice()).toBe(true);
    expect(names()).toEqual(['pipe']);
  });
});

describe('what cannot be written', () => {
  const failure = async (path: string, body = saveSafetensors(path, { x: x() })) =>
    body.then(
      () => expect.unreachable(),
      (error) => error,
    );

  test('folders, circles of links, sockets, missing folders, full disks', async () => {
    mkdirSync(at('folder'));
    writeFileSync(at('file'), 'kept');
    symlinkSync('loop', at('loop'));
    symlinkSync('folder', at('to-folder'));
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(at('socket'), resolve));
    const cases: [string, RegExp, RegExp][] = [
      [at('folder'), /EISDIR/, /give the path of a file/],
      [at('to-folder'), /EISDIR/, /give the path of a file/],
      [at('new/'), /EISDIR/, /give the path of a file/],
      [at('loop'), /ELOOP/, /circle of links/],
      [at('socket'), /EINVAL/, /socket/],
      [at('none/x'), /ENOENT/, /make its folder first/],
      [at('file/x'), /ENOTDIR/, /no folder/],
      [at('x'.repeat(256)), /ENAMETOOLONG/, /check the path/],
    ];
    if (process.platform === 'linux') cases.push(['/dev/full', /ENOSPC/, /disk is full/]);
    for (const [path, code, advice] of cases) {
      const error = await failure(path);
      expect(error).toMatchObject({ name: 'FileFormatError', code: 'FILE_UNWRITABLE', path });
      expect(error.cause.code).toMatch(code);
      expect(error.message).toMatch(advice);
    }
    await new Promise((resolve) => server.close(resolve));
    for (const path of ['', 'a\0b', undefined, 7, 7n])
      expect(await failure('', saveSafetensors(path as string, { x: x() }))).toMatchObject({
        code: 'INVALID_ARGUMENT',
      });
    expect(readFileSync(at('file'), 'utf8')).toBe('kept');
    expect(names()).toEqual(['file', 'folder', 'loop', 'to-folder']);
  });

  test('names as long as they may be are written', async () => {
    await saveSafetensors(at('x'.repeat(255)), { x: x() });
    expect(names()).toEqual(['x'.repeat(255)]);
  });

  test('a pipe that nobody reads is an error in a bounded time, and one whose reader goes away too', async () => {
    execFileSync('mkfifo', [at('pipe')]);
    const error = await failure(at('pipe'));
    expect(error).toMatchObject({ code: 'FILE_UNWRITABLE', message: expect.stringMatching(/start the reader first/) });
    const reader = spawn('head', ['-c', '10', at('pipe')]);
    const many = Tensor.zeros([1 << 20], 'f32');
    const broken = await failure(at('pipe'), saveSafetensors(at('pipe'), { many }));
    expect(broken).toMatchObject({ code: 'FILE_UNWRITABLE', message: expect.stringMatching(/reader of the pipe/) });
    reader.kill();
    expect(statSync(at('pipe')).isFIFO()).toBe(true);
  });

  test('an error in between leaves the old file, its other names and no trace', async () => {
    writeFileSync(at('file'), 'before');
    linkSync(at('file'), at('other'));
    await expect(
      replaceFile(at('file'), async (sink) => {
        await sink.write(new Uint8Array(1000));
        throw new Error('changed my mind');
      }),
    ).rejects.toThrow('changed my mind');
    expect([readFileSync(at('file'), 'utf8'), names()]).toEqual(['before', ['file', 'other']]);
    await saveSafetensors(at('file'), { x: x() });
    expect(readFileSync(at('other'), 'utf8')).toBe('before');
  });

  test('a file without permission to write is not replaced', async () => {
    if (process.getuid?.() === 0) return;
    writeFileSync(at('file'), 'kept', { mode: 0o444 });
    expect(await failure(at('file'))).toMatchObject({ code: 'FILE_UNWRITABLE', cause: { code: 'EACCES' } });
    expect([readFileSync(at('file'), 'utf8'), names()]).toEqual(['kept', ['file']]);
  });
});

test('standard output: a pipe, a socket and a file', () => {
  const program = `
    import { Tensor } from ${JSON.stringify(new URL('../src/index.ts', import.meta.url).href)};
    import { saveSafetensors } from ${JSON.stringify(new URL('../src/files/index.ts', import.meta.url).href)};
    saveSafetensors('/dev/stdout', { x: Tensor.zeros([300000], 'f32') });`;
  writeFileSync(at('main.ts'), program);
  const tsx = new URL('../../../node_modules/.bin/tsx', import.meta.url).pathname;
  const size = 300000 * 4;
  // The children of Node have sockets, those of a shell pipes.
  const run = (command: string) => execFileSync('sh', ['-c', command], { maxBuffer: 1 << 26 });
  expect(SafetensorsFile.open(run(`${tsx} ${at('main.ts')}`)).info('x').byteLength).toBe(size);
  expect(SafetensorsFile.open(run(`${tsx} ${at('main.ts')} | cat`)).info('x').byteLength).toBe(size);
  run(`(printf head; ${tsx} ${at('main.ts')}) > ${at('out')}`);
  const out = readFileSync(at('out'));
  expect(out.subarray(0, 4).toString()).toBe('head');
  expect(SafetensorsFile.open(out.subarray(4)).info('x').byteLength).toBe(size);
});
