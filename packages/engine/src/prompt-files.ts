/**
 * Prompts on disk, of a model: reads one and writes what the cache has of it, and takes what a file has. Of several devices each
 * writes and reads its own part.
 */
import { randomUUID } from 'node:crypto';
import type { Tokenizer } from '@x/transformers';
import { TransformersError } from '@x/transformers';
import type { AdapterChoice } from './adapters';
import { BLOCK_SIZE } from './kv/rows';
import { fillBlocks, type PromptOwner, readPrompt, type SavedPrompt, writePrompt } from './kv/saved-prompt';
import type { Group } from './parallel/group';
import { promptIdsOf } from './prompt-ids';
import type { Runner } from './runner';
import { LogitsProcessor } from './sampling';
import type { BatchScheduler } from './schedule/scheduler';

export interface PromptFileOptions {
  /**
   * The adapter that the prompt is computed with: it is kept with the prompt, so that it has to be named with the same scale when the
   * file is loaded. Default: none.
   */
  adapter?: AdapterChoice;
  /** Stops between two layers. */
  signal?: AbortSignal;
}

/** The parts of a model that this needs. */
export interface PromptHost {
  runner: Runner;
  scheduler: BatchScheduler;
  tokenizer: Tokenizer;
  maxContext: number;
  /** A hash of the model's files. */
  identity: string;
  /** Other ranks. */
  group: Group | undefined;
  /** @throws where the model is of no use any more */
  checkAlive(): void;
}

/** As `LanguageModel.savePrompt`. */
export async function savePrompt(
  host: PromptHost,
  path: string,
  prompt: string | ArrayLike<number>,
  { adapter: choice, signal }: PromptFileOptions,
): Promise<{ tokens: number }> {
  const { scheduler, runner, tokenizer, group } = host;
  const adapter = runner.adapters.use(choice, 'savePrompt');
  const owner = { ...ownerOf(host, adapter?.identity), save: group ? randomUUID() : '' };
  const ids = promptIdsOf('savePrompt', prompt, tokenizer, {}, runner.maxContext);
  const count = ids.length - (ids.length % BLOCK_SIZE);
  if (count === 0) {
    throw new TransformersError(
      'INVALID_OPTION',
      `savePrompt: the prompt has ${ids.length} tokens, and whole blocks of ${BLOCK_SIZE} are saved; give a longer one.`,
    );
  }
  const cache = scheduler.open(false, adapter);
  try {
    await scheduler.prefill(cache, ids, new LogitsProcessor({}).sampler(ids), { signal });
    // Nobody takes its blocks while they are written.
    scheduler.hold(cache);
    const [blocks, tokens] = [cache.blocks.slice(0, count / BLOCK_SIZE), ids.slice(0, count)];
    // The file that people name comes last: without it there is no prompt.
    await group?.ask({ kind: 'write', path, blocks, tokens, owner });
    await writePrompt(path, runner.pool, blocks, tokens, owner, signal);
    return { tokens: count };
  } finally {
    scheduler.close(cache);
  }
}

/** As `LanguageModel.loadPrompt`. */
export async function loadPrompt(
  host: PromptHost,
  path: string,
  { adapter: choice, signal }: PromptFileOptions,
): Promise<{ tokens: readonly number[] }> {
  const { runner, group } = host;
  signal?.throwIfAborted();
  const adapter = runner.adapters.use(choice, 'loadPrompt');
  const owner = ownerOf(host, adapter?.identity);
  const { vocabSize } = runner.model.config;
  const saved = await readPrompt(path, runner.pool, vocabSize, owner);
  try {
    host.checkAlive();
    await group?.ask({ kind: 'read', path, vocabSize, owner: { ...owner, save: saved.save } });
    try {
      return await take(host, saved, adapter, signal);
    } finally {
      await group?.ask({ kind: 'forget' }).catch(() => {});
    }
  } finally {
    for (const layer of saved.layers.values()) layer.dispose();
  }
}

/** Makes blocks of the cache of what was read. */
async function take(
  host: PromptHost,
  saved: SavedPrompt,
  adapter: ReturnType<Runner['adapters']['use']>,
  signal: AbortSignal | undefined,
): Promise<{ tokens: readonly number[] }> {
  const { scheduler, runner, maxContext, group } = host;
  host.checkAlive();
  const cache = scheduler.open(false, adapter);
  try {
    const tokens = saved.tokens.slice(0, maxContext - (maxContext % BLOCK_SIZE));
    const adopt = () => {
      // The last token is never adopted, and here each may be.
      if (cache.capacity === 0) cache.adopt([...tokens, -1]);
    };
    adopt();
    while (cache.length < tokens.length && !scheduler.tryHold(cache, tokens.length)) {
      await scheduler.waitForRoom(cache, signal);
      host.checkAlive();
      adopt();
    }
    const start = cache.length;
    if (start < tokens.length) {
      const check = () => {
        signal?.throwIfAborted();
        host.checkAlive();
      };
      const blocks = [...cache.blocks];
      // Blocks are others' again when both have ended, whatever with.
      const own = fillBlocks(runner.pool, blocks, saved, start, check);
      const ended = await Promise.allSettled([own, group?.ask({ kind: 'fill', blocks, start })]);
      const failed = ended.find((each) => each.status === 'rejected');
      if (failed) throw failed.reason;
      cache.commit(tokens.slice(start));
    }
    return { tokens };
  } finally {
    scheduler.close(cache);
  }
}

function ownerOf({ identity, group }: PromptHost, adapter = ''): PromptOwner {
  return { model: identity, adapter, rank: 0, ranks: group?.size ?? 1, split: group?.split };
}
