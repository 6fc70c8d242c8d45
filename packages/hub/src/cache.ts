/**
 * The cache as Hugging Face's own tools lay it out (huggingface_hub, "Manage the cache-system"), so that each finds what
 * another downloaded: `models--org--repo/{blobs,refs,snapshots,trees}` and `.locks`. A snapshot is a directory of relative
 * links to blobs, which are called by their hash.
 */
import { randomBytes } from 'node:crypto';
import { type Dirent, readFileSync } from 'node:fs';
import { copyFile, mkdir, readdir, readFile, readlink, rename, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { dirname, join, relative, sep } from 'node:path';
import { fileError } from './errors';
import type { Listing, RepoFile } from './listing';
import { isCommit, isFilePath } from './name';

/** The version of `trees/<commit>.json` that huggingface_hub writes. */
const TREE_VERSION = 1;
const TAG =
  'Signature: 8a477f597d28d172789f06886806bc55\n# Models from the Hugging Face hub: see https://bford.info/cachedir/\n';

/** The part of a cache that holds one repository. */
export class RepoCache {
  readonly directory: string;
  readonly locks: string;

  constructor(
    readonly cacheDir: string,
    readonly repo: string,
  ) {
    const folder = `models--${repo.replace('/', '--')}`;
    this.directory = join(cacheDir, folder);
    this.locks = join(cacheDir, '.locks', folder);
  }

  blob(oid: string): string {
    return join(this.directory, 'blobs', oid);
  }

  /** What is there of a blob that was not finished. */
  incomplete(oid: string): string {
    return join(this.directory, 'blobs', `${oid}.incomplete`);
  }

  lock(oid: string): string {
    return join(this.locks, `${oid}.lock`);
  }

  snapshot(commit: string): string {
    return join(this.directory, 'snapshots', commit);
  }

  /** Where a file of a commit is, once it is. */
  path(commit: string, file: string): string {
    return join(this.snapshot(commit), ...file.split('/'));
  }

  /** Makes the directories that a download needs. @throws HubError CACHE_UNWRITABLE, DISK_FULL */
  async prepare(): Promise<void> {
    try {
      for (const path of [join(this.directory, 'blobs'), this.locks]) await makeDirectories(path);
      // Programs that make backups leave the cache out.
      await writeFile(join(this.cacheDir, 'CACHEDIR.TAG'), TAG, { flag: 'wx' }).catch(() => {});
    } catch (cause) {
      throw fileError(this.directory, cause);
    }
  }

  /** The commit that a branch or tag was when it was last asked for. */
  commitOf(revision: string): string | undefined {
    if (isCommit(revision)) return revision;
    try {
      const text = readFileSync(join(this.directory, 'refs', ...revision.split('/')), 'utf8').trim();
      return isCommit(text) ? text : undefined;
    } catch {
      return undefined;
    }
  }

  async writeRef(revision: string, commit: string): Promise<void> {
    if (revision === commit || this.commitOf(revision) === commit) return;
    await replaceFile(join(this.directory, 'refs', ...revision.split('/')), commit);
  }

  /** All files of a commit as the hub listed them; undefined where nobody wrote that down. */
  async readTree(commit: string): Promise<Listing | undefined> {
    try {
      const tree = JSON.parse(await readFile(this.#tree(commit), 'utf8'));
      if (tree.format_version !== TREE_VERSION) return undefined;
      const files = Object.entries(tree.files as Record<string, TreeEntry>).map(([path, entry]): RepoFile => {
        const size = entry.lfs_size ?? entry.size;
        const oid = entry.lfs_sha256 ?? entry.blob_id;
        if (!Number.isSafeInteger(size) || !/^[0-9a-f]{40,64}$/.test(oid) || !isFilePath(path))
          throw new TypeError(path);
        return { path, size, oid, gitOid: entry.blob_id };
      });
      return { commit, files: files.sort((a, b) => (a.path < b.path ? -1 : 1)) };
    } catch {
      return undefined;
    }
  }

  async writeTree({ commit, files }: Listing): Promise<void> {
    const entry = ({ size, oid, gitOid, xetHash }: RepoFile): TreeEntry => ({
      size,
      blob_id: gitOid,
      ...(oid === gitOid ? {} : { lfs_sha256: oid, lfs_size: size }),
      ...(xetHash === undefined ? {} : { xet_hash: xetHash }),
    });
    const tree = {
      format_version: TREE_VERSION,
      files: Object.fromEntries(files.map((file) => [file.path, entry(file)])),
    };
    await replaceFile(this.#tree(commit), JSON.stringify(tree, undefined, 1));
  }

  /** The files of a snapshot that are here. The hash of each is its blob's name, where it is a link to one. */
  async readSnapshot(commit: string): Promise<RepoFile[]> {
    const root = this.snapshot(commit);
    const entries = await readdir(root, { recursive: true, withFileTypes: true }).catch(() => [] as Dirent[]);
    const files: RepoFile[] = [];
    for (const entry of entries) {
      if (entry.isDirectory()) continue;
      const path = join(entry.parentPath, entry.name);
      const stats = await stat(path).catch(() => undefined);
      if (!stats?.isFile()) continue;
      const oid = await blobOf(path);
      files.push({ path: relative(root, path).split(sep).join('/'), size: stats.size, oid, gitOid: oid });
    }
    return files.sort((a, b) => (a.path < b.path ? -1 : 1));
  }

  /** Whether a file of a commit is here, with the size that it should have. */
  async has(commit: string, { path, size }: RepoFile): Promise<boolean> {
    const stats = await stat(this.path(commit, path)).catch(() => undefined);
    return stats?.isFile() === true && stats.size === size;
  }

  /** Makes the link from a snapshot to its blob; where there are no links the blob moves there. */
  async link(commit: string, { path, oid }: RepoFile): Promise<void> {
    const from = this.path(commit, path);
    const to = this.blob(oid);
    try {
      await makeDirectories(dirname(from));
      const target = relative(dirname(from), to);
      if ((await readlink(from).catch(() => undefined)) === target) return;
      const temporary = temporaryName(from);
      try {
        await symlink(target, temporary);
      } catch (error) {
        if (!['EPERM', 'ENOSYS', 'ENOTSUP', 'EOPNOTSUPP'].includes((error as NodeJS.ErrnoException).code ?? ''))
          throw error;
        await copyFile(to, temporary);
        await rename(temporary, from);
        await rm(to, { force: true });
        return;
      }
      await rename(temporary, from);
    } catch (cause) {
      throw fileError(from, cause);
    }
  }

  #tree(commit: string): string {
    return join(this.directory, 'trees', `${commit}.json`);
  }
}

interface TreeEntry {
  size: number;
  blob_id: string;
  lfs_sha256?: string;
  lfs_size?: number;
  xet_hash?: string;
}

/** As `mkdir` with `recursive`, which never ends where a file system has no place for a directory and says ENOENT (as /proc does). */
async function makeDirectories(path: string): Promise<void> {
  const missing: string[] = [];
  for (let at = path; !(await isThere(at)); at = dirname(at)) missing.push(at);
  for (const directory of missing.reverse())
    await mkdir(directory).catch((error: NodeJS.ErrnoException) => {
      // Another process may make it at the same time.
      if (error.code !== 'EEXIST') throw error;
    });
}

/** @throws any error but ENOENT and ENOTDIR, and these too for a root, above which there is nothing left to ask */
async function isThere(path: string): Promise<boolean> {
  try {
    await stat(path);
    return true;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if ((code === 'ENOENT' || code === 'ENOTDIR') && dirname(path) !== path) return false;
    throw error;
  }
}

/** The name of the blob that a file of a snapshot links to, which may be a link itself; empty where it is none's link. */
async function blobOf(path: string): Promise<string> {
  const target = await readlink(path).catch(() => '');
  return /[\\/]blobs[\\/]([0-9a-f]{40,64})$/.exec(target)?.[1] ?? '';
}

/** Writes a file so that readers see the old one or the new one. */
async function replaceFile(path: string, text: string): Promise<void> {
  const temporary = temporaryName(path);
  try {
    await makeDirectories(dirname(path));
    await writeFile(temporary, text);
    await rename(temporary, path);
  } catch (cause) {
    await rm(temporary, { force: true }).catch(() => {});
    throw fileError(path, cause);
  }
}

/** Beside a file, and no longer than names of files may be. */
function temporaryName(path: string): string {
  return join(dirname(path), `.${randomBytes(6).toString('hex')}.tmp`);
}
