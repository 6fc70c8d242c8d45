/**
 * Which files of a repository a name means. GGUF files by the rules of llama.cpp (common/download.cpp), with one difference:
 * a tag that fits several models is refused, where llama.cpp takes the first. Else the files of a Hugging Face model.
 */
import { HubError } from './errors';
import type { RepoFile } from './listing';
import { formatName, type HubName } from './name';

export interface Choice {
  kind: 'gguf' | 'safetensors';
  /** For GGUF the parts of one model in order; else configuration, tokenizer and weights. */
  files: RepoFile[];
}

/** A model in GGUF: one file, or the parts of one. */
export interface GgufModel {
  /** Path less the number of the part and `.gguf`. */
  stem: string;
  /** Parts there are. */
  count: number;
  /** In order; some may be missing. */
  parts: RepoFile[];
  /** The numbers of the parts, from 1. */
  numbers: number[];
}

/** How many of its parts are there. */
function partsOf({ count, numbers }: GgufModel): number {
  return new Set(numbers.filter((number) => number >= 1 && number <= count)).size;
}

/** Whether all parts are there, each once. */
export function isWhole(model: GgufModel): boolean {
  return model.count > 0 && partsOf(model) === model.count && model.numbers.length === model.count;
}

/** GGUF files that are no model: projectors, importance matrices, and what helps to draft. */
const NO_MODEL = /mmproj|imatrix|mtp-|eagle3-|dflash-|dspark-/;
/** Without a tag the first of these that there is. */
const DEFAULT_TAGS = ['Q4_K_M', 'Q8_0'];
/** The tag that asks for safetensors where there are GGUF files too. */
const CHECKPOINT_TAG = 'safetensors';
const SHOWN_CHOICES = 40;

/**
 * @param readIndex the text of a `*.safetensors.index.json` of the repository
 * @throws HubError NOT_FOUND, AMBIGUOUS, both with what could be meant
 */
export async function choose(
  name: HubName,
  files: readonly RepoFile[],
  readIndex: (file: RepoFile) => Promise<string>,
): Promise<Choice> {
  const { tag } = name;
  const models = ggufModels(files);
  if (tag?.toLowerCase() === CHECKPOINT_TAG || (tag === undefined && models.length === 0)) {
    return { kind: 'safetensors', files: await checkpoint(name, files, readIndex) };
  }
  const model = tag === undefined ? defaultModel(name, models) : taggedModel(name, models, files);
  if (!isWhole(model)) {
    const there = plain(model.parts.map(({ path }) => path).join(', '));
    throw new HubError(
      'NOT_FOUND',
      `${formatName(name)}: of ${plain(model.stem)} there are ${partsOf(model)} of ${model.count} parts, and each is needed once (${there}). Choose another model or revision.`,
    );
  }
  return { kind: 'gguf', files: model.parts };
}

/** Models in GGUF, parts together, by path. */
export function ggufModels(files: readonly RepoFile[]): GgufModel[] {
  const models = new Map<string, GgufModel>();
  for (const file of files) {
    if (!/\.gguf$/i.test(file.path) || NO_MODEL.test(file.path.slice(file.path.lastIndexOf('/') + 1))) continue;
    const plain = file.path.slice(0, -'.gguf'.length);
    const [, stem, number, of] = /^(.+)-(\d{5})-of-(\d{5})$/.exec(plain) ?? [];
    const key = stem === undefined ? plain : `${stem}-of-${of}`;
    const model = models.get(key) ?? { stem: stem ?? plain, count: Number(of ?? 1), parts: [], numbers: [] };
    model.parts.push(file);
    model.numbers.push(Number(number ?? 1));
    models.set(key, model);
  }
  return [...models.values()];
}

/** The tag that chooses a model among those of its repository, or the path of its first file. */
export function tagOf(model: GgufModel, models: readonly GgufModel[]): string {
  const [, tag] = /[-.](\w+)$/.exec(model.stem) ?? [];
  return tag !== undefined && matching(tag, models).length === 1 && matching(tag, models)[0] === model
    ? tag.toUpperCase()
    : model.parts[0].path;
}

function defaultModel(name: HubName, models: GgufModel[]): GgufModel {
  for (const tag of DEFAULT_TAGS) {
    const found = matching(tag, models);
    if (found.length > 0) return single(name, found, models);
  }
  return models[0];
}

function taggedModel(name: HubName, models: GgufModel[], files: readonly RepoFile[]): GgufModel {
  const tag = name.tag!;
  if (/\.gguf$/i.test(tag)) {
    // A file by its path, or any part of a model by that part's; in other letters where there is none in these.
    const called = (isTag: (path: string) => boolean) =>
      models.find(({ parts }) => parts.some(({ path }) => isTag(path)));
    const found = called((path) => path === tag) ?? called((path) => path.toLowerCase() === tag.toLowerCase());
    if (found !== undefined) return found;
    const other = files.find(({ path }) => path.toLowerCase() === tag.toLowerCase());
    if (other !== undefined) return { stem: tag, count: 1, parts: [other], numbers: [1] };
  }
  const found = matching(tag, models);
  if (found.length > 0) return single(name, found, models);
  const what = models.length === 0 ? 'it has no GGUF files' : `no GGUF file is called so. ${choices(name, models)}`;
  throw new HubError(
    'NOT_FOUND',
    `${formatName(name)}: ${what}${models.length === 0 ? `. Try ${formatName({ ...name, tag: undefined })}.` : ''}`,
  );
}

/** Models that a tag fits: those where it is a word of the path, else those where it is the end of one, as in llama.cpp. */
function matching(tag: string, models: readonly GgufModel[]): GgufModel[] {
  const escaped = tag.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
  for (const pattern of [new RegExp(`(^|[-._/])${escaped}[.-]`, 'i'), new RegExp(`${escaped}[.-]`, 'i')]) {
    const found = models.filter(({ parts }) => pattern.test(parts[0].path));
    if (found.length > 0) return found;
  }
  return [];
}

function single(name: HubName, found: readonly GgufModel[], models: readonly GgufModel[]): GgufModel {
  if (found.length === 1) return found[0];
  throw new HubError(
    'AMBIGUOUS',
    `${formatName(name)} could be ${found.length} models. ${choices(name, found, models)}`,
  );
}

function choices(name: HubName, listed: readonly GgufModel[], models = listed): string {
  const lines = listed.slice(0, SHOWN_CHOICES).map((model) => {
    const bytes = model.parts.reduce((sum, { size }) => sum + size, 0);
    return `${plain(formatName({ ...name, tag: tagOf(model, models) }))} (${(bytes / 1e9).toFixed(2)} GB)`;
  });
  const more = listed.length > SHOWN_CHOICES ? ` and ${listed.length - SHOWN_CHOICES} more` : '';
  return `Give one of ${lines.join(', ')}${more}.`;
}

/** Names of files as a terminal may show them. */
function plain(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: those are what is left out
  return text.replace(/[\x00-\x1f\x7f-\x9f]/g, '\ufffd');
}

/** Beside the weights: configuration, tokenizer, chat templates, and the parts of a sentence-transformers model. */
const BESIDE = [
  /^[^/]+\.json$/,
  /^[^/]+\.(jinja|model|tiktoken)$/,
  /^(vocab|merges)\.txt$/,
  /^additional_chat_templates\/[^/]+\.jinja$/,
  /^\d+_\w+\/(config\.json|model\.safetensors)$/,
];

async function checkpoint(
  name: HubName,
  files: readonly RepoFile[],
  readIndex: (file: RepoFile) => Promise<string>,
): Promise<RepoFile[]> {
  const byPath = new Map(files.map((file) => [file.path, file]));
  const weights = await checkpointWeights(name, byPath, readIndex);
  const isIndex = (path: string) => path.endsWith('.index.json');
  const beside = files.filter(({ path }) => !isIndex(path) && BESIDE.some((pattern) => pattern.test(path)));
  if (!byPath.has('config.json') && !byPath.has('adapter_config.json')) {
    throw new HubError(
      'NOT_FOUND',
      `${formatName(name)}: there is no config.json beside the weights. Choose another repository.`,
    );
  }
  return [...new Set([...beside, ...weights])];
}

async function checkpointWeights(
  name: HubName,
  byPath: ReadonlyMap<string, RepoFile>,
  readIndex: (file: RepoFile) => Promise<string>,
): Promise<RepoFile[]> {
  const index = byPath.get('model.safetensors.index.json');
  if (index !== undefined) {
    const shards = shardNames(name, await readIndex(index));
    const missing = shards.filter((path) => !byPath.has(path));
    if (missing.length === 0) return [index, ...shards.map((path) => byPath.get(path)!)];
    throw new HubError(
      'NOT_FOUND',
      `${formatName(name)}: ${index.path} names ${missing.slice(0, 5).join(', ')}, which the repository has not. Choose another revision.`,
    );
  }
  for (const path of ['model.safetensors', 'adapter_model.safetensors']) {
    const file = byPath.get(path);
    if (file !== undefined) return [file];
  }
  const found = [...byPath.values()].filter(({ path }) => /^[^/]+\.safetensors$/.test(path));
  if (found.length > 0) return found;
  const others = [...byPath.keys()].filter((path) => /\.(bin|pt|pth|ckpt|onnx|h5|msgpack)$/.test(path));
  const what = others.length === 0 ? '' : ` (only ${others.slice(0, 3).join(', ')})`;
  throw new HubError(
    'NOT_FOUND',
    `${formatName(name)}: there is neither a GGUF nor a safetensors file in it${what}. Choose another repository.`,
  );
}

function shardNames(name: HubName, text: string): string[] {
  let map: unknown;
  try {
    map = (JSON.parse(text) as { weight_map?: unknown }).weight_map;
  } catch {
    // As one without a map.
  }
  const names = typeof map === 'object' && map !== null ? Object.values(map) : [];
  if (names.length > 0 && names.every((each) => typeof each === 'string'))
    return [...new Set(names as string[])].sort();
  throw new HubError(
    'NOT_FOUND',
    `${formatName(name)}: model.safetensors.index.json does not say where the weights are. Choose another revision.`,
  );
}
