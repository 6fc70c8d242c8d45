/**
 * One blob into the cache: goes on where an earlier download stopped (`.incomplete`), checks size and hash, and moves it
 * into place under a lock.
 */
import { createHash, type Hash } from 'node:crypto';
import { type FileHandle, open, rename, rm, stat } from 'node:fs/promises';
import type { RepoCache } from './cache';
import { fileError, HubError } from './errors';
import { type Answer, type HubClient, PassingError, refusal } from './http';
import type { RepoFile } from './listing';
import { acquire } from './lock';

export type TransferPhase = 'waiting' | 'verifying' | 'downloading';

export interface TransferContext {
  client: HubClient;
  cache: RepoCache;
  commit: string;
  /** Bytes of the file that are here, whenever that changes. */
  onBytes(bytes: number, phase: TransferPhase): void;
}

/** Bytes read at once to hash what an earlier download left. */
const PIECE_BYTES = 4 * 2 ** 20;
/** Times that a file is taken from its beginning because its hash was wrong. */
const MOST_PASSES = 3;

/** @throws HubError, the signal's reason; what came stays for the next time, unless it was wrong */
export async function transfer(file: RepoFile, context: TransferContext): Promise<void> {
  const { cache, client } = context;
  const { signal } = client.settings;
  const release = await acquire(cache.lock(file.oid), { signal, onWait: () => context.onBytes(0, 'waiting') }).catch(
    (cause) => {
      throw signal?.aborted ? signal.reason : fileError(cache.lock(file.oid), cause);
    },
  );
  try {
    if (await hasBlob(cache, file)) return;
    const path = cache.incomplete(file.oid);
    const partial = await PartialFile.open(path, file);
    try {
      await fill(partial, file, context);
    } finally {
      await partial.handle.close();
    }
    await rename(path, cache.blob(file.oid)).catch((cause) => {
      throw fileError(path, cause);
    });
  } finally {
    await release?.();
  }
}

/** Whether the blob is there; another process, or another file with the same content, may have brought it. */
async function hasBlob(cache: RepoCache, { oid, size }: RepoFile): Promise<boolean> {
  const path = cache.blob(oid);
  const stats = await stat(path).catch(() => undefined);
  if (stats?.size === size) return true;
  // Cut short by a full disk or a crash.
  if (stats !== undefined)
    await rm(path, { force: true }).catch((cause) => {
      throw fileError(path, cause);
    });
  return false;
}

async function fill(partial: PartialFile, file: RepoFile, context: TransferContext): Promise<void> {
  const { client, cache, onBytes } = context;
  const { signal } = client.settings;
  await partial.hashStart(() => onBytes(0, 'verifying'), signal);
  // Bytes that an earlier process left, or that came in several pieces, may be wrong through no fault of the hub's.
  let pieces = partial.bytes > 0 ? 1 : 0;
  for (let pass = 1; ; pass++) {
    onBytes(partial.bytes, 'downloading');
    const more = () => {
      pieces++;
      return receive(partial, file, context);
    };
    await client.retrying(file.path, more, () => partial.furthest);
    signal?.throwIfAborted();
    const found = partial.digest();
    if (found === file.oid) break;
    await partial.restart();
    partial.furthest = 0;
    if (pieces === 1 || pass === MOST_PASSES) {
      await rm(cache.incomplete(file.oid), { force: true });
      throw new HubError(
        'HASH_MISMATCH',
        `${file.path}: what came has the hash ${found} where the hub announced ${file.oid}. It was deleted. Try again, and check proxies and HF_ENDPOINT.`,
      );
    }
    pieces = 0;
  }
  await partial.handle.datasync().catch((cause) => {
    throw fileError(partial.path, cause);
  });
}

/** Requests what is missing and writes it as it comes. */
async function receive(
  partial: PartialFile,
  file: RepoFile,
  { client, cache, commit, onBytes }: TransferContext,
): Promise<void> {
  if (partial.bytes === file.size) return;
  const { endpoint } = client.settings;
  const address = `${endpoint}/${cache.repo}/resolve/${commit}/${file.path.split('/').map(encodeURIComponent).join('/')}`;
  const answer = await client.get(address, partial.bytes > 0 ? { range: `bytes=${partial.bytes}-` } : {});
  try {
    if (answer.status === 416 || (answer.status === 206 && !continues(answer, partial.bytes, file.size))) {
      // What is here is not the beginning of what is there.
      await partial.restart();
      throw new PassingError(`${new URL(endpoint).host} does not go on at the byte asked for`);
    }
    if (answer.status !== 200 && answer.status !== 206) throw refusal(answer, client.settings);
    checkAnnounced(answer, file);
    // The whole file although a part was asked for.
    if (answer.status === 200 && partial.bytes > 0) await partial.restart();
    for await (const chunk of answer.chunks()) {
      if (partial.bytes + chunk.byteLength > file.size) {
        await partial.restart();
        throw wrongSize(file, 'more');
      }
      await partial.append(chunk);
      onBytes(partial.bytes, 'downloading');
    }
  } finally {
    await answer.close();
  }
  if (partial.bytes < file.size)
    throw new PassingError(`the connection ended at byte ${partial.bytes} of ${file.size}`);
}

/** Whether a part of a file is the one asked for, as bytes of the file and not of a compressed form. */
function continues({ headers }: Answer, from: number, size: number): boolean {
  const [, start, total] = /^bytes (\d+)-\d+\/(\d+|\*)$/.exec(headers.get('content-range') ?? '') ?? [];
  return isPlain(headers) && Number(start) === from && (total === '*' || Number(total) === size);
}

function isPlain(headers: Headers): boolean {
  return (headers.get('content-encoding') ?? 'identity') === 'identity';
}

/** What the headers of the hub and of where it leads to say about the file, before its bytes are taken. */
function checkAnnounced({ headers, trail, status }: Answer, file: RepoFile): void {
  const [linked] = trail.flatMap((each) => each.get('x-linked-etag')?.replace(/^W\/|"/g, '') ?? []);
  if (linked !== undefined && linked !== file.oid) {
    throw new HubError(
      'HASH_MISMATCH',
      `${file.path}: the hub has the hash ${linked.slice(0, 80)} now where it listed ${file.oid}. Try again.`,
    );
  }
  const length = headers.get('content-length');
  if (status === 200 && length !== null && isPlain(headers) && Number(length) !== file.size) {
    throw wrongSize(file, length);
  }
}

function wrongSize(file: RepoFile, bytes: string): HubError {
  return new HubError(
    'HASH_MISMATCH',
    `${file.path}: the server sends ${bytes} bytes where the hub announced ${file.size}. Try again, and check proxies and HF_ENDPOINT.`,
  );
}

/** A file that grows from its beginning, with the hash of what is in it. */
class PartialFile {
  bytes: number;
  /** The most bytes that it had: what comes again is no progress. */
  furthest: number;
  #hash: Hash;

  private constructor(
    readonly path: string,
    readonly handle: FileHandle,
    readonly file: RepoFile,
    bytes: number,
  ) {
    this.bytes = bytes;
    this.furthest = bytes;
    this.#hash = newHash(file);
  }

  static async open(path: string, file: RepoFile): Promise<PartialFile> {
    try {
      const before = (await stat(path).catch(() => undefined))?.size ?? 0;
      const isUseful = before <= file.size;
      const handle = await open(path, isUseful && before > 0 ? 'r+' : 'w');
      return new PartialFile(path, handle, file, isUseful ? before : 0);
    } catch (cause) {
      throw fileError(path, cause);
    }
  }

  /** Hashes what an earlier download left. */
  async hashStart(onPiece: () => void, signal?: AbortSignal): Promise<void> {
    const piece = Buffer.allocUnsafe(Math.min(PIECE_BYTES, this.bytes));
    for (let at = 0; at < this.bytes; ) {
      signal?.throwIfAborted();
      onPiece();
      const { bytesRead } = await this.handle.read(piece, 0, Math.min(piece.byteLength, this.bytes - at), at);
      if (bytesRead === 0) return this.restart();
      this.#hash.update(piece.subarray(0, bytesRead));
      at += bytesRead;
    }
  }

  async append(chunk: Uint8Array): Promise<void> {
    this.#hash.update(chunk);
    try {
      for (let at = 0; at < chunk.byteLength; ) {
        const { bytesWritten } = await this.handle.write(chunk, at, chunk.byteLength - at, this.bytes + at);
        at += bytesWritten;
      }
    } catch (cause) {
      throw fileError(this.path, cause);
    }
    this.bytes += chunk.byteLength;
    this.furthest = Math.max(this.furthest, this.bytes);
  }

  async restart(): Promise<void> {
    await this.handle.truncate(0);
    this.bytes = 0;
    this.#hash = newHash(this.file);
  }

  digest(): string {
    return this.#hash.digest('hex');
  }
}

/** A file in LFS is known by its sha256, another by its hash in git. */
function newHash({ oid, size }: RepoFile): Hash {
  return oid.length === 64 ? createHash('sha256') : createHash('sha1').update(`blob ${size}\0`);
}
