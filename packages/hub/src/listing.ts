/** The files of a repository at a commit, as the hub lists them, through the API calls of `@huggingface/hub`. */
import { kinds } from '@x/core';
import { HubError } from './errors';
import type { HubClient } from './http';
import { isCommit, isFilePath } from './name';

export interface RepoFile {
  /** In the repository, with `/`. */
  path: string;
  size: number;
  /** What the blob is called in the cache: sha256 of a file in LFS, else its git sha1. */
  oid: string;
  /** Hash in git; that of the pointer for a file in LFS. */
  gitOid: string;
  xetHash?: string;
}

export interface Listing {
  commit: string;
  /** By path. */
  files: RepoFile[];
}

/** More than any model's repository has, so that a listing without end ends: files and directories, and pages of them. */
const MOST_ENTRIES = 100_000;
const MOST_PAGES = 1000;

/** @throws HubError NOT_FOUND, UNAUTHORIZED, DOWNLOAD_FAILED */
export async function listRepo(client: HubClient, repo: string, revision: string): Promise<Listing> {
  // Only when needed: it takes longer to load than this package.
  const { listFiles, modelInfo } = await import('@huggingface/hub');
  const { endpoint } = client.settings;
  const { origin } = new URL(endpoint);
  let pages = 0;
  const asked = new Set<string>();
  const request: typeof fetch = async (input) => {
    const address = String(input);
    if (asked.has(address) || ++pages > MOST_PAGES) throw malformed(endpoint, 'pages without end');
    asked.add(address);
    // The next page of a listing is where the one before says, and gets the token.
    if (new URL(address).origin !== origin) {
      throw new HubError(
        'UNSAFE_REDIRECT',
        `the listing goes on at ${new URL(address).host}, which is not ${endpoint}. Check HF_ENDPOINT.`,
      );
    }
    const { text, headers } = await client.text(address, { accept: 'application/json' });
    return new Response(text, { headers: { 'content-type': 'application/json', link: headers.get('link') ?? '' } });
  };
  try {
    const common = { hubUrl: endpoint, fetch: request };
    const { sha } = await modelInfo({ ...common, name: repo, revision, additionalFields: ['sha'] });
    if (typeof sha !== 'string' || !isCommit(sha)) throw malformed(endpoint, `the commit of ${revision}`);
    const files: RepoFile[] = [];
    let entries = 0;
    for await (const entry of listFiles({
      ...common,
      repo: { type: 'model', name: repo },
      revision: sha,
      recursive: true,
    })) {
      if (++entries > MOST_ENTRIES) throw malformed(endpoint, `more than ${MOST_ENTRIES} entries`);
      if (entry?.type !== 'file') continue;
      const { path, oid, xetHash, lfs } = entry;
      const size = lfs?.size ?? entry.size;
      const hash = lfs?.oid ?? oid;
      const isSized = Number.isSafeInteger(size) && size >= 0;
      if (typeof path !== 'string' || !isSized || !isHash(hash, lfs !== undefined) || !isHash(oid, false)) {
        throw malformed(endpoint, `the file ${kinds.show(path)}`);
      }
      files.push({ path, size, oid: hash, gitOid: oid, ...(isXetHash(xetHash) ? { xetHash } : {}) });
    }
    return { commit: sha, files: files.sort((a, b) => (a.path < b.path ? -1 : 1)) };
  } catch (error) {
    if (error instanceof HubError) throw withRepo(error, repo, revision);
    if (client.settings.signal?.aborted) throw client.settings.signal.reason;
    if (error instanceof SyntaxError || error instanceof TypeError)
      throw withRepo(malformed(endpoint, 'what is no listing', error), repo, revision);
    throw error;
  }
}

/** @throws HubError INVALID_NAME for a path that leads out of the snapshot */
export function checkPaths(files: readonly RepoFile[]): void {
  for (const { path } of files) {
    if (isFilePath(path)) continue;
    throw new HubError(
      'INVALID_NAME',
      `the repository has a file called ${kinds.show(path)}, which leads out of its directory or cannot be stored. Do not use it.`,
    );
  }
}

function isHash(text: unknown, isLfs: boolean): text is string {
  return typeof text === 'string' && (isLfs ? /^[0-9a-f]{64}$/ : /^[0-9a-f]{40}$/).test(text);
}

function isXetHash(text: unknown): text is string {
  return isHash(text, true);
}

function malformed(endpoint: string, what: string, cause?: unknown): HubError {
  return new HubError(
    'DOWNLOAD_FAILED',
    `${endpoint} lists ${what} in a form that cannot be read. Check HF_ENDPOINT.`,
    { cause },
  );
}

function withRepo(error: HubError, repo: string, revision: string): HubError {
  const name = revision === 'main' ? `hf:${repo}` : `hf:${repo}@${revision}`;
  return new HubError(error.code, `${name}: ${error.message}`, { cause: error.cause ?? error });
}
