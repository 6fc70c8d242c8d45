/** A model that answers what a test has written: how answers look on the wire does not depend on what a model would say. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { ChatGeneration, ChatOptions, GenerateOptions, LanguageModel } from '@x/engine';
import { type ChatMessage, type ChatPiece, Tokenizer } from '@x/transformers';

export interface Script {
  pieces: ChatPiece[];
  finishReason?: ChatGeneration['finishReason'];
  /** Before each piece. */
  delayMs?: number;
  /** Before the last piece. */
  until?: Promise<unknown>;
  /** Thrown after the pieces. */
  error?: Error;
}

export interface ScriptedModel {
  model: LanguageModel;
  /** What it was asked. */
  asked: { messages: readonly ChatMessage[]; options: ChatOptions }[];
}

/** @param tokenizerJson of any model @param next gives the answers one after the other */
export async function scriptedModel(tokenizerJson: string, next: () => Script): Promise<ScriptedModel> {
  const tokenizer = await Tokenizer.fromFile(tokenizerJson);
  const asked: ScriptedModel['asked'] = [];
  const model = {
    tokenizer,
    maxContext: 256,
    cacheStats: { usedBlocks: 0, blocks: 0, bytes: 0 },
    generate: (_: string, __: GenerateOptions) => {
      throw new Error('chats only');
    },
    generateChat: (messages: readonly ChatMessage[], options: ChatOptions): ChatGeneration => {
      asked.push({ messages, options });
      return answer(next(), options);
    },
  };
  return { model: model as unknown as LanguageModel, asked };
}

function answer({ pieces, finishReason, delayMs = 0, until, error }: Script, { signal }: ChatOptions): ChatGeneration {
  const partial: ChatMessage = { role: 'assistant', content: '' };
  let tokens = 0;
  let reasoningTokens = 0;
  let ended = false;
  async function* run() {
    for (const piece of pieces) {
      await sleep(delayMs);
      if (piece === pieces.at(-1)) await until;
      signal?.throwIfAborted();
      tokens++;
      if (piece.type === 'text') partial.content += piece.text;
      if (piece.type === 'reasoning') {
        partial.reasoning = (partial.reasoning ?? '') + piece.text;
        reasoningTokens++;
      }
      if (piece.type === 'tool-call-end') partial.toolCalls = [...(partial.toolCalls ?? []), piece.call];
      yield piece;
    }
    if (error) throw error;
    ended = true;
  }
  return {
    promptIds: [1, 2, 3],
    tokens: [],
    partial,
    message: async () => partial,
    calls: async () => partial.toolCalls ?? [],
    get finishReason() {
      return ended ? (finishReason ?? (partial.toolCalls ? 'tool-calls' : 'eos')) : 'left';
    },
    get stats() {
      return {
        promptTokens: 3,
        reusedTokens: 0,
        tokens,
        reasoningTokens,
        loadMs: 0,
        firstTokenMs: 0,
        decodeTokensPerSecond: 0,
        seed: 0,
        finishReason: 'eos' as const,
      };
    },
    [Symbol.asyncIterator]: run,
  };
}

/** The pieces of a call, its arguments in two parts. */
export function callPieces(index: number, id: string, name: string, values: Record<string, unknown>): ChatPiece[] {
  const text = JSON.stringify(values);
  const half = Math.ceil(text.length / 2);
  return [
    { type: 'tool-call-start', index, id, name },
    { type: 'tool-call-arguments', index, text: text.slice(0, half) },
    { type: 'tool-call-arguments', index, text: text.slice(half) },
    { type: 'tool-call-end', index, call: { id, name, arguments: values } },
  ];
}
