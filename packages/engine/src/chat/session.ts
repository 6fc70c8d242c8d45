/**
 * A chat: its messages, and answers to them. The history is a list that callers may read and change between answers; the
 * cache of keys and values is the model's, so that chats that begin alike, branches among them, share what was computed.
 */
import { kinds } from '@x/core';
import {
  type ChatMessage,
  type ChatPiece,
  type ChatTemplate,
  checkMessages,
  checkTools,
  type KnownTokens,
  type ToolDefinition,
  TransformersError,
} from '@x/transformers';
import type { GenerationHost, GenerationStats, Piece } from '../generation';
import { checkOptions } from '../options';
import { CHAT_OPTIONS, ChatAnswer } from './generation';
import type { ChatGeneration, ChatOptions, ParsedCall } from './types';

/** Options of all answers of a chat. */
export interface ChatSessionOptions<Tools extends readonly ToolDefinition[] = readonly ToolDefinition[]>
  extends Omit<ChatOptions<Tools>, 'signal' | 'onProgress' | 'continueLast'> {
  /** What the model is told before all else: a first message of the role `system`. Default: none, unless `messages` has one. */
  system?: string;
  /** A history to go on from, copied. */
  messages?: readonly ChatMessage[];
  /**
   * What happens when prompt and history do not fit into the context: an error (the default), or the oldest turns are left out
   * of the prompt, of which {@link ChatTurn.dropped} tells. They stay in the history.
   */
  whenFull?: 'error' | 'drop-oldest';
}

/** Options of one answer, which come before those of the chat. */
export interface ChatTurnOptions<Tools extends readonly ToolDefinition[] = readonly ToolDefinition[]>
  extends Omit<ChatOptions<Tools>, 'continueLast'>,
    Pick<ChatSessionOptions, 'whenFull'> {}

/** A chat as JSON: what {@link ChatSession.toJSON} gives and `model.chat({}, saved)` takes. */
export interface SavedChat {
  version: 1;
  messages: ChatMessage[];
  options: Omit<
    ChatSessionOptions,
    'system' | 'messages' | 'constraint' | 'grammar' | 'speculative' | 'regex' | 'logitBias'
  > & {
    regex?: string | { source: string; flags: string };
    /** JSON has no infinities. */
    logitBias?: Readonly<Record<number, number | '-Infinity'>>;
  };
}

/** What a chat needs of a model. */
export interface ChatHost extends GenerationHost {
  readonly chatTemplate: ChatTemplate;
  checkAlive(what: string): void;
}

const SESSION_OPTIONS = {
  ...CHAT_OPTIONS,
  system: kinds.STRING,
  messages: kinds.kind(Array.isArray, 'give a list of messages'),
  whenFull: kinds.oneOf(['error', 'drop-oldest']),
} satisfies Record<string, kinds.Kind>;

/** Tokens that a prompt leaves for the answer when turns are left out, at most a quarter of the context. */
const ROOM = 256;
/** Answers whose tokens are kept. */
const MOST_KNOWN = 8;

/**
 * A chat with its history: what `LanguageModel.chat` gives. One answer at a time: while one is under way, what changes the history
 * throws TransformersError INVALID_OPTION.
 */
export class ChatSession<Tools extends readonly ToolDefinition[] = readonly ToolDefinition[]> {
  private history: ChatMessage[];
  private readonly options: Omit<ChatSessionOptions<Tools>, 'system' | 'messages'>;
  /** Of the last answers, the latest first. */
  private known: readonly KnownTokens[] = [];
  private running: ChatTurn<readonly ToolDefinition[]> | undefined;

  /** @internal `LanguageModel.chat` */
  constructor(
    private readonly host: ChatHost,
    options: ChatSessionOptions<Tools>,
  ) {
    checkOptions('chat', options, SESSION_OPTIONS);
    const { system, messages = [], ...rest } = options;
    host.chatTemplate.check(options.template);
    if (messages.length > 0) checkMessages(messages);
    this.options = rest;
    this.history = structuredClone([...messages]);
    if (system !== undefined) this.system = system;
  }

  /** All messages so far, in order. */
  get messages(): readonly ChatMessage[] {
    return this.history;
  }

  /** The system message's text. Setting it changes the first message, adds or, with undefined, removes it. */
  get system(): string | undefined {
    return this.history[0]?.role === 'system' ? this.history[0].content : undefined;
  }

  set system(text: string | undefined) {
    this.checkIdle('system');
    const rest = this.system === undefined ? this.history : this.history.slice(1);
    this.history = text === undefined ? rest : [{ role: 'system', content: text }, ...rest];
  }

  /**
   * Adds a message, or several such as the results of tools, and answers. Nothing runs, and the history stays, before the first
   * `next()`.
   * @throws TransformersError as `LanguageModel.generateChat`; the history is then as before
   */
  send<const Used extends readonly ToolDefinition[] = Tools>(
    message: string | ChatMessage | readonly ChatMessage[],
    options: ChatTurnOptions<Used> = {},
  ): ChatTurn<Used> {
    const added = typeof message === 'string' ? [{ role: 'user' as const, content: message }] : [message].flat();
    checkMessages(added);
    return this.turn([...this.history, ...structuredClone(added)], options);
  }

  /** Answers once more in place of the last answer, which comes back if the new one fails before it has begun. */
  regenerate<const Used extends readonly ToolDefinition[] = Tools>(
    options: ChatTurnOptions<Used> = {},
  ): ChatTurn<Used> {
    let end = this.history.length;
    while (end > 0 && this.history[end - 1].role === 'assistant') end--;
    if (end === 0 || this.history[end - 1].role === 'system') throw nothing('There is nothing to answer');
    return this.turn(this.history.slice(0, end), options);
  }

  /** Goes on with the last answer where it ends, such as one that was interrupted. */
  continue<const Used extends readonly ToolDefinition[] = Tools>(options: ChatTurnOptions<Used> = {}): ChatTurn<Used> {
    const last = this.history.at(-1);
    if (last?.role !== 'assistant' || last.toolCalls) throw nothing('There is no answer to go on with');
    return this.turn([...this.history], options, true);
  }

  /** Changes the text of a message; all others, and its reasoning and calls, stay as they are. */
  edit(index: number, content: string): void {
    this.checkIdle('edit');
    const message = this.history[index];
    if (!message)
      throw new TransformersError(
        'INVALID_OPTION',
        `chat: there is no message ${index}; the chat has ${this.history.length}, counted from 0.`,
      );
    const history = this.history.with(index, { ...message, content });
    checkMessages(history);
    this.history = history;
  }

  /** Another chat with the first `length` messages, all by default. What both have in common is computed once. */
  branch(length = this.history.length): ChatSession<Tools> {
    const most = this.history.length;
    if (!Number.isInteger(length) || length < 0 || length > most)
      throw new TransformersError(
        'INVALID_OPTION',
        `chat: a branch of ${length} messages; give a number from 0 to ${most}, as many as the chat has.`,
      );
    const other = new ChatSession(this.host, { ...this.options, messages: this.history.slice(0, length) });
    other.known = this.known;
    return other;
  }

  /** Forgets all messages but the system's. */
  clear(): void {
    this.checkIdle('clear');
    this.known = [];
    this.history = this.system === undefined ? [] : this.history.slice(0, 1);
  }

  /**
   * What `model.chat({}, saved)` goes on from. Of the options `constraint`, `grammar` and `speculative` are left out, and a tool's
   * Standard Schema becomes its JSON Schema.
   */
  toJSON(): SavedChat {
    const { constraint: _, grammar: __, speculative: ___, regex, logitBias, ...options } = this.options;
    const biases = Object.entries(logitBias ?? {}).map(([id, bias]) => [
      id,
      Number.isFinite(bias) ? bias : '-Infinity',
    ]);
    return {
      version: 1,
      messages: structuredClone(this.history),
      options: {
        ...options,
        ...(options.tools && { tools: checkTools(options.tools) }),
        ...(regex && { regex: typeof regex === 'string' ? regex : { source: regex.source, flags: regex.flags } }),
        ...(logitBias && { logitBias: Object.fromEntries(biases) }),
      },
    };
  }

  private turn<Used extends readonly ToolDefinition[]>(
    messages: ChatMessage[],
    options: ChatTurnOptions<Used>,
    continueLast = false,
  ): ChatTurn<Used> {
    this.checkIdle('send');
    this.host.checkAlive('chat');
    checkOptions('chat', { whenFull: options?.whenFull }, { whenFull: SESSION_OPTIONS.whenFull });
    // Without tools of its own, the answer has the chat's.
    const { whenFull = 'error', ...all } = { ...this.options, ...options, continueLast };
    const answer = (list: readonly ChatMessage[]) =>
      new ChatAnswer(this.host, this.host.chatTemplate, list, all as ChatOptions<Used>, this.known);
    const { history } = this;
    const made = (found: ChatAnswer<Used>, list: readonly ChatMessage[]) =>
      new ChatTurn(found, this, history, messages, messages.length - list.length, continueLast);
    const { maxContext } = this.host.scheduler.runner;
    const room = Math.min(all.maxTokens ?? ROOM, ROOM, Math.floor(maxContext / 4));
    for (let list: readonly ChatMessage[] = messages; ; ) {
      let found: ChatAnswer<Used> | undefined;
      try {
        found = answer(list);
        if (whenFull === 'error' || found.promptIds.length + room <= maxContext) {
          return made(found, list);
        }
      } catch (error) {
        if ((error as TransformersError).code !== 'CONTEXT_EXCEEDED') throw error;
        if (whenFull === 'error') throw full(error as TransformersError);
      }
      const shorter = withoutOldestTurn(list);
      // Nothing more can be left out; where even that does not fit, the error says so.
      if (!shorter) return made(found ?? answer(list), list);
      list = shorter;
    }
  }

  /** @internal A turn begins: its messages are the history. */
  begin(turn: ChatTurn, before: readonly ChatMessage[], messages: ChatMessage[]): void {
    this.checkIdle('send');
    if (this.history !== before) throw nothing('The chat has changed since this answer was asked for: ask again');
    this.running = turn;
    this.history = messages;
  }

  /** @internal A turn ended, one way or another: what there is of its answer is kept. */
  end(answer: ChatAnswer, before: readonly ChatMessage[], continued: boolean): void {
    this.running = undefined;
    const { content, reasoning, toolCalls } = answer.partial;
    if (content === '' && reasoning === undefined && toolCalls === undefined) {
      // A failure that left nothing gives the former answer back.
      if (before.length > this.history.length) this.history = [...before];
      return;
    }
    this.known = [...(answer.known ? [answer.known] : []), ...this.known].slice(0, MOST_KNOWN);
    if (!continued) {
      this.history = [...this.history, answer.partial];
      return;
    }
    const last = this.history.at(-1)!;
    const all = { ...last, content: last.content + content };
    if (reasoning !== undefined) all.reasoning = (last.reasoning ?? '') + reasoning;
    if (toolCalls) all.toolCalls = toolCalls;
    this.history = [...this.history.slice(0, -1), all];
  }

  private checkIdle(what: string): void {
    if (!this.running) return;
    throw new TransformersError(
      'INVALID_OPTION',
      `chat: ${what} while an answer is under way; read it to its end, leave its loop or abort it first.`,
    );
  }
}

/** An answer of a {@link ChatSession}; the session has it in its history as soon as it ends, however it does. */
export class ChatTurn<Tools extends readonly ToolDefinition[] = readonly ToolDefinition[]>
  implements ChatGeneration<Tools>
{
  private iterator: AsyncGenerator<ChatPiece, void, void> | undefined;

  /** @internal */
  constructor(
    private readonly answer: ChatAnswer<Tools>,
    private readonly session: ChatSession,
    private readonly before: readonly ChatMessage[],
    private readonly messages: ChatMessage[],
    /** Messages at the beginning of the history, the system's aside, that the prompt leaves out because the context is full. */
    readonly dropped: number,
    private readonly continued: boolean,
  ) {}

  get promptIds(): readonly number[] {
    return this.answer.promptIds;
  }

  get partial(): ChatMessage {
    return this.answer.partial;
  }

  get tokens(): readonly Piece[] {
    return this.answer.tokens;
  }

  get stats(): GenerationStats {
    return this.answer.stats;
  }

  get finishReason(): ChatGeneration['finishReason'] {
    return this.answer.finishReason;
  }

  async message(): Promise<ChatMessage> {
    this.iterator ??= this.run();
    for (;;) if ((await this.iterator.next()).done) return this.partial;
  }

  async calls(): Promise<ParsedCall<Tools>[]> {
    await this.message();
    return this.answer.parsedCalls();
  }

  /** @throws TransformersError INVALID_OPTION when iterated twice */
  [Symbol.asyncIterator](): AsyncGenerator<ChatPiece, void, void> {
    if (this.iterator) throw nothing('This answer was iterated before; ask again for another one');
    this.iterator = this.run();
    return this.iterator;
  }

  private async *run(): AsyncGenerator<ChatPiece, void, void> {
    this.session.begin(this, this.before, this.messages);
    try {
      yield* this.answer;
    } finally {
      this.session.end(this.answer, this.before, this.continued);
    }
  }
}

/** The messages without the first turn behind the system's; undefined where only the last turn is there. */
function withoutOldestTurn(messages: readonly ChatMessage[]): ChatMessage[] | undefined {
  const isSystem = ({ role }: ChatMessage) => role === 'system' || role === 'developer';
  const start = messages.findIndex((message) => !isSystem(message));
  const next = messages.findIndex(({ role }, i) => i > start && role === 'user');
  return start < 0 || next < 0 ? undefined : [...messages.slice(0, start), ...messages.slice(next)];
}

/** The options of a saved chat. @throws TransformersError BAD_MESSAGES for what is none */
export function restoredChat(saved: SavedChat): ChatSessionOptions {
  const { version, messages, options } = (saved ?? {}) as Partial<SavedChat>;
  if (version !== 1 || !Array.isArray(messages) || typeof options !== 'object' || options === null) {
    throw new TransformersError(
      'BAD_MESSAGES',
      `chat: this is no saved chat of version 1 (version: ${String(version)}); give what a chat's toJSON gave.`,
    );
  }
  const { regex, logitBias, ...rest } = options;
  const biases = Object.entries(logitBias ?? {}).map(([id, bias]) => [id, Number(bias)]);
  return {
    ...rest,
    messages,
    ...(regex !== undefined && { regex: typeof regex === 'string' ? regex : new RegExp(regex.source, regex.flags) }),
    ...(logitBias && { logitBias: Object.fromEntries(biases) }),
  };
}

function nothing(what: string): TransformersError {
  return new TransformersError('INVALID_OPTION', `chat: ${what}.`);
}

function full(cause: TransformersError): TransformersError {
  const message = `${cause.message} Or begin another chat, or let it leave out its oldest turns: chat({ whenFull: 'drop-oldest' }).`;
  return new TransformersError('CONTEXT_EXCEEDED', message, { cause });
}
