/** A model from the hub into the cache: which files a name means, and their download. */
import { readFile, statfs } from 'node:fs/promises';
import { kinds } from '@x/core';
import { RepoCache } from './cache';
import { type Choice, choose } from './choose';
import { HubError } from './errors';
import { HubClient } from './http';
import { checkPaths, type Listing, listRepo, type RepoFile } from './listing';
import { formatName, type HubName, isRevision, parseName } from './name';
import { checkOptions, HUB_KINDS, type HubOptions, type HubSettings, hubSettings } from './settings';
import { type TransferPhase, transfer } from './transfer';

/** What a name means. */
export interface ResolvedModel {
  /** As `parseName` takes it. */
  name: string;
  repo: string;
  /** What was asked for, `main` where nothing was. */
  revision: string;
  /** What that is now: 40 hexadecimal digits. */
  commit: string;
  kind: Choice['kind'];
  /** In the repository; of a GGUF model in parts the first part first. */
  files: readonly { path: string; size: number }[];
  totalBytes: number;
  /** Of these what is not in the cache yet; parts of files count as missing. */
  missingBytes: number;
}

/** A model that is here. */
export interface PulledModel extends ResolvedModel {
  /** For `loadModel`: the GGUF file (the first of its parts), or the directory of a Hugging Face model. */
  path: string;
  /** Of every file, in the order of `files`. */
  paths: readonly string[];
  /** Bytes that came through the network. */
  downloadedBytes: number;
}

export interface PullProgress {
  /** `waiting` for another process that downloads the same file, `verifying` what an earlier download left, `downloading`. */
  phase: TransferPhase;
  /** In the repository. */
  file: string;
  fileBytes: number;
  fileTotalBytes: number;
  /** Bytes of all files that are here, those that were there before included. */
  bytes: number;
  totalBytes: number;
}

export interface PullOptions extends HubOptions {
  /** Called after each piece of some kB; what it throws ends the pull. */
  onProgress?: (progress: PullProgress) => void;
  /** Files that are downloaded at once. Default 4. */
  connections?: number;
  /**
   * Whether the hub is asked what a branch or tag is now. Without, a model that is in the cache is taken from there without
   * any request, and the hub is asked when it is not. Default true.
   */
  update?: boolean;
}

const PULL_KINDS = {
  ...HUB_KINDS,
  onProgress: kinds.FUNCTION,
  connections: kinds.POSITIVE,
  update: kinds.BOOLEAN,
} satisfies Record<keyof PullOptions, kinds.Kind>;

/** What a name means in a cache or on the hub. */
interface Plan {
  resolved: ResolvedModel;
  listing: Listing;
  files: RepoFile[];
  missing: RepoFile[];
}

/**
 * Says which files a name means and how many bytes that is, and downloads none of them (but the index of weights in shards).
 * @throws HubError INVALID_NAME, INVALID_OPTION, NOT_FOUND and AMBIGUOUS with what there is, UNAUTHORIZED, OFFLINE, DOWNLOAD_FAILED,
 *   UNSAFE_REDIRECT; the signal's reason
 */
export async function resolve(name: string, options: HubOptions = {}): Promise<ResolvedModel> {
  checkOptions('resolve', options, HUB_KINDS);
  const { parsed, settings, cache, client } = begin(name, options);
  const { resolved } = settings.offline
    ? await planFromCache(parsed, settings, cache)
    : await planFromHub(parsed, client, cache);
  return resolved;
}

/**
 * Downloads what a name means into the cache that Hugging Face's tools use, as far as it is not there.
 * @throws HubError as `resolve`, and HASH_MISMATCH, DISK_FULL, CACHE_UNWRITABLE; the signal's reason
 */
export async function pull(name: string, options: PullOptions = {}): Promise<PulledModel> {
  checkOptions('pull', options, PULL_KINDS);
  const { parsed, settings, cache, client } = begin(name, options);
  if (settings.offline) return here(await planFromCache(parsed, settings, cache), cache);
  if (options.update === false) {
    // A name without a tag means the same whatever happens to be in the cache, so the whole listing must be known.
    const known = await planFromCache(parsed, settings, cache, true).catch((error) => {
      if (error instanceof HubError) return undefined;
      throw error;
    });
    if (known !== undefined) return here(known, cache);
  }
  const plan = await planFromHub(parsed, client, cache);
  const { commit, revision } = plan.resolved;
  let downloadedBytes = 0;
  if (plan.missing.length > 0) {
    await cache.prepare();
    await checkSpace(cache, plan.resolved.missingBytes);
    downloadedBytes = await download(plan, client, cache, options);
  }
  await remember(cache, plan.listing, revision, commit, plan.missing.length > 0);
  return here(plan, cache, downloadedBytes);
}

function begin(name: string, options: HubOptions) {
  const parsed = parseName(name);
  if (options.revision !== undefined && !isRevision(options.revision)) {
    throw new HubError(
      'INVALID_NAME',
      `"${options.revision.slice(0, 120)}" is no revision. Give a branch, tag or commit.`,
    );
  }
  const settings = hubSettings(options);
  settings.signal?.throwIfAborted();
  return { parsed, settings, cache: new RepoCache(settings.cacheDir, parsed.repo), client: new HubClient(settings) };
}

async function planFromHub(name: HubName, client: HubClient, cache: RepoCache): Promise<Plan> {
  const revision = name.revision ?? client.settings.revision;
  const listing = await listRepo(client, name.repo, revision);
  const readIndex = async ({ path }: RepoFile) => {
    const { endpoint } = client.settings;
    return (await client.text(`${endpoint}/${name.repo}/resolve/${listing.commit}/${encodeURIComponent(path)}`)).text;
  };
  return planOf(name, revision, listing, await choose(name, listing.files, readIndex), cache);
}

/** @param whole refuses where the cache does not know all files of the commit */
async function planFromCache(name: HubName, settings: HubSettings, cache: RepoCache, whole = false): Promise<Plan> {
  const revision = name.revision ?? settings.revision;
  const shown = formatName({ ...name, revision: revision === 'main' ? undefined : revision });
  const fail = (what: string) =>
    new HubError(
      'OFFLINE',
      `${shown}: ${what}, and offline nothing is downloaded. Pull it first, or go online (HF_HUB_OFFLINE, offline).`,
    );
  const commit = cache.commitOf(revision);
  if (commit === undefined) throw fail(`revision ${revision} is not in the cache at ${settings.cacheDir}`);
  const tree = await cache.readTree(commit);
  if (whole && tree === undefined && name.tag === undefined)
    throw fail('the cache does not say which files the revision has');
  const listing = tree ?? { commit, files: await cache.readSnapshot(commit) };
  if (listing.files.length === 0) throw fail(`commit ${commit} is not in the cache at ${settings.cacheDir}`);
  const readIndex = ({ path }: RepoFile) =>
    readFile(cache.path(commit, path), 'utf8').catch(() => {
      throw fail(`${path} is not in the cache`);
    });
  const plan = await planOf(name, revision, listing, await choose(name, listing.files, readIndex), cache);
  if (plan.missing.length === 0) return plan;
  const missing = plan.missing.map(({ path }) => path);
  throw fail(
    `of its ${plan.files.length} files ${missing.slice(0, 5).join(', ')}${missing.length > 5 ? ' and others' : ''} ${missing.length === 1 ? 'is' : 'are'} not in the cache`,
  );
}

async function planOf(
  name: HubName,
  revision: string,
  listing: Listing,
  { kind, files }: Choice,
  cache: RepoCache,
): Promise<Plan> {
  checkPaths(files);
  const { commit } = listing;
  const isHere = await Promise.all(files.map((file) => cache.has(commit, file)));
  const missing = files.filter((_, i) => !isHere[i]);
  const bytes = (list: readonly RepoFile[]) => list.reduce((sum, { size }) => sum + size, 0);
  const resolved = {
    name: formatName({ ...name, revision: revision === 'main' ? undefined : revision }),
    repo: name.repo,
    revision,
    commit,
    kind,
    files: files.map(({ path, size }) => ({ path, size })),
    totalBytes: bytes(files),
    missingBytes: bytes(missing),
  };
  return { resolved, listing, files, missing };
}

function here({ resolved, files, listing: { commit } }: Plan, cache: RepoCache, downloadedBytes = 0): PulledModel {
  const paths = files.map(({ path }) => cache.path(commit, path));
  const path = resolved.kind === 'gguf' ? paths[0] : cache.snapshot(commit);
  return { ...resolved, missingBytes: 0, path, paths, downloadedBytes };
}

/** So that a download of hours does not begin where it cannot end. */
async function checkSpace(cache: RepoCache, bytes: number): Promise<void> {
  const { bavail, bsize } = await statfs(cache.directory);
  if (bavail * bsize >= bytes) return;
  const gb = (value: number) => (value / 1e9).toFixed(2);
  throw new HubError(
    'DISK_FULL',
    `${cache.directory}: ${gb(bytes)} GB are to come and ${gb(bavail * bsize)} GB are free. Free some space or choose another place with HF_HUB_CACHE.`,
  );
}

async function download(
  { resolved, files, missing }: Plan,
  client: HubClient,
  cache: RepoCache,
  options: PullOptions,
): Promise<number> {
  const { commit, totalBytes } = resolved;
  const bytesOf = new Map(files.map((file) => [file, missing.includes(file) ? 0 : file.size]));
  let bytes = totalBytes - resolved.missingBytes;
  let received = 0;
  const started = new Set<RepoFile>();
  const queue = [...missing];
  // What ends one file ends all.
  const controller = new AbortController();
  const stop = () => controller.abort(client.settings.signal?.reason);
  client.settings.signal?.addEventListener('abort', stop);
  const own = new HubClient({ ...client.settings, signal: controller.signal });
  const report = (file: RepoFile, now: number, phase: TransferPhase) => {
    const before = bytesOf.get(file)!;
    // A beginning that an earlier download left did not come now.
    if (phase === 'downloading' && now > before && started.has(file)) received += now - before;
    if (phase === 'downloading') started.add(file);
    bytes += now - before;
    bytesOf.set(file, now);
    options.onProgress?.({ phase, file: file.path, fileBytes: now, fileTotalBytes: file.size, bytes, totalBytes });
  };
  const worker = async () => {
    for (let file = queue.shift(); file !== undefined; file = queue.shift()) {
      const current = file;
      try {
        await transfer(current, { client: own, cache, commit, onBytes: (now, phase) => report(current, now, phase) });
        await cache.link(commit, current);
        if (bytesOf.get(current) !== current.size) report(current, current.size, 'verifying');
      } catch (error) {
        controller.abort(error);
        throw error;
      }
    }
  };
  try {
    const workers = Array.from({ length: Math.min(options.connections ?? 4, missing.length) }, worker);
    const ended = await Promise.allSettled(workers);
    const failed = ended.some(({ status }) => status === 'rejected');
    // The first one; the others only stopped because of it.
    if (failed) throw controller.signal.reason;
    return received;
  } finally {
    client.settings.signal?.removeEventListener('abort', stop);
  }
}

/**
 * Writes down what the revision is, once its files are here: an interrupted pull leaves the model that was there usable. A
 * cache that cannot be written and has everything is as good.
 */
async function remember(
  cache: RepoCache,
  listing: Listing,
  revision: string,
  commit: string,
  mustWrite: boolean,
): Promise<void> {
  try {
    if ((await cache.readTree(commit)) === undefined) await cache.writeTree(listing);
    await cache.writeRef(revision, commit);
  } catch (error) {
    if (mustWrite) throw error;
  }
}
