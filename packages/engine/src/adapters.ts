/**
 * LoRA adapters of a loaded model, by names: which there are, who uses them, and what a request asks for. An adapter that is
 * unloaded is found no more and goes when the last sequence that has it ends.
 */
import { readdirSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { DisposedError, didYouMean, kinds } from '@x/core';
import { type Lora, type LoraBase, type LoraRows, type LoraSites, openLora, TransformersError } from '@x/transformers';
import { identityOf } from './load/model-identity';

/** An adapter for a text, by its name. `scale` multiplies what it adds; default 1. */
export type AdapterChoice = string | { name: string; scale?: number };

export const ADAPTER_OPTION: kinds.Kind = kinds.kind(
  (value) => typeof value === 'string' || isChoice(value),
  'give the name of an adapter, or { name, scale }',
);

export const ADAPTERS_OPTION: kinds.Kind = kinds.kind(
  (value) => kinds.isObject(value) && Object.values(value as object).every((path) => typeof path === 'string'),
  "give an object of paths by the adapters' names",
);

function isChoice(value: unknown): boolean {
  if (!kinds.isObject(value)) return false;
  const { name, scale = 1, ...rest } = value as Record<string, unknown>;
  return typeof name === 'string' && Number.isFinite(scale) && Object.keys(rest).length === 0;
}

/** An adapter at a scale, as a sequence has it. Each sequence holds it until it ends. */
export class AdapterUse {
  constructor(
    private readonly entry: Entry,
    readonly scale: number,
  ) {}

  get adapter(): Lora {
    return this.entry.lora;
  }

  /** What keys and values that were made with it are known by. */
  get key(): string {
    return `${this.entry.lora.id}*${this.scale}`;
  }

  /** A hash of its files, with its scale. @throws FileFormatError FILE_CHANGED */
  get identity(): string {
    return `${this.entry.identity()} * ${this.scale}`;
  }

  /** @throws DisposedError where it was unloaded meanwhile */
  hold(): void {
    this.entry.hold();
  }

  /** Ends {@link hold}. The last one of an adapter that was unloaded gives its memory back. */
  release(): void {
    this.entry.release();
  }
}

class Entry {
  private users = 0;
  private retired = false;

  /** @param identity a hash of its files @param free called when it was unloaded and nobody uses it */
  constructor(
    readonly name: string,
    readonly lora: Lora,
    readonly identity: () => string,
    private readonly free: (lora: Lora) => void,
  ) {}

  hold(): void {
    if (this.retired) {
      const message = `generate: the adapter "${this.name}" was unloaded; load it again.`;
      throw new DisposedError('DISPOSED', message);
    }
    this.users++;
  }

  release(): void {
    this.users--;
    this.freeIfUnused();
  }

  retire(): void {
    this.retired = true;
    this.freeIfUnused();
  }

  private freeIfUnused(): void {
    if (this.retired && this.users === 0) this.free(this.lora);
  }
}

export class Adapters {
  private readonly entries = new Map<string, Entry>();
  /** Names that are being loaded. */
  private readonly loading = new Set<string>();

  /** @param forget called before an adapter's memory goes */
  constructor(
    private readonly sites: LoraSites | undefined,
    private readonly base: Omit<LoraBase, 'pairs'> | undefined,
    private readonly forget: (lora: Lora) => void,
  ) {}

  get names(): string[] {
    return [...this.entries.keys()];
  }

  /**
   * @throws TransformersError INVALID_OPTION for a name that is taken, BAD_ADAPTER, UNSUPPORTED_ADAPTER; FileFormatError;
   *   the signal's reason
   */
  async load(name: string, path: string, signal?: AbortSignal): Promise<void> {
    const { sites, base } = this;
    for (const [what, value] of Object.entries({ name, path }))
      if (typeof value !== 'string')
        throw new TransformersError(
          'INVALID_OPTION',
          `loadAdapter: ${what} is of type ${typeof value}; give a string.`,
        );
    if (name === '' || this.entries.has(name) || this.loading.has(name)) {
      const what =
        name === '' ? 'the name is empty; give one' : `there is an adapter "${name}"; unload it, or take another name`;
      throw new TransformersError('INVALID_OPTION', `loadAdapter: ${what}.`);
    }
    if (!sites || !base) {
      const message =
        'loadAdapter: the layers of this model are not known by names, since it was not loaded from files; use loadModel.';
      throw new TransformersError('UNSUPPORTED_MODEL', message);
    }
    signal?.throwIfAborted();
    this.loading.add(name);
    try {
      const file = openLora(path, { ...base, pairs: sites.pairs });
      try {
        const identity = identityOf(filesOf(path), {});
        const lora = await sites.attach(file, signal);
        const free = () => {
          this.forget(lora);
          sites.detach(lora);
        };
        this.entries.set(name, new Entry(name, lora, identity, free));
      } finally {
        file.close();
      }
    } finally {
      this.loading.delete(name);
    }
  }

  /** @throws TransformersError INVALID_OPTION for a name that is not there */
  unload(name: string): void {
    const entry = this.find('unloadAdapter', name);
    this.entries.delete(name);
    entry.retire();
  }

  /** What a request asks for; undefined for the model as it is. @param op for messages @throws TransformersError INVALID_OPTION */
  use(choice: AdapterChoice | undefined, op = 'generate'): AdapterUse | undefined {
    if (choice === undefined) return undefined;
    const { name, scale = 1 } = typeof choice === 'string' ? { name: choice } : choice;
    return new AdapterUse(this.find(op, name), scale);
  }

  private find(op: string, name: string): Entry {
    kinds.check(op, 'the name of the adapter', name, kinds.STRING);
    const entry = this.entries.get(name);
    if (entry) return entry;
    const { names } = this;
    const rest = names.length > 0 ? `Adapters: ${names.join(', ')}` : 'None is loaded: use loadAdapter';
    throw new TransformersError(
      'INVALID_OPTION',
      `${op}: there is no adapter ${kinds.show(name)}.${didYouMean(name, names)} ${rest}.`,
      { option: 'adapter' },
    );
  }
}

/** The files of an adapter that `openLora` opens. */
function filesOf(path: string): string[] {
  const folder = statSync(path).isDirectory() ? path : path.endsWith('.safetensors') ? dirname(path) : undefined;
  if (folder === undefined) return [path];
  const names = ['adapter_config.json', 'adapter_model.safetensors'];
  return readdirSync(folder)
    .filter((name) => names.includes(name))
    .sort()
    .map((name) => join(folder, name));
}

/** The rows of a batch that have adapters. @param steps whose rows follow each other, `count` each */
export function adaptedRows(steps: readonly { use: AdapterUse | undefined; count: number }[]): LoraRows[] {
  const rows: (LoraRows & { key: string })[] = [];
  let start = 0;
  for (const { use, count } of steps) {
    const last = rows.at(-1);
    if (use && last?.key === use.key && last.start + last.count === start)
      rows[rows.length - 1] = { ...last, count: last.count + count };
    else if (use) rows.push({ adapter: use.adapter, scale: use.scale, key: use.key, start, count });
    start += count;
  }
  return rows;
}
