/** Downloads from a server on this machine: what arrives where, what goes wrong on the way, and what is left then. */
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import os, { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { HubError, list, type PullOptions, type PullProgress, pull, remove, resolve } from '../src';
import { COMMIT, FakeHub, gitSha1, noise, oidOf, sha256 } from './hub-server';

let hub: FakeHub;
let cacheDir: string;
const root = mkdtempSync(join(tmpdir(), 'hub-test-'));
const ENVIRONMENT = Object.keys(process.env).filter((name) => /^(HF_|HUGGING|TRANSFORMERS_|XDG_CACHE)/.test(name));
for (const name of ENVIRONMENT) delete process.env[name];

beforeAll(async () => {
  hub = await FakeHub.start();
});
afterAll(async () => {
  await hub.stop();
  rmSync(root, { recursive: true, force: true });
});
beforeEach(() => {
  hub.reset();
  cacheDir = mkdtempSync(join(root, 'cache-'));
});

/** Options that reach nothing but the server here. */
const options = (more: PullOptions = {}): PullOptions => ({
  endpoint: hub.endpoint,
  cacheDir,
  token: false,
  retryDelayMs: 1,
  ...more,
});
const repoDir = (repo = 'org/repo') => join(cacheDir, `models--${repo.replace('/', '--')}`);
const blob = (data: Buffer, suffix = '') => join(repoDir(), 'blobs', oidOf(data) + suffix);
const failsWith = (code: string, message: RegExp | string = '') =>
  expect.objectContaining({
    name: 'HubError',
    code,
    message: typeof message === 'string' ? expect.stringContaining(message) : expect.stringMatching(message),
  });

const model = noise(200_000);
const ggufRepo = { 'README.md': 'read me', 'm-Q4_K_M.gguf': model, 'm-Q8_0.gguf': noise(300_000, 2) };

describe('the cache', () => {
  test('of a user without a home directory has to be named', async () => {
    const { homedir } = os;
    os.homedir = () => {
      throw Object.assign(new Error('uv_os_homedir returned ENOENT'), { code: 'ERR_SYSTEM_ERROR' });
    };
    syncBuiltinESMExports();
    try {
      await expect(list()).rejects.toEqual(failsWith('INVALID_OPTION', /home directory.*cacheDir.*HF_HOME/));
      expect(await list({ cacheDir })).toEqual([]);
    } finally {
      os.homedir = homedir;
      syncBuiltinESMExports();
    }
  });

  test('is laid out as that of Hugging Face: blobs by hash, refs, relative links, trees, locks', async () => {
    const config = Buffer.from('{"model_type":"llama"}');
    const weights = noise(5000, 3);
    const pooling = Buffer.from('{}');
    hub.add('org/repo', {
      'config.json': config,
      'model.safetensors': weights,
      '1_Pooling/config.json': pooling,
      'a.bin': noise(2000),
    });
    const { path, paths, ...said } = await pull('hf:org/repo', options());
    expect(said).toEqual({
      name: 'hf:org/repo',
      repo: 'org/repo',
      revision: 'main',
      commit: COMMIT,
      kind: 'safetensors',
      files: [
        { path: '1_Pooling/config.json', size: 2 },
        { path: 'config.json', size: 22 },
        { path: 'model.safetensors', size: 5000 },
      ],
      totalBytes: 5024,
      missingBytes: 0,
      downloadedBytes: 5024,
    });
    const directory = repoDir();
    expect(path).toBe(join(directory, 'snapshots', COMMIT));
    expect(paths).toEqual(said.files.map((file) => join(path, file.path)));
    expect(readdirSync(directory).sort()).toEqual(['blobs', 'refs', 'snapshots', 'trees']);
    expect(readdirSync(join(directory, 'blobs')).sort()).toEqual(
      [gitSha1(config), sha256(weights), gitSha1(pooling)].sort(),
    );
    expect(readFileSync(join(directory, 'refs/main'), 'utf8')).toBe(COMMIT);
    expect(readlinkSync(join(path, 'model.safetensors'))).toBe(`../../blobs/${sha256(weights)}`);
    expect(readlinkSync(join(path, '1_Pooling/config.json'))).toBe(`../../../blobs/${gitSha1(pooling)}`);
    expect(readFileSync(join(path, 'model.safetensors')).equals(weights)).toBe(true);
    expect(readdirSync(join(cacheDir, '.locks/models--org--repo')).sort()).toEqual(
      [config, weights, pooling].map((data) => `${oidOf(data)}.lock`).sort(),
    );
    expect(JSON.parse(readFileSync(join(directory, `trees/${COMMIT}.json`), 'utf8'))).toEqual({
      format_version: 1,
      files: {
        '1_Pooling/config.json': { size: 2, blob_id: gitSha1(pooling) },
        'a.bin': { size: 2000, blob_id: gitSha1(noise(2000)), lfs_sha256: sha256(noise(2000)), lfs_size: 2000 },
        'config.json': { size: 22, blob_id: gitSha1(config) },
        'model.safetensors': { size: 5000, blob_id: gitSha1(weights), lfs_sha256: sha256(weights), lfs_size: 5000 },
      },
    });
    expect(readFileSync(join(cacheDir, 'CACHEDIR.TAG'), 'utf8')).toMatch(
      /^Signature: 8a477f597d28d172789f06886806bc55\n/,
    );
    expect(statSync(blob(weights)).mode & 0o777).toBe(0o666 & ~process.umask());
  });

  test('what is there is not downloaded again, nor where several files or revisions share it', async () => {
    const repo = hub.add('org/repo', { ...ggufRepo, 'copy-F16.gguf': model });
    expect((await pull('hf:org/repo', options())).downloadedBytes).toBe(model.length);
    expect((await pull('hf:org/repo', options())).downloadedBytes).toBe(0);
    const next = 'f'.repeat(40);
    repo.refs = { main: next, old: COMMIT };
    const again = await pull('hf:org/repo', options());
    expect([again.commit, again.downloadedBytes]).toEqual([next, 0]);
    expect((await pull('hf:org/repo:F16@old', options())).downloadedBytes).toBe(0);
    expect(hub.downloads.filter(({ at }) => at === 'cdn').length).toBe(1);
    expect(readFileSync(join(repoDir(), 'refs/main'), 'utf8')).toBe(next);
    expect(readFileSync(join(repoDir(), 'refs/old'), 'utf8')).toBe(COMMIT);
    expect((await pull(`hf:org/repo@${COMMIT}`, options())).commit).toBe(COMMIT);
    expect(readdirSync(join(repoDir(), 'refs')).sort()).toEqual(['main', 'old']);
  });

  test('a file that lost its end, or whose link lost its blob, is downloaded again', async () => {
    hub.add('org/repo', ggufRepo);
    const { path } = await pull('hf:org/repo', options());
    truncateSync(blob(model), 10);
    expect((await pull('hf:org/repo', options())).downloadedBytes).toBe(model.length);
    rmSync(blob(model));
    expect((await pull('hf:org/repo', options())).downloadedBytes).toBe(model.length);
    expect(readFileSync(path).equals(model)).toBe(true);
    rmSync(path);
    expect((await pull('hf:org/repo', options())).downloadedBytes).toBe(0);
    expect(readFileSync(path).equals(model)).toBe(true);
  });

  test('several parts, an empty file, names to be escaped, a listing in pages', async () => {
    const parts = [1, 2, 3].map((i) => `sub dir/m #%-Q8_0-0000${i}-of-00003.gguf`);
    const files = Object.fromEntries(parts.map((path, i) => [path, noise(3000 + i, i)]));
    hub.add('org/repo', { ...files, 'README.md': '', 'z.txt': 'z' });
    hub.pageSize = 2;
    const pulled = await pull('hf:org/repo', options({ connections: 2 }));
    expect(pulled.path).toBe(join(repoDir(), 'snapshots', COMMIT, parts[0]));
    expect(pulled.paths.map((path) => readFileSync(path).length)).toEqual([3000, 3001, 3002]);
    hub.add('org/empty', { 'config.json': '', 'model.safetensors': noise(10) });
    const empty = await pull('hf:org/empty', options());
    expect(readFileSync(empty.paths[0]).length).toBe(0);
  });

  test('list and remove', async () => {
    expect(await list({ cacheDir })).toEqual([]);
    const repo = hub.add('org/repo', {
      ...ggufRepo,
      'copy-F16.gguf': model,
      'config.json': '{}',
      'model.safetensors': noise(4000, 9),
    });
    hub.add('other/one', { 'x.gguf': noise(1500) });
    for (const name of [
      'hf:org/repo',
      'hf:org/repo:Q8_0',
      'hf:org/repo:F16',
      'hf:org/repo:safetensors',
      'hf:other/one',
    ])
      await pull(name, options());
    repo.refs = { main: 'e'.repeat(40), v1: COMMIT };
    await pull('hf:org/repo', options());
    await pull('hf:org/repo@v1', options());
    const all = await list({ cacheDir });
    expect(all.map(({ name, bytes, commit, refs, kind }) => [name, bytes, commit[0], refs, kind])).toEqual([
      ['hf:org/repo:F16@v1', 200_000, '0', ['v1'], 'gguf'],
      ['hf:org/repo:Q4_K_M', 200_000, 'e', ['main'], 'gguf'],
      ['hf:org/repo:Q4_K_M@v1', 200_000, '0', ['v1'], 'gguf'],
      ['hf:org/repo:Q8_0@v1', 300_000, '0', ['v1'], 'gguf'],
      ['hf:org/repo:safetensors@v1', 4002, '0', ['v1'], 'safetensors'],
      ['hf:other/one:x.gguf', 1500, '0', ['main'], 'gguf'],
    ]);
    expect(Math.abs(all[0].modified.getTime() - Date.now())).toBeLessThan(60_000);
    for (const { name } of all) expect((await pull(name, { offline: true, cacheDir })).missingBytes).toBe(0);
    // Shared with a copy and with another revision: the link goes, the blob stays.
    const first = await remove('hf:org/repo:Q4_K_M@v1', { cacheDir });
    expect(first).toEqual({ models: ['hf:org/repo:Q4_K_M@v1'], freedBytes: 0 });
    // A blob that other tools share between repositories is a link itself.
    const shared = join(cacheDir, 'shared');
    renameSync(blob(model), shared);
    symlinkSync(shared, blob(model));
    expect((await remove('hf:org/repo:q8_0', { cacheDir })).freedBytes).toBe(300_000);
    expect(readFileSync(blob(model)).equals(model)).toBe(true);
    rmSync(blob(model));
    renameSync(shared, blob(model));
    await expect(remove('hf:org/repo:Q8_0', { cacheDir })).rejects.toThrow(
      failsWith('NOT_FOUND', 'hf:org/repo:F16@v1'),
    );
    expect((await remove('hf:org/repo:safetensors', { cacheDir })).models).toEqual(['hf:org/repo:safetensors@v1']);
    expect((await remove('hf:org/repo:F16', { cacheDir })).freedBytes).toBeLessThan(2000);
    expect(existsSync(join(repoDir(), 'snapshots', COMMIT))).toBe(false);
    expect(readdirSync(join(repoDir(), 'refs'))).toEqual(['main']);
    expect((await remove('hf:org/repo', { cacheDir })).freedBytes).toBeGreaterThanOrEqual(200_000);
    expect([existsSync(repoDir()), readdirSync(join(cacheDir, '.locks'))]).toEqual([false, ['models--other--one']]);
    await expect(remove('hf:org/repo', { cacheDir })).rejects.toThrow(failsWith('NOT_FOUND'));
    expect((await list({ cacheDir })).map(({ name }) => name)).toEqual(['hf:other/one:x.gguf']);
  });
});

describe('resolve', () => {
  test('says which files and how many bytes, and downloads none', async () => {
    hub.add('org/repo', ggufRepo);
    const said = await resolve('hf.co/org/repo:q8_0', options());
    expect(said).toMatchObject({
      name: 'hf:org/repo:q8_0',
      kind: 'gguf',
      commit: COMMIT,
      totalBytes: 300_000,
      missingBytes: 300_000,
    });
    expect(said.files).toEqual([{ path: 'm-Q8_0.gguf', size: 300_000 }]);
    expect([hub.downloads.length, existsSync(repoDir())]).toEqual([0, false]);
  });

  test('refuses wrong options and names before asking', async () => {
    const wrong: [PullOptions, string][] = [
      [{ endpoint: 'ftp://x' }, 'neither https nor http'],
      [{ endpoint: 'nonsense' }, 'is no address'],
      [{ endpoint: 'http://user:secret@host' }, 'has a password'],
      [{ token: 'with space' }, 'the token has spaces'],
      [{ timeoutMs: 0 }, 'timeoutMs'],
      [{ timeoutMs: Number.NaN }, 'timeoutMs'],
      [{ retries: -1 }, 'retries'],
      [{ connections: 1.5 }, 'connections'],
      [{ cacheDir: '' }, 'cacheDir'],
      [{ tokn: 'x' } as PullOptions, 'no option "tokn". Near: \'token\''],
    ];
    for (const [more, message] of wrong) {
      await expect(pull('hf:org/repo', { ...options(), ...more })).rejects.toThrow(
        failsWith('INVALID_OPTION', message),
      );
    }
    await expect(pull('hf:org/repo', null as unknown as PullOptions)).rejects.toThrow(failsWith('INVALID_OPTION'));
    await expect(pull('hf:org/repo', options({ revision: '../x' }))).rejects.toThrow(failsWith('INVALID_NAME'));
    for (const name of ['org/repo', 'hf:org/../x', '../x']) {
      await expect(pull(name, options())).rejects.toThrow(failsWith('INVALID_NAME'));
      await expect(remove(name, { cacheDir })).rejects.toThrow(failsWith('INVALID_NAME'));
    }
    await expect(list({ cachedir: 'x' } as never)).rejects.toThrow(failsWith('INVALID_OPTION'));
    expect(hub.asked).toEqual([]);
  });
});

describe('resumes', () => {
  test('after a connection cut at each of many points, with a range for the rest', async () => {
    hub.add('org/repo', ggufRepo);
    const points = [0, 1, 2, 511, 512, 4095, 4096, 65_535, 65_536, 65_537, 100_000, 131_072, 199_998, 199_999];
    for (const cutAfter of points) {
      rmSync(repoDir(), { recursive: true, force: true });
      hub.asked.length = 0;
      hub.fault = (_, __, { range }) =>
        range === undefined && !hub.downloads.some((asked) => asked.range) && hub.downloads.length <= 2
          ? { cutAfter }
          : undefined;
      const { path, downloadedBytes } = await pull('hf:org/repo', options());
      expect(readFileSync(path).equals(model)).toBe(true);
      expect([cutAfter, downloadedBytes]).toEqual([cutAfter, model.length]);
      const ranges = hub.downloads.filter(({ at }) => at === 'cdn').map(({ range }) => range);
      expect(ranges.length).toBe(2);
      // What was on its way when the connection broke may be lost, but nothing is asked for twice that was here.
      const from = Number(/^bytes=(\d+)-$/.exec(ranges[1] ?? 'bytes=0-')?.[1]);
      expect(from).toBeLessThanOrEqual(cutAfter);
      if (cutAfter > 0) expect(from).toBeGreaterThan(0);
    }
  });

  test('however often it breaks, as long as something comes', async () => {
    hub.add('org/repo', ggufRepo);
    hub.fault = () => ({ cutAfter: 20_000 });
    const { path } = await pull('hf:org/repo', options({ retries: 1 }));
    expect(readFileSync(path).equals(model)).toBe(true);
    expect(hub.downloads.length).toBeGreaterThanOrEqual(20);
  });

  test('not for a server that begins again each time and never ends', async () => {
    hub.add('org/repo', ggufRepo);
    hub.fault = () => ({ bytes: model.subarray(0, 5000), unannounced: true, ignoreRange: true });
    const failed = pull('hf:org/repo', options({ retries: 3 }));
    await expect(failed).rejects.toThrow(
      failsWith('DOWNLOAD_FAILED', 'ended at byte 5000 of 200000. It was tried 4 times'),
    );
  });

  test('not when nothing comes; what is here is kept', async () => {
    hub.add('org/repo', ggufRepo);
    hub.fault = (_, count) => ({ cutAfter: count === 0 ? 50_000 : 0 });
    await expect(pull('hf:org/repo', options({ retries: 2 }))).rejects.toThrow(
      failsWith('DOWNLOAD_FAILED', /m-Q4_K_M\.gguf: .*3 times/),
    );
    expect(existsSync(blob(model))).toBe(false);
    expect(existsSync(join(repoDir(), 'refs'))).toBe(false);
    const kept = statSync(blob(model, '.incomplete')).size;
    expect(kept).toBeGreaterThan(0);
    hub.fault = () => undefined;
    const { path, downloadedBytes } = await pull('hf:org/repo', options());
    expect(hub.downloads.at(-1)!.range).toBe(`bytes=${kept}-`);
    expect([readFileSync(path).equals(model), downloadedBytes]).toEqual([true, model.length - kept]);
    expect(readdirSync(join(repoDir(), 'blobs'))).toEqual([sha256(model)]);
  });

  test.each([
    ['a server without ranges', { ignoreRange: true }, 0],
    [
      'one that answers with another part',
      { status: 206, headers: { 'content-range': `bytes 0-9/${model.length}` } },
      1,
    ],
    ['one whose file is of another length', { status: 206, headers: { 'content-range': `bytes 500-999/1000` } }, 1],
    ['one that refuses the part', { status: 416 }, 1],
    ['a part of a compressed form', { headers: { 'content-encoding': 'gzip' } }, 1],
  ])('%s: begins again', async (_, fault, extra) => {
    hub.add('org/repo', ggufRepo);
    mkdirSync(join(repoDir(), 'blobs'), { recursive: true });
    // What is there must not survive: these bytes are not the file's.
    writeFileSync(blob(model, '.incomplete'), Buffer.alloc(500, 7));
    hub.fault = (__, count) => (count === 0 ? fault : undefined);
    const { path } = await pull('hf:org/repo', options());
    expect(readFileSync(path).equals(model)).toBe(true);
    expect(hub.downloads.filter(({ at }) => at === 'cdn').map(({ range }) => range)).toEqual([
      'bytes=500-',
      ...new Array(extra).fill(undefined),
    ]);
  });

  test('what an earlier download left is hashed: wrong bytes are taken once more, whole', async () => {
    hub.add('org/repo', ggufRepo);
    mkdirSync(join(repoDir(), 'blobs'), { recursive: true });
    for (const left of [Buffer.alloc(1000, 7), Buffer.alloc(model.length, 7), Buffer.alloc(model.length + 5, 7)]) {
      rmSync(blob(model), { force: true });
      writeFileSync(blob(model, '.incomplete'), left);
      const { path } = await pull('hf:org/repo', options());
      expect(readFileSync(path).equals(model)).toBe(true);
    }
    // All of it was there, and right.
    rmSync(blob(model));
    writeFileSync(blob(model, '.incomplete'), model);
    hub.asked.length = 0;
    const phases = new Set<string>();
    expect((await pull('hf:org/repo', options({ onProgress: ({ phase }) => phases.add(phase) }))).downloadedBytes).toBe(
      0,
    );
    expect([hub.downloads.length, phases.has('verifying')]).toEqual([0, true]);
  });

  test.each([
    [429, { 'retry-after': '0.01' }],
    [500, {}],
    [503, { 'retry-after': 'nonsense' }],
    [408, {}],
  ])('after %i, of the listing and of a file', async (status, headers) => {
    hub.add('org/repo', ggufRepo);
    let refusals = 0;
    hub.apiFault = () => (refusals++ < 2 ? { status, headers } : undefined);
    hub.fault = (_, count) => (count < 2 ? { status, headers } : undefined);
    expect(readFileSync((await pull('hf:org/repo', options())).path).equals(model)).toBe(true);
    hub.apiFault = () => ({ status, headers });
    await expect(resolve('hf:org/repo', options({ retries: 1 }))).rejects.toThrow(
      failsWith('DOWNLOAD_FAILED', new RegExp(`${status}.*2 times`)),
    );
  });
});

describe('a server that is wrong', () => {
  test.each([
    ['other bytes', { bytes: noise(model.length, 77) }, /has the hash/],
    ['more bytes', { bytes: Buffer.concat([model, noise(9)]) }, /sends 200009 bytes .* announced 200000/],
    ['fewer bytes', { bytes: model.subarray(9) }, /sends 199991 bytes/],
    [
      'more bytes, not announced',
      { bytes: Buffer.concat([model, noise(9)]), unannounced: true },
      /more bytes|bytes where/,
    ],
  ])('%s: an error, and no blob', async (_, fault, message) => {
    hub.add('org/repo', ggufRepo);
    hub.fault = () => fault;
    await expect(pull('hf:org/repo', options())).rejects.toThrow(failsWith('HASH_MISMATCH', message));
    expect(existsSync(blob(model))).toBe(false);
    expect(existsSync(join(repoDir(), 'snapshots'))).toBe(false);
    hub.fault = () => undefined;
    expect(readFileSync((await pull('hf:org/repo', options())).path).equals(model)).toBe(true);
  });

  test('wrong small files are found too, and fewer bytes are asked for to the end', async () => {
    hub.add('org/repo', { 'config.json': '{"a":1}', 'model.safetensors': noise(10) });
    hub.fault = (path) => (path === 'config.json' ? { bytes: Buffer.from('{"a":2}') } : undefined);
    await expect(pull('hf:org/repo', options())).rejects.toThrow(failsWith('HASH_MISMATCH', 'config.json'));
  });

  test('one that hangs is given up after the limit, at each stage', async () => {
    hub.add('org/repo', ggufRepo);
    for (const hangAfter of [0, 1000]) {
      // The second time nothing: as long as something comes it is tried again.
      hub.fault = (_, count) => ({ hangAfter: count % 2 === 0 ? hangAfter : 0 });
      const start = Date.now();
      await expect(pull('hf:org/repo', options({ timeoutMs: 150, retries: 1 }))).rejects.toThrow(
        failsWith('DOWNLOAD_FAILED', 'sent nothing for 150 ms'),
      );
      expect(Date.now() - start).toBeLessThan(3000);
    }
    const { createServer } = await import('node:net');
    const mute = createServer(() => {});
    await new Promise<void>((resolveListen) => mute.listen(0, '127.0.0.1', resolveListen));
    const endpoint = `http://127.0.0.1:${(mute.address() as { port: number }).port}`;
    await expect(resolve('hf:org/repo', options({ endpoint, timeoutMs: 100, retries: 0 }))).rejects.toThrow(
      failsWith('DOWNLOAD_FAILED', 'sent nothing'),
    );
    mute.close();
  });

  test('one that is slow but sends is waited for', async () => {
    hub.add('org/repo', ggufRepo);
    hub.fault = () => ({ slow: 80 });
    expect(readFileSync((await pull('hf:org/repo', options({ timeoutMs: 1000, retries: 0 }))).path).equals(model)).toBe(
      true,
    );
  });

  test('nobody there', async () => {
    const gone = await FakeHub.start();
    const { endpoint } = gone;
    await gone.stop();
    await expect(resolve('hf:org/repo', options({ endpoint, retries: 9 }))).rejects.toThrow(
      failsWith('DOWNLOAD_FAILED', /connection to 127.*ECONNREFUSED.*2 times/),
    );
  });

  test.each([
    ['no JSON', { status: 200, body: '<html>' }],
    ['JSON of another kind', { status: 200, body: '[]' }],
    ['null', { status: 200, body: 'null' }],
    ['a commit that is a path', { status: 200, body: '{"sha":"../../../../etc"}' }],
  ])('a listing that is %s', async (_, answer) => {
    hub.add('org/repo', ggufRepo);
    hub.apiFault = () => answer;
    await expect(resolve('hf:org/repo', options())).rejects.toThrow(failsWith('DOWNLOAD_FAILED', 'cannot be read'));
    hub.apiFault = (url) => (url.includes('/tree/') ? answer : undefined);
    const outcome = await resolve('hf:org/repo', options()).catch((error) => error);
    expect(outcome).toBeInstanceOf(HubError);
  });

  test.each([
    ['path', { path: '../../../evil.gguf' }, 'INVALID_NAME'],
    ['path', { path: '/etc/evil.gguf' }, 'INVALID_NAME'],
    ['path', { path: 'a/../../evil.gguf' }, 'INVALID_NAME'],
    ['path', { path: 'a\\..\\evil.gguf' }, 'INVALID_NAME'],
    ['path', { path: 'evil\0.gguf' }, 'INVALID_NAME'],
    ['path', { path: 7 }, 'DOWNLOAD_FAILED'],
    ['hash', { oid: '../../evil', lfs: undefined }, 'DOWNLOAD_FAILED'],
    ['hash', { lfs: { oid: 'x'.repeat(64), size: 4 } }, 'DOWNLOAD_FAILED'],
    ['size', { lfs: undefined, size: -1 }, 'DOWNLOAD_FAILED'],
    ['size', { lfs: undefined, size: 1e300 }, 'DOWNLOAD_FAILED'],
  ])('a listing with a bad %s: %j', async (_, change, code) => {
    hub.add('org/repo', { 'm.gguf': model });
    hub.entry = (entry) => ({ ...entry, ...change });
    await expect(pull('hf:org/repo', options())).rejects.toThrow(failsWith(code));
    expect(hub.downloads).toEqual([]);
    expect(readdirSync(cacheDir)).toEqual([]);
  });
});

describe('access', () => {
  const token = 'hf_secret';

  test('the token goes to the hub and to nobody else', async () => {
    hub.add('org/repo', { ...ggufRepo, 'config.json': '{}' }, { token });
    await pull('hf:org/repo', options({ token }));
    expect(hub.asked.length).toBeGreaterThan(3);
    for (const { at, authorization } of hub.asked)
      expect(authorization).toBe(at === 'hub' ? `Bearer ${token}` : undefined);
  });

  test('comes from HF_TOKEN, or the file of hf auth login, unless that is switched off', async () => {
    hub.add('org/repo', ggufRepo, { token });
    const home = mkdtempSync(join(root, 'home-'));
    const saved = { ...process.env };
    try {
      process.env.HF_ENDPOINT = `${hub.endpoint}/`;
      process.env.HF_HOME = home;
      writeFileSync(join(home, 'token'), `${token}\n`);
      expect((await resolve('hf:org/repo')).totalBytes).toBe(model.length);
      await expect(resolve('hf:org/repo', { token: false })).rejects.toThrow(failsWith('NOT_FOUND', 'HF_TOKEN'));
      process.env.HF_HUB_DISABLE_IMPLICIT_TOKEN = '1';
      await expect(resolve('hf:org/repo')).rejects.toThrow(failsWith('NOT_FOUND', 'HF_TOKEN'));
      delete process.env.HF_HUB_DISABLE_IMPLICIT_TOKEN;
      process.env.HF_TOKEN = 'hf_wrong';
      await expect(resolve('hf:org/repo')).rejects.toThrow(failsWith('UNAUTHORIZED', 'does not accept the token'));
      process.env.HF_TOKEN = ` ${token}\n`;
      expect((await pull('hf:org/repo')).path).toContain(join(home, 'hub', 'models--org--repo'));
      process.env.HF_HUB_CACHE = join(home, 'elsewhere');
      expect((await pull('hf:org/repo')).path).toContain(join(home, 'elsewhere', 'models--org--repo'));
      process.env.HF_HUB_OFFLINE = '1';
      hub.asked.length = 0;
      expect((await pull('hf:org/repo')).downloadedBytes).toBe(0);
      expect(hub.asked).toEqual([]);
    } finally {
      process.env = saved;
    }
  });

  test.each([
    ['no such repository', 'hf:org/none', {}, 'NOT_FOUND', /hf:org\/none: there is no such repository.*Check its name/],
    ['a private one without a token', 'hf:org/private', {}, 'NOT_FOUND', /give a token in HF_TOKEN/],
    [
      'a private one with another token',
      'hf:org/private',
      { token: 'hf_other' },
      'UNAUTHORIZED',
      /does not accept the token/,
    ],
    ['a gated one without a token', 'hf:org/gated', {}, 'UNAUTHORIZED', /gated/],
    ['a gated one with another token', 'hf:org/gated', { token: 'hf_other' }, 'UNAUTHORIZED', /gated/],
    ['no such revision', 'hf:org/open@v9', {}, 'NOT_FOUND', /hf:org\/open@v9: there is no such revision/],
  ])('%s', async (_, name, more, code, message) => {
    hub.add('org/open', ggufRepo);
    hub.add('org/private', ggufRepo, { token });
    hub.add('org/gated', ggufRepo, { token, gated: true });
    const error = await pull(name, options(more)).catch((caught) => caught);
    expect(error).toEqual(failsWith(code, message));
    expect(error.message).not.toContain('hf_other');
    for (const status of [401, 403, 404]) {
      hub.apiFault = () => ({ status });
      await expect(pull('hf:org/open', options())).rejects.toThrow(
        failsWith(status === 403 ? 'UNAUTHORIZED' : 'NOT_FOUND'),
      );
    }
  });

  /** A fetch for which the server here is a host of the internet. */
  const asPublic: typeof fetch = (input, init) =>
    fetch(String(input).replace('https://hub.example', hub.endpoint), init);

  test('a public hub may not lead to this machine, a private network, or out of https', async () => {
    hub.add('org/repo', ggufRepo);
    for (const cdn of [
      hub.contentEndpoint.replace('http', 'https'),
      'https://localhost',
      'https://[::1]',
      'https://169.254.169.254',
      'https://10.0.0.1',
      'http://other.example',
      'file:///etc',
      'https://user:pass@other.example',
    ]) {
      hub.cdn = cdn;
      await expect(pull('hf:org/repo', options({ endpoint: 'https://hub.example', fetch: asPublic }))).rejects.toThrow(
        failsWith('UNSAFE_REDIRECT', 'hub.example redirects to'),
      );
    }
    expect(hub.asked.filter(({ at }) => at === 'cdn')).toEqual([]);
    hub.cdn = 'https://hub.example';
    await expect(pull('hf:org/repo', options({ endpoint: 'https://hub.example', fetch: asPublic }))).rejects.toThrow(
      failsWith('UNSAFE_REDIRECT', 'more than 10 times'),
    );
  });

  test.each(['the same', 'another'])('pages of a listing without end end it, each leading to %s one', async (way) => {
    hub.add('org/repo', ggufRepo);
    let pages = 0;
    hub.apiFault = (url) => {
      if (!url.includes('/tree/')) return undefined;
      const next = `${hub.endpoint}${url.split('?')[0]}?cursor=${way === 'another' ? ++pages : 1}`;
      return { status: 200, body: '[]', headers: { link: `<${next}>; rel="next"` } };
    };
    await expect(pull('hf:org/repo', options())).rejects.toThrow(
      failsWith('DOWNLOAD_FAILED', /hf:org\/repo.*pages without end/),
    );
  });

  test('the pages of a listing stay with the hub', async () => {
    hub.add('org/repo', ggufRepo, { token });
    hub.apiFault = (url) =>
      url.includes('/tree/')
        ? { status: 200, body: '[]', headers: { link: `<${hub.contentEndpoint}/steal>; rel="next"` } }
        : undefined;
    await expect(pull('hf:org/repo', options({ token }))).rejects.toThrow(
      failsWith('UNSAFE_REDIRECT', 'the listing goes on at'),
    );
    expect(hub.asked.filter(({ at }) => at === 'cdn')).toEqual([]);
  });
});

describe('what the disk has no place for', () => {
  test('names as long as the hub allows are stored, longer ones refused before they are downloaded', async () => {
    const longest = `${'a'.repeat(250)}.gguf`;
    hub.add('org/repo', { [longest]: model });
    expect((await pull('hf:org/repo', options())).path.endsWith(longest)).toBe(true);
    hub.add('org/other', { [`${'ж'.repeat(240)}.gguf`]: model });
    await expect(pull('hf:org/other', options())).rejects.toThrow(failsWith('INVALID_NAME', 'cannot be stored'));
    expect(hub.downloads.filter(({ url }) => url.includes('org/other'))).toEqual([]);
  });

  test.each([
    ['a directory where a blob belongs', () => mkdirSync(join(blob(model), 'x'), { recursive: true })],
    ['a file where the cache belongs', () => writeFileSync(join(cacheDir, 'models--org--repo'), '')],
  ])('%s is an error of the cache', async (_, make) => {
    hub.add('org/repo', ggufRepo);
    make();
    await expect(pull('hf:org/repo', options())).rejects.toThrow(failsWith('CACHE_UNWRITABLE'));
  });

  test.each(['/proc/1/x', `/tmp/${'c'.repeat(300)}`])('a cache at %s is refused, and the pull ends', async (path) => {
    hub.add('org/repo', ggufRepo);
    await expect(pull('hf:org/repo', options({ cacheDir: path }))).rejects.toThrow(failsWith('CACHE_UNWRITABLE'));
  });
});

describe('offline', () => {
  test('takes what is here, and says what is not', async () => {
    hub.add('org/repo', { ...ggufRepo, 'config.json': '{}', 'model.safetensors': noise(1200) });
    const off = { offline: true, cacheDir };
    await expect(pull('hf:org/repo', off)).rejects.toThrow(failsWith('OFFLINE', 'revision main is not in the cache'));
    const pulled = await pull('hf:org/repo:Q8_0', options());
    hub.asked.length = 0;
    expect((await pull('hf:org/repo:Q8_0', off)).path).toBe(pulled.path);
    expect((await resolve(`hf:org/repo:Q8_0@${COMMIT}`, off)).missingBytes).toBe(0);
    // The name without a tag means the same as online, whatever is in the cache.
    await expect(pull('hf:org/repo', off)).rejects.toThrow(failsWith('OFFLINE', 'm-Q4_K_M.gguf is not in the cache'));
    await expect(pull('hf:org/repo:safetensors', off)).rejects.toThrow(failsWith('OFFLINE'));
    // As in a cache of a program that does not write down the listing.
    rmSync(join(repoDir(), 'trees'), { recursive: true });
    expect((await pull('hf:org/repo', off)).path).toBe(pulled.path);
    expect(hub.asked).toEqual([]);
  });

  test('update: false asks only for what is not here', async () => {
    hub.add('org/repo', ggufRepo);
    const { path } = await pull('hf:org/repo', options({ update: false }));
    hub.asked.length = 0;
    expect((await pull('hf:org/repo', options({ update: false }))).path).toBe(path);
    expect(hub.asked).toEqual([]);
    expect((await pull('hf:org/repo:Q8_0', options({ update: false }))).downloadedBytes).toBe(300_000);
    rmSync(join(repoDir(), 'trees'), { recursive: true });
    hub.asked.length = 0;
    await pull('hf:org/repo:Q8_0', options({ update: false }));
    expect(hub.asked).toEqual([]);
    await pull('hf:org/repo', options({ update: false }));
    expect(hub.asked.length).toBe(2);
  });
});

describe('stopping', () => {
  test('at each stage with the reason of the signal, leaving what came', async () => {
    hub.add('org/repo', { ...ggufRepo, 'config.json': '{}', 'model.safetensors': noise(60_000, 4) });
    await expect(pull('hf:org/repo', options({ signal: AbortSignal.abort() }))).rejects.toMatchObject({
      name: 'AbortError',
    });
    const stages = [0, 1, 2, 3, 4];
    for (const stage of stages) {
      const controller = new AbortController();
      const reason = new Error(`stage ${stage}`);
      hub.asked.length = 0;
      const abort = (path = '') => {
        // An earlier stage may have left nothing but the weights to come.
        if (hub.asked.length > stage || path === 'model.safetensors') controller.abort(reason);
      };
      hub.apiFault = () => void abort() as undefined;
      hub.fault = (path) => {
        abort(path);
        return { slow: 5 };
      };
      const outcome = await pull('hf:org/repo:safetensors', options({ signal: controller.signal })).catch(
        (error) => error,
      );
      expect(outcome).toBe(reason);
      expect(existsSync(join(repoDir(), 'refs'))).toBe(false);
    }
    // In the middle of bytes, by the one who is told of them.
    const controller = new AbortController();
    const seen: PullProgress[] = [];
    const onProgress = (progress: PullProgress) => {
      seen.push(progress);
      if (progress.bytes > 20_000) controller.abort();
    };
    hub.fault = () => ({ slow: 3 });
    await expect(pull('hf:org/repo:Q8_0', options({ signal: controller.signal, onProgress }))).rejects.toMatchObject({
      name: 'AbortError',
    });
    expect(seen.at(-1)!.bytes).toBeLessThan(100_000);
    expect(statSync(blob(ggufRepo['m-Q8_0.gguf'], '.incomplete')).size).toBe(seen.at(-1)!.fileBytes);
    const thrown = new Error('from the listener');
    const throwing = () => {
      throw thrown;
    };
    await expect(pull('hf:org/repo:Q8_0', options({ onProgress: throwing }))).rejects.toBe(thrown);
    hub.fault = () => undefined;
    expect(readFileSync((await pull('hf:org/repo:Q8_0', options())).path).equals(ggufRepo['m-Q8_0.gguf'])).toBe(true);
  });

  test.each(['fetch', 'body'])('a %s that does not answer to its signal', async (which) => {
    hub.add('org/repo', ggufRepo);
    const controller = new AbortController();
    const reason = new Error('enough');
    const never = new Promise<never>(() => {});
    const deaf: typeof fetch = async (input, init) => {
      if (!String(input).includes('/resolve/')) return fetch(input, init);
      setTimeout(() => controller.abort(reason), 20);
      return which === 'fetch' ? never : new Response(new ReadableStream({ pull: () => never }));
    };
    await expect(pull('hf:org/repo', options({ fetch: deaf, signal: controller.signal }))).rejects.toBe(reason);
  });

  test('while it waits to try again', async () => {
    hub.add('org/repo', ggufRepo);
    hub.apiFault = () => ({ status: 503, headers: { 'retry-after': '30' } });
    const start = Date.now();
    await expect(pull('hf:org/repo', options({ signal: AbortSignal.timeout(100) }))).rejects.toMatchObject({
      name: 'TimeoutError',
    });
    expect(Date.now() - start).toBeLessThan(2000);
  });

  test('what one file fails with ends the others at once', async () => {
    const files = Object.fromEntries([1, 2, 3].map((i) => [`m-0000${i}-of-00003.gguf`, noise(100_000, i)]));
    hub.add('org/repo', files);
    hub.fault = (path) => (path.includes('00002-of') ? { bytes: noise(100_000, 9) } : { hangAfter: 10 });
    await expect(pull('hf:org/repo', options({ timeoutMs: 20_000 }))).rejects.toThrow(
      failsWith('HASH_MISMATCH', '00002-of'),
    );
  });
});

test('progress grows to all bytes, those that were here before included', async () => {
  const files = Object.fromEntries([1, 2, 3].map((i) => [`m-0000${i}-of-00003.gguf`, noise(100_000, i)]));
  hub.add('org/repo', files);
  await pull('hf:org/repo', options());
  rmSync(blob(files['m-00002-of-00003.gguf']));
  writeFileSync(
    blob(files['m-00002-of-00003.gguf'], '.incomplete'),
    files['m-00002-of-00003.gguf'].subarray(0, 40_000),
  );
  const seen: PullProgress[] = [];
  const { downloadedBytes } = await pull('hf:org/repo', options({ onProgress: (progress) => seen.push(progress) }));
  expect(downloadedBytes).toBe(60_000);
  expect(seen.find(({ phase }) => phase === 'downloading')).toMatchObject({
    fileBytes: 40_000,
    bytes: 240_000,
    totalBytes: 300_000,
  });
  expect(seen.at(-1)).toMatchObject({
    file: 'm-00002-of-00003.gguf',
    fileBytes: 100_000,
    fileTotalBytes: 100_000,
    bytes: 300_000,
  });
  expect(seen.every(({ bytes }, i) => i === 0 || bytes >= seen[i - 1].bytes)).toBe(true);
});

test('no more files at once than connections', async () => {
  hub.add(
    'org/repo',
    Object.fromEntries(Array.from({ length: 9 }, (_, i) => [`m-0000${i + 1}-of-00009.gguf`, noise(2000, i)])),
  );
  const open = new Set<string>();
  let most = 0;
  hub.fault = () => ({ slow: 1 });
  const onProgress = ({ file, fileBytes, fileTotalBytes }: PullProgress) => {
    if (fileBytes === fileTotalBytes) open.delete(file);
    else open.add(file);
    most = Math.max(most, open.size);
  };
  await pull('hf:org/repo', options({ connections: 3, onProgress }));
  expect(most).toBe(3);
});

describe('a disk', () => {
  test('that is full: said before, and when it happens', async () => {
    hub.add('org/repo', ggufRepo);
    hub.entry = (entry) => ({ ...entry, lfs: { oid: sha256(model), size: 2 ** 52, pointerSize: 1 } });
    await expect(pull('hf:org/repo', options())).rejects.toThrow(failsWith('DISK_FULL', /GB are to come and .* free/));
    expect(hub.downloads).toEqual([]);
    hub.entry = (entry) => entry;
    symlinkSync('/dev/full', blob(model, '.incomplete'));
    await expect(pull('hf:org/repo', options())).rejects.toThrow(failsWith('DISK_FULL', 'goes on where it stopped'));
  });

  test('that cannot be written: said, but what is here is found', async () => {
    hub.add('org/repo', ggufRepo);
    const file = join(cacheDir, 'file');
    writeFileSync(file, '');
    await expect(pull('hf:org/repo', options({ cacheDir: join(file, 'cache') }))).rejects.toThrow(
      failsWith('CACHE_UNWRITABLE', 'HF_HUB_CACHE'),
    );
    await pull('hf:org/repo', options());
    // Nothing can be written under refs any more.
    rmSync(join(repoDir(), 'refs'), { recursive: true });
    writeFileSync(join(repoDir(), 'refs'), '');
    expect((await pull('hf:org/repo', options())).downloadedBytes).toBe(0);
    await expect(pull('hf:org/repo:Q8_0', options())).rejects.toThrow(failsWith('CACHE_UNWRITABLE'));
  });
});

afterEach(() => {
  // A lock that is not given back would leave a process.
  const children = readFileSync(`/proc/self/task/${process.pid}/children`, 'utf8').trim().split(' ').filter(Boolean);
  const locking = children.filter(
    (pid) => existsSync(`/proc/${pid}/comm`) && /^(flock|cat)$/.test(readFileSync(`/proc/${pid}/comm`, 'utf8').trim()),
  );
  expect(locking).toEqual([]);
});
