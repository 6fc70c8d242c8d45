/** One answer of a chat: a text generation whose tokens are read as reasoning, text and tool calls while they come. */
import { compileToolCalls, type Grammar } from '@x/grammar';
import {
  type ChatMessage,
  type ChatPiece,
  type ChatPrompt,
  type ChatTemplate,
  type KnownTokens,
  marksOf,
  ReplyParser,
  stopIds,
  type ToolDefinition,
  TransformersError,
} from '@x/transformers';
import {
  GENERATE_OPTIONS,
  type GenerateOptions,
  Generation,
  type GenerationHost,
  type GenerationStats,
  type Piece,
} from '../generation';
import { boolean, checkOptions, type OptionRule } from '../options';
import { vocabularyOf } from '../structured';
import { CallConstraint, callForm } from './call-constraint';
import type { ChatGeneration, ChatOptions, ToolChoice } from './types';

const { addSpecialTokens: _, ...generateOptions } = GENERATE_OPTIONS;
const isObject = (value: unknown) => typeof value === 'object' && value !== null && !Array.isArray(value);

export const CHAT_OPTIONS = {
  ...generateOptions,
  tools: [Array.isArray, 'a list of { name, parameters }'],
  toolChoice: [
    (value) =>
      ['auto', 'none', 'required'].includes(value as string) ||
      (isObject(value) && typeof (value as { name?: unknown }).name === 'string'),
    "'auto', 'none', 'required' or { name }",
  ],
  template: [isObject, "an object with the template's variables"],
  continueLast: boolean,
} satisfies Record<keyof ChatOptions, OptionRule>;

/** Options that give the whole text a form. */
const FORMS = ['schema', 'regex', 'grammar', 'choices', 'constraint'] as const;

export class ChatAnswer implements ChatGeneration {
  private readonly prompt: ChatPrompt;
  private readonly generation: Generation;
  private readonly parser: ReplyParser;
  private readonly begun: ChatPiece[];
  private readonly generated: Piece[] = [];
  private iterator: AsyncGenerator<ChatPiece, void, void> | undefined;
  private text = '';
  /** Tokens whose text is in {@link text}. */
  private textTokens = 0;

  /** @throws TransformersError BAD_MESSAGES, CHAT_REFUSED, BAD_CHAT_TEMPLATE, INVALID_OPTION, CONTEXT_EXCEEDED */
  constructor(
    private readonly host: GenerationHost,
    template: ChatTemplate,
    messages: readonly ChatMessage[],
    options: ChatOptions,
    known: readonly KnownTokens[] = [],
  ) {
    checkOptions('chat', options, CHAT_OPTIONS);
    const { tools = [], toolChoice = 'auto', template: variables, continueLast, ...rest } = options;
    const offered = toolChoice === 'none' ? [] : tools;
    const force = forced(toolChoice, offered);
    const { tokenizer } = host;
    this.prompt = template.prompt(tokenizer, messages, { tools: offered, variables, continueLast, force, known });
    const { format, ids, inReasoning, begun } = this.prompt;
    if (force) rest.grammar = callGrammar(format, force, offered, rest);
    this.parser = new ReplyParser(format, { tools: offered, inReasoning, continued: continueLast });
    const marks = new Map<number, string>();
    for (const mark of marksOf(format)) {
      const id = tokenizer.tokenToId(mark);
      if (id !== undefined) marks.set(id, mark);
    }
    const keptIds = new Set(marks.keys());
    const form = force || FORMS.some((name) => rest[name] !== undefined) ? undefined : callForm(format, offered);
    if (form && (canSpell(tokenizer) || offered.some(({ strict }) => strict))) {
      const { vocabSize } = host.scheduler.runner.model.config;
      const vocabulary = vocabularyOf(tokenizer, vocabSize, stopIds(tokenizer, format));
      rest.constraint = new CallConstraint(form, vocabulary, marks, inReasoning);
    }
    this.generation = new Generation({ ...host, stopIds: stopIds(tokenizer, format), keptIds }, ids, rest);
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
    return this.generation.stats;
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
    return { text: this.prompt.text + this.text, ids: [...this.promptIds, ...ids] };
  }

  async message(): Promise<ChatMessage> {
    this.iterator ??= this.run();
    for (;;) if ((await this.iterator.next()).done) return this.partial;
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
        yield* this.parser.push(piece.text);
      }
      yield* this.parser.end();
    } finally {
      // What was held back when the answer was interrupted is part of it, too.
      this.parser.end();
    }
  }
}

/** Whether the bytes of single tokens are known, which grammars need. */
function canSpell(tokenizer: GenerationHost['tokenizer']): boolean {
  try {
    tokenizer.tokenBytes();
    return true;
  } catch {
    return false;
  }
}

/**
 * What follows a call that the prompt has begun: a tool's name, where the prompt has none, and arguments that meet its schema.
 * Undefined in families that do not write calls as JSON objects; their calls are as the model writes them.
 * @throws GrammarError with the tool's name; TransformersError INVALID_OPTION where the text has a form of its own
 */
function callGrammar(
  { calls, force }: ChatPrompt['format'],
  { name }: { name?: string },
  tools: readonly ToolDefinition[],
  options: GenerateOptions,
): Grammar | undefined {
  const forms = FORMS.filter((form) => options[form] !== undefined);
  if (forms.length > 0)
    throw new TransformersError(
      'INVALID_OPTION',
      `chat: toolChoice demands a call and ${forms[0]} another text; give one.`,
    );
  if (calls?.syntax !== 'json' || !force) return undefined;
  const begun = force(name).length;
  const callable = name === undefined ? tools : tools.filter((tool) => tool.name === name);
  return compileToolCalls(callable, { before: (tool) => force(tool).slice(begun), behind: '}' });
}

/** The call that the prompt begins for the model, if it must make one. */
function forced(choice: ToolChoice, tools: ChatOptions['tools'] = []): { name?: string } | undefined {
  if (choice === 'auto' || choice === 'none') return undefined;
  const fail = (what: string) => new TransformersError('INVALID_OPTION', `chat: toolChoice ${what}.`);
  if (tools.length === 0) throw fail('demands a call, but there are no tools; give tools');
  if (choice === 'required') return {};
  const names = tools.map(({ name }) => name);
  if (!names.includes(choice.name)) throw fail(`names the tool "${choice.name}"; give one of ${names.join(', ')}`);
  return { name: choice.name };
}
