/** What is in the cache, and its removal. */
import { type Dirent, existsSync, statSync } from 'node:fs';
import { lstat, readdir, readFile, rm, rmdir } from 'node:fs/promises';
import { dirname, join, relative, sep } from 'node:path';
import type { kinds } from '@x/core';
import { RepoCache } from './cache';
import { choose, ggufModels, isWhole, tagOf } from './choose';
import { fileError, HubError } from './errors';
import type { RepoFile } from './listing';
import { acquire } from './lock';
import { formatName, type HubName, isCommit, isRepo, parseName } from './name';
import { checkOptions, defaultCacheDir, HUB_KINDS } from './settings';

export interface CacheOptions {
  /** Default: as for `pull`. */
  cacheDir?: string;
}

/** A model in the cache that loads by its name. */
export interface CachedModel {
  /** As `loadModel` and `remove` take it. */
  name: string;
  repo: string;
  commit: string;
  /** Branches and tags that were this commit when they were last asked for. */
  refs: string[];
  kind: 'gguf' | 'safetensors';
  /** In the repository, by path. */
  files: { path: string; size: number }[];
  bytes: number;
  /** When the last of its files came. */
  modified: Date;
}

export interface Removed {
  /** Models that are gone, by name. */
  models: string[];
  /** Bytes that the disk has again; less than the models' where other revisions share their files. */
  freedBytes: number;
}

const CACHE_KINDS = { cacheDir: HUB_KINDS.cacheDir } satisfies Record<keyof CacheOptions, kinds.Kind>;

/**
 * Models in the cache, by name; nothing where there is no cache.
 * @throws HubError INVALID_OPTION, NOT_FOUND for a cache that cannot be read
 */
export async function list(options: CacheOptions = {}): Promise<CachedModel[]> {
  checkOptions('list', options, CACHE_KINDS);
  const cacheDir = options.cacheDir ?? defaultCacheDir();
  const models: CachedModel[] = [];
  for (const entry of await entriesOf(cacheDir)) {
    const [, org, name] = /^models--(.+?)--(.+)$/.exec(entry.name) ?? [];
    // Others have no name that could be asked for.
    if (org !== undefined && isRepo(`${org}/${name}`) && entry.isDirectory())
      models.push(...(await modelsOf(new RepoCache(cacheDir, `${org}/${name}`))));
  }
  return models.sort((a, b) => (a.name < b.name ? -1 : 1));
}

/**
 * Removes a model from the cache: `hf:org/repo` with all that is there of the repository, `hf:org/repo:Q4_K_M` one model,
 * with `@revision` that of one revision only. What an interrupted download left goes with the repository.
 * @throws HubError INVALID_NAME, INVALID_OPTION, NOT_FOUND and AMBIGUOUS with what there is, BUSY where another process downloads it,
 *   CACHE_UNWRITABLE
 */
export async function remove(name: string, options: CacheOptions = {}): Promise<Removed> {
  checkOptions('remove', options, CACHE_KINDS);
  const parsed = parseName(name);
  const cache = new RepoCache(options.cacheDir ?? defaultCacheDir(), parsed.repo);
  const models = await modelsOf(cache);
  const isAll = parsed.tag === undefined && parsed.revision === undefined;
  const chosen = isAll ? models : await chosenOf(parsed, models, cache);
  if (isAll ? !existsSync(cache.directory) : chosen.length === 0) {
    const there = models.length === 0 ? '' : ` There is ${models.map((model) => model.name).join(', ')}.`;
    throw new HubError('NOT_FOUND', `${formatName(parsed)} is not in the cache at ${cache.cacheDir}.${there}`);
  }
  const before = await bytesBelow(cache.directory);
  try {
    const releases = await lockAll(cache);
    try {
      if (isAll) await rm(cache.directory, { recursive: true, force: true });
      else await removeModels(cache, chosen, models);
    } finally {
      for (const release of releases) await release();
    }
    if (isAll) await rm(cache.locks, { recursive: true, force: true });
  } catch (cause) {
    throw fileError(cache.directory, cause);
  }
  return { models: chosen.map((model) => model.name), freedBytes: before - (await bytesBelow(cache.directory)) };
}

/** The models that a name means in each revision that is here. */
async function chosenOf(name: HubName, models: readonly CachedModel[], cache: RepoCache): Promise<CachedModel[]> {
  const commit = name.revision === undefined ? undefined : (cache.commitOf(name.revision) ?? name.revision);
  const chosen: CachedModel[] = [];
  for (const here of new Set(models.map((model) => model.commit))) {
    if (commit !== undefined && here !== commit) continue;
    const own = models.filter((model) => model.commit === here);
    if (name.tag === undefined) {
      chosen.push(...own);
      continue;
    }
    const files = own.flatMap((model) => model.files.map((file): RepoFile => ({ ...file, oid: '', gitOid: '' })));
    const readIndex = ({ path }: RepoFile) => readFile(cache.path(here, path), 'utf8');
    const choice = await choose(name, files, readIndex).catch((error) => {
      if (error instanceof HubError && error.code === 'NOT_FOUND') return undefined;
      throw error;
    });
    const [first] = choice?.files ?? [];
    chosen.push(
      ...own.filter((model) => choice?.kind === model.kind && model.files.some(({ path }) => path === first.path)),
    );
  }
  return chosen;
}

async function modelsOf(cache: RepoCache): Promise<CachedModel[]> {
  const refs = await refsOf(cache);
  const models: CachedModel[] = [];
  for (const { name: commit } of await entriesOf(join(cache.directory, 'snapshots'))) {
    if (!isCommit(commit)) continue;
    const names = refs.filter(([, at]) => at === commit).map(([ref]) => ref);
    // A name without a revision means main; another commit is named by a ref of its own, or by itself.
    const revision = names.includes('main') ? undefined : (names[0] ?? commit);
    const files = await cache.readSnapshot(commit);
    const ggufs = ggufModels(files);
    const inGguf = new Set(ggufs.flatMap(({ parts }) => parts));
    const rest = files.filter((file) => !inGguf.has(file));
    const model = (kind: CachedModel['kind'], tag: string | undefined, own: readonly RepoFile[]): CachedModel => ({
      name: formatName({ repo: cache.repo, tag, revision }),
      repo: cache.repo,
      commit,
      refs: names,
      kind,
      files: own.map(({ path, size }) => ({ path, size })),
      bytes: own.reduce((sum, { size }) => sum + size, 0),
      modified: new Date(Math.max(...own.map(({ path }) => statSync(cache.path(commit, path)).mtimeMs))),
    });
    // Parts that are missing leave a model that does not load.
    for (const each of ggufs) if (isWhole(each)) models.push(model('gguf', tagOf(each, ggufs), each.parts));
    if (rest.some(({ path }) => path.endsWith('.safetensors'))) {
      models.push(model('safetensors', ggufs.length > 0 ? 'safetensors' : undefined, rest));
    }
  }
  return models;
}

/** Branches and tags with their commits. */
async function refsOf(cache: RepoCache): Promise<[ref: string, commit: string][]> {
  const root = join(cache.directory, 'refs');
  const entries = await readdir(root, { recursive: true, withFileTypes: true }).catch(() => [] as Dirent[]);
  const names = entries
    .filter((entry) => entry.isFile())
    .map((entry) => relative(root, join(entry.parentPath, entry.name)));
  return names.flatMap((name): [string, string][] => {
    const ref = name.split(sep).join('/');
    const commit = cache.commitOf(ref);
    return commit === undefined ? [] : [[ref, commit]];
  });
}

/** Locks of all blobs that anybody may be downloading. */
async function lockAll(cache: RepoCache): Promise<(() => Promise<void>)[]> {
  const releases: (() => Promise<void>)[] = [];
  for (const { name } of await entriesOf(join(cache.directory, 'blobs'))) {
    if (!name.endsWith('.incomplete')) continue;
    const release = await acquire(cache.lock(name.split('.')[0]), { wait: false });
    if (release !== undefined) {
      releases.push(release);
      continue;
    }
    for (const each of releases) await each();
    throw new HubError('BUSY', `hf:${cache.repo}: another process is downloading it. Wait for it or end it.`);
  }
  return releases;
}

async function removeModels(
  cache: RepoCache,
  chosen: readonly CachedModel[],
  models: readonly CachedModel[],
): Promise<void> {
  for (const { commit, files, kind } of chosen) {
    for (const { path } of files) await rm(cache.path(commit, path), { force: true });
    const isLast = models.every((other) => other.commit !== commit || chosen.includes(other));
    if (isLast && (kind === 'safetensors' || (await cache.readSnapshot(commit)).length === 0))
      await removeSnapshot(cache, commit);
    else for (const { path } of files) await removeEmpty(dirname(cache.path(commit, path)), cache.snapshot(commit));
  }
  const used = new Set<string>();
  for (const { name: commit } of await entriesOf(join(cache.directory, 'snapshots'))) {
    for (const { oid } of await cache.readSnapshot(commit)) used.add(oid);
  }
  for (const { name } of await entriesOf(join(cache.directory, 'blobs'))) {
    if (!name.endsWith('.incomplete') && !used.has(name))
      await rm(join(cache.directory, 'blobs', name), { force: true });
  }
}

/** A snapshot with the refs to it, which would lead nowhere. */
async function removeSnapshot(cache: RepoCache, commit: string): Promise<void> {
  await rm(cache.snapshot(commit), { recursive: true, force: true });
  await rm(join(cache.directory, 'trees', `${commit}.json`), { force: true });
  for (const [ref, at] of await refsOf(cache)) {
    if (at === commit) await rm(join(cache.directory, 'refs', ...ref.split('/')), { force: true });
  }
}

/** Directories that hold nothing, up to `root`. */
async function removeEmpty(directory: string, root: string): Promise<void> {
  for (let at = directory; at !== root && at.startsWith(root); at = dirname(at)) {
    try {
      await rmdir(at);
    } catch {
      return;
    }
  }
}

async function bytesBelow(directory: string): Promise<number> {
  const entries = await readdir(directory, { recursive: true, withFileTypes: true }).catch(() => [] as Dirent[]);
  let bytes = 0;
  for (const entry of entries) {
    if (entry.isFile()) bytes += (await lstat(join(entry.parentPath, entry.name)).catch(() => undefined))?.size ?? 0;
  }
  return bytes;
}

async function entriesOf(directory: string): Promise<Dirent[]> {
  try {
    return await readdir(directory, { withFileTypes: true });
  } catch (cause) {
    const { code, message } = cause as NodeJS.ErrnoException;
    if (code === 'ENOENT') return [];
    throw new HubError('NOT_FOUND', `${directory}: the cache cannot be read (${message}). Check its permissions.`, {
      cause,
    });
  }
}
