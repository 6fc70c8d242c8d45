/**
 * Models of this process for the AI SDK (`ai` on npm, version 6: specification v3), without HTTP between them.
 *
 * ```ts
 * import { loadModel } from '@x/engine';
 * import { languageModel } from '@x/server/ai-sdk';
 * import { streamText } from 'ai';
 * const model = languageModel(await loadModel('model.gguf'));
 * for await (const text of streamText({ model, prompt: 'Hello' }).textStream) process.stdout.write(text);
 * ```
 */
import type {
  EmbeddingModelV3,
  LanguageModelV3,
  LanguageModelV3CallOptions,
  LanguageModelV3Content,
  LanguageModelV3StreamPart,
  SharedV3Warning,
} from '@ai-sdk/provider';
import type { ChatGeneration, EmbeddingModel, LanguageModel } from '@x/engine';
import { ServerError } from '../errors';
import { chatOptions } from './options';
import { ChatParts } from './parts';
import { chatMessages } from './prompt';

export interface ProviderSettings {
  /** How the AI SDK names the model. Default `local`. */
  modelId?: string;
}

/** The texts of a request at most: they are one call of the engine, which makes batches of them. */
const MAX_EMBEDDINGS = 2048;

/**
 * A loaded model as the AI SDK takes it: text, reasoning, tools, objects by a schema. Any number of requests share its
 * batches. The model stays the caller's to dispose. `providerOptions.candle` takes further options of `generateChat`, such as
 * `{ minP: 0.05, template: { enable_thinking: false } }`.
 */
export function languageModel(model: LanguageModel, { modelId = 'local' }: ProviderSettings = {}): LanguageModelV3 {
  checkModel('languageModel', model, 'generateChat', 'loadModel');
  const begin = (options: LanguageModelV3CallOptions) => {
    const warnings: SharedV3Warning[] = [];
    const generation = model.generateChat(chatMessages(options.prompt), chatOptions(options, warnings));
    return { generation, warnings };
  };
  return {
    specificationVersion: 'v3',
    provider: 'candle',
    modelId,
    supportedUrls: {},
    async doGenerate(options) {
      const { generation, warnings } = begin(options);
      const content: LanguageModelV3Content[] = [];
      const parts = new ChatParts();
      for await (const piece of generation) for (const part of parts.add(piece)) collect(content, part);
      for (const part of parts.close()) collect(content, part);
      return { content, ...parts.end(generation), warnings, response: { modelId, timestamp: new Date() } };
    },
    async doStream(options) {
      const { generation, warnings } = begin(options);
      return { stream: toStream(streamParts(generation, warnings, modelId, options.abortSignal)) };
    },
  };
}

/** A loaded model of embeddings as the AI SDK takes it; it stays the caller's to dispose. */
export function embeddingModel(model: EmbeddingModel, { modelId = 'local' }: ProviderSettings = {}): EmbeddingModelV3 {
  checkModel('embeddingModel', model, 'embed', 'loadEmbeddingModel');
  return {
    specificationVersion: 'v3',
    provider: 'candle',
    modelId,
    maxEmbeddingsPerCall: MAX_EMBEDDINGS,
    supportsParallelCalls: false,
    async doEmbed({ values, abortSignal, providerOptions }) {
      // What does not fit is an error, unless the options say that it may be left out.
      const results = await model.embed(values, { truncate: false, ...providerOptions?.candle, signal: abortSignal });
      const tokens = results.reduce((sum, result) => sum + result.tokens, 0);
      return { embeddings: results.map(({ vector }) => Array.from(vector)), usage: { tokens }, warnings: [] };
    },
  };
}

function checkModel(op: string, model: object | undefined, method: string, loader: string): void {
  if (typeof (model as Record<string, unknown> | null | undefined)?.[method] === 'function') return;
  throw new ServerError('INVALID_OPTION', `${op}: the model cannot ${method}; give what ${loader} gave.`);
}

async function* streamParts(
  generation: ChatGeneration,
  warnings: SharedV3Warning[],
  modelId: string,
  signal: AbortSignal | undefined,
): AsyncGenerator<LanguageModelV3StreamPart, void, void> {
  yield { type: 'stream-start', warnings };
  yield { type: 'response-metadata', modelId, timestamp: new Date() };
  const parts = new ChatParts();
  try {
    for await (const piece of generation) yield* parts.add(piece);
  } catch (error) {
    if (signal?.aborted) throw error;
    yield { type: 'error', error };
    yield { type: 'finish', usage: parts.end(generation).usage, finishReason: { unified: 'error', raw: undefined } };
    return;
  }
  yield* parts.close();
  yield { type: 'finish', ...parts.end(generation) };
}

/** Parts of a stream as the content of a whole answer: deltas joined, calls as they are. */
function collect(content: LanguageModelV3Content[], part: LanguageModelV3StreamPart): void {
  if (part.type === 'tool-call') content.push(part);
  if (part.type === 'text-start') content.push({ type: 'text', text: '' });
  if (part.type === 'reasoning-start') content.push({ type: 'reasoning', text: '' });
  const last = content.at(-1);
  if (part.type === 'text-delta' && last?.type === 'text') last.text += part.delta;
  if (part.type === 'reasoning-delta' && last?.type === 'reasoning') last.text += part.delta;
}

/** Read as it is asked for; leaving it ends the generation. */
function toStream<T>(iterator: AsyncGenerator<T, void, void>): ReadableStream<T> {
  return new ReadableStream<T>({
    async pull(controller: ReadableStreamDefaultController<T>) {
      try {
        const { done, value } = await iterator.next();
        if (done) controller.close();
        else controller.enqueue(value);
      } catch (error) {
        controller.error(error);
      }
    },
    async cancel() {
      await iterator.return();
    },
  });
}
