/** One answer of a chat: a text generation whose tokens are read as reasoning, text and tool calls while they come. */
import { kinds } from '@x/core';
import {
  type ChatMessage,
  type ChatPiece,
  type ChatPrompt,
  type ChatTemplate,
  checkTools,
  isStandardSchema,
  type KnownTokens,
  marksOf,
  ReplyParser,
  standardValue,
  stopIds,
  type ToolDefinition,
  TransformersError,
} from '@x/transformers';
import { GENERATE_OPTIONS } from '../generate-options';
import { Generation, type GenerationHost, type GenerationStats, type Piece } from '../generation';
import { checkOptions } from '../options';
import { constrained, isFormed } from './constrained';
import { ReasoningCount } from './reasoning-count';
import type { ChatGeneration, ChatOptions, ParsedCall, ToolChoice } from './types';

const { addSpecialTokens: _, ...generateOptions } = GENERATE_OPTIONS;

export const CHAT_OPTIONS: Record<keyof ChatOptions, kinds.Kind> = {
  ...generateOptions,
  tools: kinds.kind(Array.isArray, 'give a list of { name, parameters }'),
  toolChoice: kinds.kind(
    (value) =>
      ['auto', 'none', 'required'].includes(value as string) ||
      (kinds.isObject(value) && typeof (value as { name?: unknown }).name === 'string'),
    "give 'auto', 'none', 'required' or { name }",
  ),
  template: kinds.kind(kinds.isObject, "give an object with the template's variables"),
  continueLast: kinds.BOOLEAN,
};

export class ChatAnswer<Tools extends readonly ToolDefinition[] = readonly ToolDefinition[]>
  implements ChatGeneration<Tools>
{
  private readonly prompt: ChatPrompt;
  private readonly generation: Generation;
  private readonly parser: ReplyParser;
  private readonly begun: ChatPiece[];
  /** As they were given. */
  private readonly tools: readonly ToolDefinition[];
  private readonly generated: Piece[] = [];
  private readonly reasoning = new ReasoningCount();
  private iterator: AsyncGenerator<ChatPiece, void, void> | undefined;
  private text = '';
  /** Tokens whose text is in {@link text}. */
  private textTokens = 0;

  /** @throws TransformersError BAD_MESSAGES, CHAT_REFUSED, BAD_CHAT_TEMPLATE, INVALID_OPTION, CONTEXT_EXCEEDED */
  constructor(
    private readonly host: GenerationHost,
    template: ChatTemplate,
    messages: readonly ChatMessage[],
    options: ChatOptions<Tools>,
    known: readonly KnownTokens[] = [],
  ) {
    checkOptions('chat', options, CHAT_OPTIONS);
    const {
      tools = [] as readonly ToolDefinition[],
      toolChoice = 'auto',
      template: variables,
      continueLast,
      ...rest
    } = options;
    this.tools = toolChoice === 'none' ? [] : tools;
    const offered = checkTools(this.tools);
    const force = forced(toolChoice, offered);
    const { tokenizer } = host;
    const maxTokens = host.scheduler.runner.maxContext;
    const given = { tools: offered, variables, continueLast, force, formed: isFormed(rest), known, maxTokens };
    this.prompt = template.prompt(tokenizer, messages, given);
    const { ids, inReasoning, begun } = this.prompt;
    // Where no tool may be called nothing is a call.
    const format = offered.length > 0 ? this.prompt.format : { ...this.prompt.format, calls: undefined };
    const continued = continueLast && (inReasoning || format.family === 'harmony' || messages.at(-1)!.content !== '');
    this.parser = new ReplyParser(format, { tools: offered, inReasoning, continued });
    const marks = new Map<number, string>();
    for (const mark of marksOf(format)) {
      const id = tokenizer.tokenToId(mark);
      if (id !== undefined) marks.set(id, mark);
    }
    const keptIds = new Set(marks.keys());
    const own = constrained(host, this.prompt, offered, force, marks, rest);
    this.generation = new Generation({ ...host, stopIds: stopIds(tokenizer, format), keptIds }, ids, own);
    this.begun = this.parser.push(begun);
  }

  get promptIds(): readonly number[] {
    return this.generation.promptIds;
  }

  get partial(): ChatMessage {
    return this.parser.message;
  }

  get tokens(): readonly Piece[] {
    return this.generated;
  }

  get stats(): GenerationStats {
    return { ...this.generation.stats, reasoningTokens: this.reasoning.tokens };
  }

  get finishReason(): ChatGeneration['finishReason'] {
    const { finishReason } = this.stats;
    return finishReason === 'eos' && this.partial.toolCalls ? 'tool-calls' : finishReason;
  }

  /** The tokens of prompt and answer, where they are those of its text. */
  get known(): KnownTokens | undefined {
    const { tokenizer, keptIds } = this.generation.host;
    const ids = this.generated.slice(0, this.textTokens).map(({ id }) => id);
    if (ids.some((id) => tokenizer.isSpecial(id) && !keptIds?.has(id))) return undefined;
    return { text: this.prompt.marked + this.text, ids: [...this.promptIds, ...ids] };
  }

  async message(): Promise<ChatMessage> {
    this.iterator ??= this.run();
    for (;;) if ((await this.iterator.next()).done) return this.partial;
  }

  async calls(): Promise<ParsedCall<Tools>[]> {
    await this.message();
    return this.parsedCalls();
  }

  /** The calls so far. @throws TransformersError INVALID_VALUE */
  async parsedCalls(): Promise<ParsedCall<Tools>[]> {
    const calls = (this.partial.toolCalls ?? []).map(async ({ id, name, arguments: written }) => {
      const parameters = this.tools.find((tool) => tool.name === name)?.parameters;
      const refused = `The tool "${name}" refuses the arguments that the model wrote`;
      const value = isStandardSchema(parameters) ? await standardValue(parameters, written, refused) : written;
      return { id, name, arguments: value };
    });
    return (await Promise.all(calls)) as ParsedCall<Tools>[];
  }

  /** @throws TransformersError INVALID_OPTION when iterated twice */
  [Symbol.asyncIterator](): AsyncGenerator<ChatPiece, void, void> {
    if (this.iterator) {
      throw new TransformersError('INVALID_OPTION', 'This answer was iterated before; ask again for another one.');
    }
    this.iterator = this.run();
    return this.iterator;
  }

  private async *run(): AsyncGenerator<ChatPiece, void, void> {
    yield* this.begun;
    try {
      for await (const piece of this.generation) {
        this.generated.push(piece);
        this.text += piece.text;
        if (piece.text !== '') this.textTokens = this.generated.length;
        const pieces = this.parser.push(piece.text);
        this.reasoning.add(pieces);
        yield* pieces;
      }
      const rest = this.parser.end();
      this.reasoning.add(rest, 0);
      yield* rest;
    } finally {
      // What was held back when the answer was interrupted is part of it, too.
      this.parser.end();
    }
  }
}

/** The call that the prompt begins for the model, if it must make one. */
function forced(choice: ToolChoice, tools: ChatOptions['tools'] = []): { name?: string } | undefined {
  if (choice === 'auto' || choice === 'none') return undefined;
  const fail = (what: string) =>
    new TransformersError('INVALID_OPTION', `chat: toolChoice ${what}.`, { option: 'toolChoice' });
  if (tools.length === 0) throw fail('demands a call, but there are no tools; give tools');
  if (choice === 'required') return {};
  const names = tools.map(({ name }) => name);
  if (!names.includes(choice.name)) throw fail(`names the tool "${choice.name}"; give one of ${names.join(', ')}`);
  return { name: choice.name };
}
