/** Names of models on the hub: `hf:org/repo`, with a tag that chooses one of its models and a revision. */
import { kinds } from '@x/core';
import { HubError } from './errors';

export interface HubName {
  /** `org/repo`. */
  repo: string;
  /** What is behind the colon: a type such as `Q4_K_M`, the path of a file, or `safetensors`. */
  tag?: string;
  /** What is behind the `@`: a branch, a tag or a commit of the repository. */
  revision?: string;
}

const PREFIX = /^(hf:|(https?:\/\/)?(www\.)?(hf\.co|huggingface\.co)\/)/i;
const FORM = 'Write hf:org/repo, hf:org/repo:Q4_K_M or hf:org/repo:Q4_K_M@revision.';

/** Whether `text` begins as the name of a model on the hub does: `hf:` or `hf.co/`. */
export function isHubName(text: unknown): text is string {
  return typeof text === 'string' && PREFIX.test(text);
}

/**
 * Takes a name apart: `hf:org/repo`, `hf:org/repo:Q4_K_M`, `hf:org/repo:folder/model.gguf@main`, `hf.co/org/repo:Q4_K_M`.
 * @throws HubError INVALID_NAME for anything else, also for parts that could lead out of a directory
 */
export function parseName(text: string): HubName {
  const fail = (what: string) =>
    new HubError('INVALID_NAME', `${kinds.show(text)} is no model of the hub: ${what}. ${FORM}`);
  if (!isHubName(text)) throw fail('it begins with neither hf: nor hf.co/');
  const rest = text.replace(PREFIX, '');
  const at = revisionAt(rest);
  const revision = at < 0 ? undefined : rest.slice(at + 1);
  const model = at < 0 ? rest : rest.slice(0, at);
  const colon = model.indexOf(':');
  const repo = colon < 0 ? model : model.slice(0, colon);
  const tag = colon < 0 ? undefined : model.slice(colon + 1);
  if (!isRepo(repo)) throw fail(`${kinds.show(repo)} is not org/repo`);
  if (tag !== undefined && !isFilePath(tag)) throw fail(`${kinds.show(tag)} is no tag`);
  if (revision !== undefined && !isRevision(revision)) throw fail(`${kinds.show(revision)} is no revision`);
  return { repo, tag, revision };
}

/** Where the `@` of a revision is; one within the name of a file, `hf:org/repo:a@b.gguf`, is none. */
function revisionAt(rest: string): number {
  if (/^[^@]*:.*\.gguf$/i.test(rest)) return -1;
  const file = /^[^@]*:.*\.gguf(?=@[^@]*$)/i.exec(rest);
  return file ? file[0].length : rest.indexOf('@');
}

/** The name in its shortest form, as `parseName` takes it. */
export function formatName({ repo, tag, revision }: HubName): string {
  return `hf:${repo}${tag === undefined ? '' : `:${tag}`}${revision === undefined ? '' : `@${revision}`}`;
}

/** The hub's rule for `org/repo`: without `--` and `..`, so that a folder of the cache stands for one repository. */
export function isRepo(text: string): boolean {
  const parts = text.split('/');
  return (
    text.length <= 96 &&
    parts.length === 2 &&
    parts.every((part) => /^[A-Za-z0-9_]([\w.-]*[A-Za-z0-9_])?$/.test(part)) &&
    !/--|\.\.|\.git$/.test(text)
  );
}

/** What git allows and a file under `refs/` may be called. */
export function isRevision(text: string): boolean {
  return text.length <= 255 && /^[\w][\w.+-]*(\/[\w][\w.+-]*)*$/.test(text) && !/\.\.|\.lock$|\.$/.test(text);
}

/** A commit: 40 hexadecimal digits. */
export function isCommit(text: string): boolean {
  return /^[0-9a-f]{40}$/.test(text);
}

/** A path below a directory: no part of it leads out, is empty, or means something else to an operating system. */
export function isFilePath(text: string): boolean {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
  if (text.length > 1024 || /[\x00-\x1f\x7f\\:]/.test(text)) return false;
  return text
    .split('/')
    .every((part) => part !== '' && part !== '.' && part !== '..' && Buffer.byteLength(part) <= 255);
}
