/**
 * Models by name: loaded when they are first asked for, shared by all requests, and unloaded, the least recently used first,
 * where another one needs their memory. Who asks first is served first, so that requests for a loaded model do not keep one
 * that waits for room waiting for ever.
 */
import { kinds, OutOfMemoryError } from '@x/core';
import {
  type EmbeddingModel,
  hubName,
  type LanguageModel,
  type LoadEmbeddingModelOptions,
  type LoadModelOptions,
  loadEmbeddingModel,
  loadModel,
} from '@x/engine';
import { ApiError, ServerError } from './errors';
import { bytesOf, nameOf } from './model-files';

/** A model that is loaded when it is asked for. */
export type ModelFile = {
  /** As `loadModel` takes it. It is told to nobody. */
  path: string;
} & (
  | {
      kind?: 'text';
      /** Each of its `adapters` is a model of its own name to clients. */
      options?: Omit<LoadModelOptions, 'signal' | 'onProgress'>;
    }
  /** One that makes vectors of texts. */
  | { kind: 'embedding'; options?: Omit<LoadEmbeddingModelOptions, 'signal' | 'onProgress'> }
);

type Model = LanguageModel | EmbeddingModel;

/** A path, a path with options, or a model that the caller has loaded, which stays the caller's to dispose. */
export type ModelSource = string | ModelFile | Model;

/** By their names for clients, or paths whose last part is the name, without `.gguf`. */
export type ModelSources = Readonly<Record<string, ModelSource>> | readonly string[];

export interface PoolLimits {
  /** Bytes of the weights of all loaded models together; models that the caller loaded are not counted. */
  maxModelBytes: number;
  /** Milliseconds without a request after which a model is unloaded. */
  unloadAfterMs: number;
  /** Sequences that are computed at once, for which models are made ready. */
  maxSequences: number;
}

export type ModelState = 'unloaded' | 'loading' | 'loaded';

interface Entry {
  name: string;
  file: ModelFile | undefined;
  created: number;
  bytes: number;
  model: Model | undefined;
  loading: Promise<Model> | undefined;
  users: number;
  usedAt: number;
  timer: NodeJS.Timeout | undefined;
}

/** What a name stands for: a model, or a model with one of its adapters. */
interface Named {
  entry: Entry;
  adapter?: string;
}

/** A model in use: it is not unloaded before {@link release}. */
export interface Lease {
  readonly name: string;
  /** The adapter that the name stands for. */
  readonly adapter: string | undefined;
  /** @throws ApiError 400 when it makes no texts */
  readonly model: LanguageModel;
  /** @throws ApiError 400 when it makes no vectors */
  readonly embedder: EmbeddingModel;
  /** Of either. */
  readonly any: Model;
  release(): void;
}

export class ModelPool {
  private readonly entries = new Map<string, Entry>();
  private readonly names = new Map<string, Named>();
  private readonly stopped = new AbortController();
  /** Ends when those who asked before have room. */
  private turn: Promise<unknown> = Promise.resolve();
  private changed: (() => void) | undefined;
  private preloading: Promise<void> | undefined;
  loads = 0;
  unloads = 0;

  /**
   * @param onError hears why a model could not be loaded
   * @throws ServerError INVALID_OPTION; FileFormatError for paths that do not exist
   */
  constructor(
    sources: ModelSources,
    private readonly limits: PoolLimits,
    private readonly onError: (error: unknown) => void,
  ) {
    const named = Array.isArray(sources)
      ? sources.map((path) => [nameOf(path), path] as const)
      : Object.entries(sources);
    if (named.length === 0) throw new ServerError('INVALID_OPTION', 'There are no models; give at least one.');
    for (const [name, source] of named) {
      const entry = entryOf(name, source, limits.maxModelBytes);
      this.entries.set(name, entry);
      this.name(name, { entry });
      for (const adapter of adaptersOf(entry.file)) this.name(adapter, { entry, adapter });
    }
  }

  /** Names, in the order in which they were given, each followed by those of its adapters. */
  list(): { name: string; created: number; state: ModelState; users: number; adapter?: string }[] {
    return [...this.names].map(([name, { entry, adapter }]) => ({
      name,
      created: entry.created,
      users: entry.users,
      state: entry.model ? 'loaded' : entry.loading ? 'loading' : 'unloaded',
      ...(adapter !== undefined && { adapter }),
    }));
  }

  /** The models of texts that are loaded now. */
  loaded(): { name: string; model: LanguageModel }[] {
    return [...this.entries.values()].flatMap(({ name, model }) =>
      model && !isEmbedder(model) ? [{ name, model }] : [],
    );
  }

  /** @throws ApiError 404 */
  check(name: string): void {
    if (this.names.has(name)) return;
    throw new ApiError(404, `There is no model ${kinds.show(name)}; GET /v1/models lists them.`, {
      code: 'model_not_found',
      param: 'model',
    });
  }

  /**
   * The model, loaded where it is not yet.
   * @throws ApiError 404, 503; the signal's reason
   */
  async acquire(name: string, signal: AbortSignal): Promise<Lease> {
    this.check(name);
    const { entry, adapter } = this.names.get(name)!;
    // Counted from here on, so that it is not unloaded meanwhile.
    const mine = this.turn.then(() => this.makeRoomAndLoad(entry, signal));
    this.turn = mine.catch(() => {});
    const loading = await mine;
    try {
      const model = await loading.promise;
      signal.throwIfAborted();
      let released = false;
      const release = () => {
        if (!released) this.release(entry);
        released = true;
      };
      return {
        name,
        adapter,
        any: model,
        release,
        get model() {
          if (isEmbedder(model)) throw wrongKind(name, 'makes vectors of texts, and no texts');
          return model;
        },
        get embedder() {
          if (!isEmbedder(model)) throw wrongKind(name, 'makes texts, and no vectors of them');
          return model;
        },
      };
    } catch (error) {
      this.release(entry);
      throw error;
    }
  }

  /**
   * Loads the models one after the other, those that have room beside each other, and makes their device ready for texts.
   * @throws why one could not be loaded
   */
  preload(): Promise<void> {
    this.preloading = this.loadAll();
    return this.preloading;
  }

  private async loadAll(): Promise<void> {
    let total = 0;
    for (const { name, bytes } of this.entries.values()) {
      total += bytes;
      if (total > this.limits.maxModelBytes) return;
      const lease = await this.acquire(name, this.stopped.signal).catch((error: ApiError) => {
        throw error.cause ?? error;
      });
      try {
        const { any } = lease;
        if (!isEmbedder(any)) await any.warmUp({ sequences: this.limits.maxSequences, signal: this.stopped.signal });
      } finally {
        lease.release();
      }
    }
  }

  /** Unloads what this pool has loaded; leases must be over. */
  async close(): Promise<void> {
    this.stopped.abort(new ApiError(503, 'The server is closing.', { retryAfter: 5 }));
    this.changed?.();
    await this.preloading?.catch(() => {});
    for (const entry of this.entries.values()) {
      clearTimeout(entry.timer);
      await entry.loading?.catch(() => {});
      if (entry.file && entry.model) this.unload(entry);
    }
  }

  /** @throws ServerError INVALID_OPTION */
  private name(name: string, named: Named): void {
    if (name === '' || name.length > 256)
      throw new ServerError('INVALID_OPTION', `A model is called ${kinds.show(name)}; give 1 to 256 characters.`);
    if (this.names.has(name)) {
      const message = `Two models or adapters are called ${kinds.show(name)}; give each its own name.`;
      throw new ServerError('INVALID_OPTION', message);
    }
    this.names.set(name, named);
  }

  /** Takes a use of the entry, and begins to load it where there is room. The promise is wrapped so that nobody awaits it here. */
  private async makeRoomAndLoad(entry: Entry, signal: AbortSignal): Promise<{ promise: Promise<Model> }> {
    for (;;) {
      signal.throwIfAborted();
      this.stopped.signal.throwIfAborted();
      if (entry.file && isFailed(entry.model)) this.unload(entry);
      if (entry.model || entry.loading || this.makeRoom(entry)) break;
      await this.change(signal);
    }
    entry.users++;
    clearTimeout(entry.timer);
    if (entry.model) return { promise: Promise.resolve(entry.model) };
    entry.loading ??= this.load(entry);
    return { promise: entry.loading };
  }

  /** Until a model is used no more, or the signal is aborted. */
  private async change(signal: AbortSignal): Promise<void> {
    await new Promise<void>((resolve) => {
      this.changed = resolve;
      signal.addEventListener('abort', () => resolve(), { once: true });
    });
    this.changed = undefined;
  }

  /** Unloads what nobody uses until there is room. @returns false when what is in use takes too much */
  private makeRoom(entry: Entry): boolean {
    const others = [...this.entries.values()].filter(({ file, model, loading }) => file && (model || loading));
    let total = others.reduce((sum, { bytes }) => sum + bytes, entry.bytes);
    const idle = others.filter(({ model, users }) => model && users === 0).sort((a, b) => a.usedAt - b.usedAt);
    const surplus: Entry[] = [];
    while (total > this.limits.maxModelBytes) {
      const next = idle.shift();
      if (!next) return false;
      surplus.push(next);
      total -= next.bytes;
    }
    for (const next of surplus) this.unload(next);
    return true;
  }

  private async load(entry: Entry): Promise<Model> {
    try {
      const { signal } = this.stopped;
      const file = entry.file!;
      const load = (): Promise<Model> =>
        file.kind === 'embedding'
          ? loadEmbeddingModel(file.path, { ...file.options, signal })
          : loadModel(file.path, { ...file.options, signal });
      entry.model = await load().catch((error) => {
        // Caches are not in the budget: what nobody uses makes room once.
        if (!(error instanceof OutOfMemoryError) || !this.unloadIdle()) throw error;
        return load();
      });
      this.loads++;
      return entry.model;
    } catch (error) {
      this.stopped.signal.throwIfAborted();
      this.onError(error);
      throw new ApiError(
        500,
        `The model ${kinds.show(entry.name)} could not be loaded; the server's log has the cause.`,
        { code: 'model_load_failed', cause: error },
      );
    } finally {
      entry.loading = undefined;
    }
  }

  private release(entry: Entry): void {
    entry.users--;
    entry.usedAt = performance.now();
    if (entry.users > 0) return;
    this.changed?.();
    if (!entry.file || !Number.isFinite(this.limits.unloadAfterMs)) return;
    const unload = () => {
      if (entry.users === 0 && entry.model) this.unload(entry);
    };
    clearTimeout(entry.timer);
    entry.timer = setTimeout(unload, this.limits.unloadAfterMs).unref();
  }

  /** @returns whether there was anything to unload */
  private unloadIdle(): boolean {
    const idle = [...this.entries.values()].filter(({ file, model, users }) => file && model && users === 0);
    for (const entry of idle) this.unload(entry);
    return idle.length > 0;
  }

  private unload(entry: Entry): void {
    clearTimeout(entry.timer);
    entry.model?.dispose();
    entry.model = undefined;
    this.unloads++;
  }
}

/** Whether a rank of a model on several devices has failed, which ends all of it. */
function isFailed(model: Model | undefined): boolean {
  return model !== undefined && !isEmbedder(model) && model.failure !== undefined;
}

function entryOf(name: string, source: ModelSource, maxBytes: number): Entry {
  const common = {
    name,
    created: Math.floor(Date.now() / 1000),
    users: 0,
    usedAt: 0,
    timer: undefined,
    loading: undefined,
  };
  if (typeof source === 'object' && source !== null && ('generate' in source || 'embed' in source))
    return { ...common, file: undefined, bytes: 0, model: source };
  const file = typeof source === 'string' ? { path: source } : source;
  if (typeof file?.path !== 'string')
    throw new ServerError(
      'INVALID_OPTION',
      `The model ${name} has no path; give a path, { path, options } or a loaded model.`,
    );
  const isOfHub = hubName(file.path) !== undefined;
  if (isOfHub && Number.isFinite(maxBytes)) {
    const message = `The size of ${file.path} is not known before it is here, and there is maxModelBytes; download it first and give its path.`;
    throw new ServerError('INVALID_OPTION', message);
  }
  const bytes = isOfHub ? 0 : bytesOf(file.path);
  if (bytes > maxBytes) {
    const message = `The model ${name} has ${bytes} bytes, maxModelBytes is ${maxBytes}; allow more, or take a smaller model.`;
    throw new ServerError('INVALID_OPTION', message);
  }
  return { ...common, file, bytes, model: undefined };
}

/** Names of the adapters that a model is loaded with; what is no list of them is refused when it is loaded. */
function adaptersOf(file: ModelFile | undefined): string[] {
  return file === undefined || file.kind === 'embedding' ? [] : Object.keys(file.options?.adapters ?? {});
}

function isEmbedder(model: Model): model is EmbeddingModel {
  return 'embed' in model;
}

function wrongKind(name: string, what: string): ApiError {
  return new ApiError(400, `The model ${kinds.show(name)} ${what}.`, { code: 'wrong_model', param: 'model' });
}
