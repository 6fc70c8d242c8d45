/**
 * A server on this machine that speaks as much of the hub's API as a download needs: model info, listings in pages, files with
 * the hub's headers, large ones behind a redirect to a second origin as to the hub's content network. What goes wrong is
 * chosen request by request.
 */
import { createHash } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

/** What happens to one request for a file's bytes. */
export interface Fault {
  /** Answers so instead. */
  status?: number;
  headers?: Record<string, string>;
  /** Breaks the connection after so many bytes of this answer. */
  cutAfter?: number;
  /** Sends so many bytes and then nothing. */
  hangAfter?: number;
  /** Sends a whole file whatever part was asked for. */
  ignoreRange?: boolean;
  /** Sends these instead. */
  bytes?: Buffer;
  /** Does not say how long the answer is. */
  unannounced?: boolean;
  /** Pause in ms before each of 16 parts. */
  slow?: number;
}

export interface Asked {
  method: string;
  /** Path and query. */
  url: string;
  /** `hub` or `cdn`. */
  at: string;
  range?: string;
  authorization?: string;
}

export interface FakeRepo {
  /** Commit of every branch and tag. */
  refs: Record<string, string>;
  files: Record<string, Buffer>;
  /** Needs this token. */
  token?: string;
  gated?: boolean;
}

/** Files of at least this size are in LFS. */
const LFS_BYTES = 1000;
const JSON_TYPE = { 'content-type': 'application/json' };
export const COMMIT = '0123456789abcdef0123456789abcdef01234567';

export const sha256 = (data: Buffer) => createHash('sha256').update(data).digest('hex');
export const gitSha1 = (data: Buffer) => createHash('sha1').update(`blob ${data.length}\0`).update(data).digest('hex');
const isLfs = (data: Buffer) => data.length >= LFS_BYTES;
/** What a file's blob is called. */
export const oidOf = (data: Buffer) => (isLfs(data) ? sha256(data) : gitSha1(data));

/** Bytes that compress badly and differ from place to place. */
export function noise(length: number, seed = 1): Buffer {
  const data = Buffer.alloc(length);
  let state = seed;
  for (let i = 0; i < length; i++) {
    state = (Math.imul(state, 1103515245) + 12345) >>> 0;
    data[i] = state >>> 16;
  }
  return data;
}

export class FakeHub {
  readonly repos = new Map<string, FakeRepo>();
  readonly asked: Asked[] = [];
  /** Entries on a page of a listing. */
  pageSize = 1000;
  /** Where files in LFS are redirected to; default the second server. */
  cdn?: string;
  /** Asked before a listing or model info is answered. */
  apiFault: (url: string) => { status: number; headers?: Record<string, string>; body?: string } | undefined = () =>
    undefined;
  /** Asked before bytes of a file are sent, with how often that happened before. */
  fault: (path: string, count: number, asked: Asked) => Fault | undefined = () => undefined;
  /** Changes an entry of a listing. */
  entry: (entry: Record<string, unknown>) => unknown = (entry) => entry;
  readonly #counts = new Map<string, number>();

  private constructor(
    readonly hub: Server,
    readonly content: Server,
  ) {}

  static async start(): Promise<FakeHub> {
    const servers = [createServer(), createServer()];
    const fake = new FakeHub(servers[0], servers[1]);
    for (const [i, server] of servers.entries()) {
      server.on('request', (request, response) => {
        fake.#answer(i === 0 ? 'hub' : 'cdn', request, response).catch(() => response.destroy());
      });
      await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    }
    return fake;
  }

  get endpoint(): string {
    return `http://127.0.0.1:${(this.hub.address() as AddressInfo).port}`;
  }

  get contentEndpoint(): string {
    return `http://127.0.0.1:${(this.content.address() as AddressInfo).port}`;
  }

  /** Adds a repository whose `main` is {@link COMMIT}. */
  add(name: string, files: Record<string, Buffer | string>, more: Partial<FakeRepo> = {}): FakeRepo {
    const buffers = Object.fromEntries(Object.entries(files).map(([path, data]) => [path, Buffer.from(data)]));
    const repo = { refs: { main: COMMIT }, files: buffers, ...more };
    this.repos.set(name, repo);
    return repo;
  }

  reset(): void {
    this.repos.clear();
    this.asked.length = 0;
    this.#counts.clear();
    this.pageSize = 1000;
    this.cdn = undefined;
    this.apiFault = () => undefined;
    this.fault = () => undefined;
    this.entry = (entry) => entry;
  }

  /** Requests for bytes of files. */
  get downloads(): Asked[] {
    return this.asked.filter(
      ({ url, method }) => method === 'GET' && (url.includes('/content/') || url.includes('/resolve/')),
    );
  }

  async stop(): Promise<void> {
    for (const server of [this.hub, this.content]) {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    }
  }

  async #answer(at: string, request: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = request.url ?? '';
    const asked: Asked = {
      method: request.method ?? '',
      url,
      at,
      range: request.headers.range,
      authorization: request.headers.authorization,
    };
    this.asked.push(asked);
    const { pathname, searchParams } = new URL(url, 'http://localhost');
    const [, api] = /^\/api\/models\/(.*)$/.exec(pathname) ?? [];
    if (api === undefined) await this.#file(pathname, asked, response);
    else this.#api(api, searchParams, asked, response);
  }

  async #file(pathname: string, asked: Asked, response: ServerResponse): Promise<void> {
    const { at, url } = asked;
    const [, name, revision, rawPath] = /^\/(?:content\/)*([^/]+\/[^/]+)\/resolve\/([^/]+)\/(.+)$/.exec(pathname) ?? [];
    const repo = this.repos.get(name);
    const path = decodeURIComponent(rawPath ?? '');
    const refused = this.#refusal(repo, at === 'cdn' ? `Bearer ${repo?.token}` : asked.authorization);
    if (refused !== undefined) {
      fail(response, refused.status, refused.code);
      return;
    }
    const commit = commitOf(repo!, decodeURIComponent(revision));
    const data = repo!.files[path];
    if (commit === undefined || data === undefined) {
      fail(response, 404, commit === undefined ? 'RevisionNotFound' : 'EntryNotFound');
      return;
    }
    const headers: Record<string, string> = {
      'x-repo-commit': commit,
      etag: `"${gitSha1(data)}"`,
      'accept-ranges': 'bytes',
    };
    if (at === 'hub' && isLfs(data)) {
      headers['x-linked-etag'] = `"${sha256(data)}"`;
      headers['x-linked-size'] = String(data.length);
      headers.location = `${this.cdn ?? this.contentEndpoint}/content${url}`;
      response.writeHead(302, headers).end();
      return;
    }
    const counted = asked.method === 'GET' ? (this.#counts.get(path) ?? 0) : 0;
    if (asked.method === 'GET') this.#counts.set(path, counted + 1);
    const fault = asked.method === 'GET' ? (this.fault(path, counted, asked) ?? {}) : {};
    await send(asked, data, headers, fault, response);
  }

  #api(rest: string, query: URLSearchParams, { url, authorization }: Asked, response: ServerResponse): void {
    const fault = this.apiFault(url);
    if (fault !== undefined) {
      response
        .writeHead(fault.status, { 'content-type': 'application/json', ...fault.headers })
        .end(fault.body ?? '{}');
      return;
    }
    const [, name, call, revision] = /^([^/]+\/[^/]+)\/(revision|tree)\/(.+)$/.exec(rest) ?? [];
    const repo = this.repos.get(name);
    const refused = this.#refusal(repo, authorization);
    // What a gated repository holds is public, its files are not.
    const commit = repo && commitOf(repo, decodeURIComponent(revision));
    if (refused !== undefined && refused.code !== 'GatedRepo') fail(response, refused.status, refused.code);
    else if (commit === undefined) fail(response, 404, 'RevisionNotFound');
    else if (call === 'revision') this.#info(name, repo!, commit, response);
    else this.#tree(repo!, url, query, response);
  }

  #info(name: string, { files }: FakeRepo, commit: string, response: ServerResponse): void {
    const info = {
      _id: '1',
      id: name,
      modelId: name,
      sha: commit,
      private: false,
      gated: false,
      siblings: Object.keys(files).map((rfilename) => ({ rfilename })),
      lastModified: '2026-01-01T00:00:00.000Z',
      likes: 0,
      downloads: 0,
      tags: [],
    };
    response.writeHead(200, JSON_TYPE).end(JSON.stringify(info));
  }

  #tree(repo: FakeRepo, url: string, query: URLSearchParams, response: ServerResponse): void {
    const directories = new Set(
      Object.keys(repo.files).flatMap((path) => (path.includes('/') ? [path.slice(0, path.lastIndexOf('/'))] : [])),
    );
    const entries: unknown[] = [...directories].map((path) => ({
      type: 'directory',
      path,
      size: 0,
      oid: '0'.repeat(40),
    }));
    for (const [path, data] of Object.entries(repo.files)) {
      const lfs = isLfs(data) ? { lfs: { oid: sha256(data), size: data.length, pointerSize: 134 } } : {};
      entries.push(this.entry({ type: 'file', path, size: data.length, oid: gitSha1(data), ...lfs }));
    }
    const start = Number(query.get('cursor') ?? 0);
    const end = start + this.pageSize;
    query.set('cursor', String(end));
    const next = end < entries.length ? { link: `<${this.endpoint}${url.split('?')[0]}?${query}>; rel="next"` } : {};
    response.writeHead(200, { ...JSON_TYPE, ...next }).end(JSON.stringify(entries.slice(start, end)));
  }

  #refusal(repo: FakeRepo | undefined, authorization?: string): { status: number; code: string } | undefined {
    if (repo === undefined) return { status: authorization === undefined ? 401 : 404, code: 'RepoNotFound' };
    if (repo.token === undefined || authorization === `Bearer ${repo.token}`) return undefined;
    if (repo.gated) return { status: authorization === undefined ? 401 : 403, code: 'GatedRepo' };
    return authorization === undefined ? { status: 401, code: 'RepoNotFound' } : { status: 401, code: '' };
  }
}

function commitOf({ refs }: FakeRepo, revision: string): string | undefined {
  return refs[revision] ?? Object.values(refs).find((commit) => commit === revision);
}

function fail(response: ServerResponse, status: number, code: string): void {
  response
    .writeHead(status, { 'content-type': 'application/json', ...(code && { 'x-error-code': code }) })
    .end(JSON.stringify({ error: code }));
}

async function send(
  { method, range }: Asked,
  whole: Buffer,
  headers: Record<string, string>,
  fault: Fault,
  response: ServerResponse,
): Promise<void> {
  if (fault.status !== undefined) {
    response.writeHead(fault.status, fault.headers).end();
    return;
  }
  const data = fault.bytes ?? whole;
  const [, from, to] = /^bytes=(\d+)-(\d*)$/.exec(range ?? '') ?? [];
  const isPart = from !== undefined && !fault.ignoreRange;
  const start = isPart ? Number(from) : 0;
  const end = isPart && to !== '' ? Number(to) + 1 : data.length;
  if (isPart && start >= data.length) {
    response.writeHead(416, { 'content-range': `bytes */${data.length}` }).end();
    return;
  }
  const part = isPart ? { 'content-range': `bytes ${start}-${end - 1}/${data.length}` } : {};
  response.writeHead(isPart ? 206 : 200, {
    ...headers,
    ...(fault.unannounced ? {} : { 'content-length': String(end - start) }),
    ...part,
    ...fault.headers,
  });
  if (method === 'HEAD') {
    response.end();
    return;
  }
  const body = data.subarray(start, end);
  if (fault.slow !== undefined) {
    const step = Math.ceil(body.length / 16);
    for (let at = 0; at < body.length; at += step) {
      await new Promise((resolve) => setTimeout(resolve, fault.slow));
      response.write(body.subarray(at, at + step));
    }
    response.end();
    return;
  }
  const shown = fault.cutAfter ?? fault.hangAfter;
  if (shown === undefined) {
    response.end(body);
    return;
  }
  response.flushHeaders();
  // What was written is on its way before the connection breaks.
  response.write(body.subarray(0, shown), () => {
    if (fault.cutAfter !== undefined) setTimeout(() => response.destroy(), 2);
  });
  if (shown === 0 && fault.cutAfter !== undefined) setTimeout(() => response.destroy(), 2);
}
