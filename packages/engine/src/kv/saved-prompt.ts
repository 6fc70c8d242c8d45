/**
 * Prompts on disk: the keys and values of a prompt's whole blocks in a safetensors file, with what they belong to. What is
 * loaded becomes blocks of the pool that no sequence uses, as if a prompt had just been read: prompts that begin alike find
 * them there. Of a model on several devices each rank has a file with its part.
 */
import { createHash } from 'node:crypto';
import { cat, Device, type DType, FileFormatError, scope, Tensor } from '@x/core';
import { SafetensorsFile, saveSafetensors } from '@x/core/files';
import type { KvMemory } from './memory';
import { BLOCK_SIZE, rowKinds, rowsOf } from './rows';

/** Of the file's layout: another number is another layout. */
const VERSION = 1;
const FORMAT = 'x-candle-prompt';

/** Where keys and values lie: a pool, or a rank's memory. */
type CacheRows = Pick<KvMemory, 'layouts' | 'device' | 'dtype' | 'layer'>;

/** What a saved prompt belongs to: it is refused where any of it differs. */
export interface PromptOwner {
  /** Of `identityOf`. */
  model: string;
  /** The same of the adapter, with its scale; empty for none. */
  adapter: string;
  rank: number;
  ranks: number;
  /** What ranks have; default parts of all layers. */
  split?: 'tensors' | 'layers' | undefined;
  /** The same in the files of all ranks that were written together; undefined to read: any. */
  save?: string;
}

export interface SavedPrompt {
  /** Tokens whose keys and values are in the file: whole blocks of 32. */
  tokens: readonly number[];
  /** By name: `layer.3.keys` [tokens, kvHeads, keyDim], in the host's memory. */
  layers: ReadonlyMap<string, Tensor>;
  /** Of {@link PromptOwner.save}. */
  save: string;
}

/** The file of a rank: that of the one that leads is the one that people name. */
export function fileOfRank(path: string, rank: number): string {
  return rank === 0 ? path : `${path}.${rank}`;
}

/** The tensors of a pool that keep something of each position, by their names in a file. */
function rowsOfPool(pool: CacheRows): [name: string, rows: Tensor][] {
  return pool.layouts.flatMap((layout, i): [string, Tensor][] =>
    layout ? rowsOf(layout, pool.layer(i)).map(([name, rows]) => [`layer.${i}.${name}`, rows]) : [],
  );
}

/** Blocks that lie behind each other, as [first, count]. */
function runsOf(blocks: readonly number[]): [first: number, count: number][] {
  const runs: [number, number][] = [];
  for (const block of blocks) {
    const last = runs.at(-1);
    if (last !== undefined && last[0] + last[1] === block) last[1]++;
    else runs.push([block, 1]);
  }
  return runs;
}

/**
 * Writes the first blocks of a sequence, which nobody takes meanwhile. The file is replaced when the new one is complete.
 * @param tokens as many as are saved, whole blocks
 * @throws FileFormatError FILE_UNWRITABLE; the signal's reason
 */
export async function writePrompt(
  path: string,
  pool: CacheRows,
  blocks: readonly number[],
  tokens: readonly number[],
  owner: PromptOwner,
  signal?: AbortSignal,
): Promise<void> {
  const runs = runsOf(blocks.slice(0, tokens.length / BLOCK_SIZE));
  const host = Device.js();
  const parts = new Map<string, Tensor>();
  try {
    parts.set('tokens', Tensor.from(Uint32Array.from(tokens), { device: host }));
    for (const [name] of rowsOfPool(pool)) {
      signal?.throwIfAborted();
      // The pool may have grown meanwhile: its memory is another one then.
      const rows = new Map(rowsOfPool(pool)).get(name)!;
      using joined = scope(() =>
        cat(
          runs.map(([first, count]) => rows.narrow(0, first * BLOCK_SIZE, count * BLOCK_SIZE)),
          0,
        ),
      );
      parts.set(name, await joined.toDevice(host));
    }
    const metadata = {
      format: FORMAT,
      version: String(VERSION),
      model: owner.model,
      dtype: pool.dtype,
      ...(owner.adapter && { adapter: owner.adapter }),
      ...(owner.ranks > 1 && { part: partOf(owner), save: owner.save ?? '' }),
      sha256: await digest(parts),
    };
    signal?.throwIfAborted();
    await saveSafetensors(path, parts, metadata);
  } finally {
    for (const part of parts.values()) part.dispose();
  }
}

/**
 * Reads a file and checks all of it before anything is used: the caller disposes the tensors.
 * @throws FileFormatError FILE_NOT_FOUND, PROMPT_MISMATCH for a file of another model, cache dtype or version, FILE_INVALID
 *   and FILE_TRUNCATED for one that is damaged or no saved prompt
 */
export async function readPrompt(
  path: string,
  pool: CacheRows,
  vocabSize: number,
  owner: PromptOwner,
): Promise<SavedPrompt> {
  const fail = (code: 'FILE_INVALID' | 'PROMPT_MISMATCH', what: string) => {
    const remedy =
      code === 'FILE_INVALID'
        ? 'Delete it and save the prompt again'
        : 'Use another file, or delete it and save the prompt again';
    return new FileFormatError(code, `${path}: ${what}. ${remedy}.`, { path });
  };
  const file = SafetensorsFile.open(path);
  const layers = new Map<string, Tensor>();
  try {
    const { format, version, model, adapter = '', part = ONE_DEVICE, save = '', dtype, sha256 } = file.metadata;
    if (format !== FORMAT) throw fail('FILE_INVALID', 'it is no saved prompt');
    if (version !== String(VERSION))
      throw fail('PROMPT_MISMATCH', `it has version ${version} of the format, and this program reads ${VERSION}`);
    if (model !== owner.model) throw fail('PROMPT_MISMATCH', 'the prompt was saved with another model');
    if (adapter !== owner.adapter) throw fail('PROMPT_MISMATCH', adaptersDiffer(adapter, owner.adapter));
    if (part !== partOf(owner)) throw fail('PROMPT_MISMATCH', `it was saved by ${part}, and this is ${partOf(owner)}`);
    if (owner.save !== undefined && save !== owner.save)
      throw fail('PROMPT_MISMATCH', 'it was written at another time than the parts of the other devices');
    if (dtype !== pool.dtype)
      throw fail('PROMPT_MISMATCH', `its keys and values are ${dtype}, and those of the model's cache ${pool.dtype}`);
    const count = file.has('tokens') ? file.info('tokens').shape[0] : 0;
    if (!(count > 0 && count % BLOCK_SIZE === 0))
      throw fail('FILE_INVALID', `it holds ${count} tokens, which are no whole blocks of ${BLOCK_SIZE}`);
    const wants = new Map<string, { shape: readonly number[]; wanted: DType }>();
    wants.set('tokens', { shape: [count], wanted: 'u32' });
    for (const [i, layout] of pool.layouts.entries()) {
      for (const [name, { width, dtype }] of layout ? rowKinds(layout, pool.dtype) : [])
        wants.set(`layer.${i}.${name}`, { shape: [count, layout!.kvHeads, width], wanted: dtype });
    }
    for (const [name, { shape, wanted }] of wants) {
      const found = file.has(name) ? file.info(name) : undefined;
      if (found === undefined || found.dtype.toLowerCase() !== wanted || found.shape.join() !== shape.join()) {
        throw fail('FILE_INVALID', `it has no ${name} of ${wanted} [${shape.join(', ')}]`);
      }
      layers.set(name, await file.load(name, Device.js()));
    }
    if ((await digest(layers)) !== sha256)
      throw fail('FILE_INVALID', 'it is damaged: its bytes have another hash than when it was written');
    const stored = layers.get('tokens')!;
    const tokens = Array.from(stored.toArraySync<Uint32Array>());
    if (tokens.some((id) => id >= vocabSize)) throw fail('FILE_INVALID', 'it has tokens that the model does not have');
    stored.dispose();
    layers.delete('tokens');
    return { tokens, layers, save };
  } catch (error) {
    for (const layer of layers.values()) layer.dispose();
    throw error;
  } finally {
    file.close();
  }
}

const ONE_DEVICE = 'a single device';

/** Which part of the model a file is of. */
function partOf({ rank, ranks, split }: PromptOwner): string {
  if (ranks === 1) return ONE_DEVICE;
  return `device ${rank + 1} of ${ranks} with ${split === 'layers' ? 'whole layers' : 'a part of every layer'}`;
}

function adaptersDiffer(saved: string, wanted: string): string {
  if (wanted === '') return 'the prompt was saved with an adapter, which has to be named';
  return saved === ''
    ? 'the prompt was saved without an adapter'
    : 'the prompt was saved with another adapter or scale';
}

/**
 * Copies the positions from `start` on into the blocks that a sequence has for them, which nobody else uses.
 * @param check called between two layers; what it throws ends the copying
 */
export async function fillBlocks(
  pool: CacheRows,
  blocks: readonly number[],
  { layers }: SavedPrompt,
  start: number,
  check: () => void,
): Promise<void> {
  const runs = runsOf(blocks.slice(start / BLOCK_SIZE));
  for (const [name, saved] of layers) {
    using moved = await saved.toDevice(pool.device);
    check();
    // The pool may have grown meanwhile: its memory is another one then.
    const rows = new Map(rowsOfPool(pool)).get(name)!;
    scope(() => {
      let at = start;
      for (const [first, count] of runs) {
        const length = count * BLOCK_SIZE;
        rows.narrow(0, first * BLOCK_SIZE, length).copyFrom(moved.narrow(0, at, length));
        at += length;
      }
    });
  }
}

/** sha256 over names and bytes, of tensors in the host's memory. */
async function digest(parts: ReadonlyMap<string, Tensor>): Promise<string> {
  const hash = createHash('sha256');
  for (const name of [...parts.keys()].sort()) {
    hash.update(`${name}\n`);
    const { storage, layout } = parts.get(name)!.storageAndLayout();
    hash.update(new Uint8Array(await storage.toHost(layout.startOffset, layout.elemCount)));
  }
  return hash.digest('hex');
}
