/**
 * Chat templates: messages to the text and tokens that a model was trained on, as transformers' `apply_chat_template`. A
 * template is a Jinja program inside of the model's files; it runs within a budget and reaches nothing of this process.
 */
import { kinds } from '@x/core';
import type { GgufMetadata } from '@x/quantized';
import { METADATA, OPTIONS, PATH } from '../arguments';
import { TransformersError } from '../errors';
import type { Tokenizer } from '../tokenizer';
import { BROKEN, isFollowed, markerOf, unusedCharacter } from './control-texts';
import { Budget, templateError } from './jinja/budget';
import { Interpreter } from './jinja/interpreter';
import { type Node, parseTemplate } from './jinja/syntax';
import { toValue, type Value } from './jinja/values';
import type { ChatMessage, ToolDefinition } from './messages';
import {
  alternating,
  checkMessages,
  checkTools,
  isSystem,
  oneSystem,
  type TemplateTraits,
  templateMessages,
  templateTools,
  traitsOf,
} from './normalize';
import { type ReplyFormat, replyFormatOf, thoughtOf } from './reply/formats';
import { NO_TOKENS, type TemplateTexts, textsFromDirectory, textsFromGguf } from './sources';

/** ChatML: what `<|im_start|>` and `<|im_end|>` in a vocabulary stand for. */
export const CHATML =
  "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}{% endfor %}" +
  "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

/** Variables that callers may give templates: what models of different makers read. */
export const TEMPLATE_VARIABLES = [
  'builtin_tools',
  'controls',
  'custom_tools',
  'date_string',
  'documents',
  'enable_thinking',
  'keep_all_reasoning',
  'knowledge',
  'model_identity',
  'preserve_thinking',
  'reasoning_effort',
  'thinking',
  'thinking_budget',
  'tools_in_user_message',
  'truncate_history_thinking',
  'xml_tools',
] as const;

export interface RenderOptions {
  tools?: readonly ToolDefinition[];
  /** Some of {@link TEMPLATE_VARIABLES}. */
  variables?: Readonly<Record<string, unknown>>;
  /** End with what makes the model answer. Default true. */
  generationPrompt?: boolean;
  /** The last message is an assistant's, and the text ends where its content does. Default false. */
  continueLast?: boolean;
  /** For templates that show the date. Default: now. */
  now?: Date;
}

export interface KnownTokens {
  /** A {@link ChatPrompt.marked}, and what follows it. */
  text: string;
  ids: readonly number[];
}

export interface PromptOptions extends RenderOptions {
  /** Begins the answer with a call: of any tool, or of the one of that name. */
  force?: { name?: string };
  /**
   * The answer's text will have a form, such as a schema's. Where a model's reasoning is a message of its own (harmony) that is begun,
   * for the form holds behind it. Default false.
   */
  formed?: boolean;
  /**
   * Texts and their tokens, such as former prompts with their answers. Where this prompt goes on from one, its tokens are kept:
   * a model may write a text in other tokens than the tokenizer. The first that fits counts.
   */
  known?: readonly KnownTokens[];
  /** What fits: a prompt that has more by far is refused before it is made tokens. Default: no limit. */
  maxTokens?: number;
}

/** What {@link ChatTemplate.prompt} gives; a `ReplyParser` takes it from there. */
export interface ChatPrompt {
  ids: number[];
  text: string;
  /** {@link text}, with a mark in each text of messages and tools that would be a control token without it. */
  marked: string;
  format: ReplyFormat;
  /** The prompt ends within reasoning. */
  inReasoning: boolean;
  /** What the prompt already holds of the answer. */
  begun: string;
}

/** What templates do not agree on. */
interface MessageForm {
  /** Default: objects. */
  callArguments?: 'text';
  /** `tools` is undefined instead of none where there are none. */
  undefinedTools?: boolean;
}

/** The chat templates of a model and the special tokens that they print; Jinja is parsed at first use. */
export class ChatTemplate {
  private readonly parsed = new Map<string, Node[]>();

  constructor(private readonly texts: TemplateTexts) {}

  /** A template's text, with the special tokens that it prints. */
  static fromText(template: string, specialTokens: Readonly<Record<string, string>> = {}): ChatTemplate {
    return new ChatTemplate({
      templates: new Map([['default', template]]),
      specialTokens: { ...NO_TOKENS, ...specialTokens },
    });
  }

  /** Of a GGUF file's metadata; undefined where it has none. */
  static fromGguf(metadata: GgufMetadata): ChatTemplate | undefined {
    const texts = textsFromGguf(metadata);
    return texts && new ChatTemplate(texts);
  }

  /**
   * Of a Hugging Face directory: chat_template.jinja, else tokenizer_config.json; undefined where there is none.
   * @throws FileFormatError, TransformersError BAD_CHAT_TEMPLATE for files that are not what they should be
   */
  static fromDirectory(directory: string): ChatTemplate | undefined {
    const texts = textsFromDirectory(directory);
    return texts && new ChatTemplate(texts);
  }

  /** Texts of special tokens by the names that templates have for them, such as `bos_token`. */
  get specialTokens(): Readonly<Record<string, string>> {
    return this.texts.specialTokens;
  }

  /**
   * The Jinja text, of the template for tools where there is one and `tools` says so.
   * @throws TransformersError NO_CHAT_TEMPLATE where all have other names than `default`
   */
  source(tools = false): string {
    const { templates } = this.texts;
    const source = (tools ? templates.get('tool_use') : undefined) ?? templates.get('default');
    if (source !== undefined) return source;
    const names = [...templates.keys()].join(', ');
    throw new TransformersError(
      'NO_CHAT_TEMPLATE',
      `The model has chat templates named ${names}, but none named default; give the text of one.`,
    );
  }

  /**
   * Parses all templates, which otherwise happens when they are needed, and checks variables.
   * @throws TransformersError BAD_CHAT_TEMPLATE, INVALID_OPTION
   */
  check(variables: Readonly<Record<string, unknown>> = {}): void {
    for (const source of this.texts.templates.values()) this.nodes(source);
    checkedVariables(variables);
  }

  /** How answers are written: where reasoning and tool calls are. @throws as {@link source} */
  replyFormat(tools = false): ReplyFormat {
    return replyFormatOf(this.source(tools));
  }

  /**
   * The text that the model reads.
   * @throws TransformersError BAD_MESSAGES, INVALID_OPTION, NO_CHAT_TEMPLATE, BAD_CHAT_TEMPLATE, CHAT_REFUSED where the template raises
   *   or knows no tools and some are given
   */
  render(messages: readonly ChatMessage[], options: RenderOptions = {}): string {
    return this.rendered(messages, options, (text) => text);
  }

  /**
   * What the model reads, and how its answer is to be read. Only the template's own text becomes control tokens: what messages
   * and tools hold of such texts stays text.
   * @throws TransformersError as {@link render}, CONTEXT_EXCEEDED; as `Tokenizer.encode`
   */
  prompt(tokenizer: Tokenizer, messages: readonly ChatMessage[], options: PromptOptions = {}): ChatPrompt {
    const { force, formed = false, continueLast = false, known = [], maxTokens } = options;
    checkMessages(messages);
    const tools = checkTools(options.tools ?? []);
    const format = this.replyFormat(tools.length > 0);
    const given = JSON.stringify([messages, tools, options.variables]);
    const breaker = unusedCharacter([given, ...this.texts.templates.values()]);
    const controls = tokenizer.controlTexts;
    const mark = markerOf(controls, breaker);
    const thought = thoughtOf(format);
    const begunThought = continueLast && thought ? thoughtToGoOn(messages) : undefined;
    const [list, goesOn] = begunThought === undefined ? [messages, continueLast] : [messages.slice(0, -1), false];
    let text = this.rendered(list, { ...options, tools, continueLast: goesOn }, mark);
    const { reasoning } = format;
    const endsWith = (tag: string) => text.trimEnd().endsWith(tag.trimEnd());
    let inReasoning = reasoning !== undefined && endsWith(reasoning.open);
    if (begunThought !== undefined && !endsWith(thought!.close)) {
      text += `${inReasoning ? '' : thought!.open}${mark(begunThought)}`;
      inReasoning = true;
    } else if (formed && !reasoning && thought && !continueLast) {
      text += thought.open;
      inReasoning = true;
    }
    let begun = '';
    if (force) {
      if (!format.force) throw noCalls('a call cannot be demanded');
      begun = format.force(force.name);
      // A call comes behind the reasoning.
      if (inReasoning) text = `${text.trimEnd()}\n\n${reasoning!.close}\n\n`;
      inReasoning = false;
    }
    text += begun;
    const marked = text.replaceAll(breaker, BROKEN);
    let [start, rest]: [readonly number[], string] = [[], text];
    for (const before of known) {
      if (!isFollowed(marked, before.text, controls)) continue;
      [start, rest] = [before.ids, text.slice(before.text.length)];
      break;
    }
    if (maxTokens !== undefined && rest.length > maxTokens) {
      // Reading millions of characters takes seconds in which no other text goes on.
      const fewest = start.length + tokenizer.fewestTokens(rest, { breaker });
      if (fewest > maxTokens)
        throw new TransformersError(
          'CONTEXT_EXCEEDED',
          `prompt: the messages have at least ${fewest} tokens, and ${maxTokens} fit; shorten them, or load the model with a larger maxContext.`,
        );
    }
    const ids = rest === '' ? [] : tokenizer.encode(rest, { addSpecialTokens: false, breaker });
    return {
      ids: [...start, ...ids],
      text: text.replaceAll(breaker, ''),
      marked,
      format,
      inReasoning,
      begun,
    };
  }

  private rendered(messages: readonly ChatMessage[], options: RenderOptions, mark: (text: string) => string): string {
    checkMessages(messages);
    const tools = checkTools(options.tools ?? []);
    const variables = checkedVariables(options.variables ?? {});
    const source = this.source(tools.length > 0);
    if (tools.length > 0 && !/\btools\b/.test(source)) throw noCalls('tools cannot be offered');
    const traits = traitsOf(source);
    const render = (list: readonly ChatMessage[], form: MessageForm = {}) =>
      this.run(source, list, form, traits, { ...options, tools, variables }, mark);
    try {
      const text = render(messages);
      // Some templates show the first message of the system, and no other.
      const joined = oneSystem(messages);
      const shows = (found: string) =>
        messages.every((message) => !isSystem(message) || found.includes(mark(message.content).trim()));
      if (!joined || shows(text)) return text;
      const whole = firstOf([() => render(joined), () => text]);
      return shows(whole) ? whole : text;
    } catch (error) {
      const { code } = error as TransformersError;
      // Some templates put the arguments into the text as they are, and so want text.
      if (code === 'BAD_CHAT_TEMPLATE' && messages.some(({ toolCalls }) => toolCalls?.length)) {
        return firstOf([() => render(messages, { callArguments: 'text' })], error);
      }
      // Others ask whether tools are defined and go through them then.
      if (code === 'BAD_CHAT_TEMPLATE' && tools.length === 0) {
        return firstOf([() => render(messages, { undefinedTools: true })], error);
      }
      if (code !== 'CHAT_REFUSED' || options.continueLast) throw error;
      const attempts = [alternating(messages, false), alternating(messages, true)];
      return firstOf(
        attempts.filter((list) => list !== undefined).map((list) => () => render(list)),
        error,
      );
    }
  }

  private run(
    source: string,
    messages: readonly ChatMessage[],
    form: MessageForm,
    traits: TemplateTraits,
    options: RenderOptions,
    mark: (text: string) => string,
  ): string {
    const { tools = [], generationPrompt = true, continueLast = false, now = new Date() } = options;
    const list = templateMessages(messages, traits, form.callArguments ?? 'object', tools);
    const end = continueLast ? markEnd(list) : undefined;
    const input = JSON.stringify([list, tools, options.variables]).length;
    const values = new Map<string, Value>(
      Object.entries({
        ...this.texts.specialTokens,
        messages: marked(toValue(list), mark, 'role'),
        tools: tools.length > 0 ? marked(toValue(templateTools(tools)), mark) : form.undefinedTools ? undefined : null,
        documents: null,
        add_generation_prompt: generationPrompt && !continueLast,
      }),
    );
    for (const [name, value] of Object.entries(options.variables ?? {})) values.set(name, marked(toValue(value), mark));
    const text = new Interpreter(new Budget(input, messages.length), now).run(this.nodes(source), values);
    return end === undefined ? text : cutAt(text, end);
  }

  private nodes(source: string): Node[] {
    let nodes = this.parsed.get(source);
    if (!nodes) {
      nodes = parseTemplate(source);
      this.parsed.set(source, nodes);
    }
    return nodes;
  }
}

/** The reasoning within which an answer broke off. */
function thoughtToGoOn(messages: readonly ChatMessage[]): string | undefined {
  const { role, content, reasoning } = messages.at(-1)!;
  const isBegun = role === 'assistant' && content === '' && messages.length > 1;
  return isBegun && reasoning !== '' ? reasoning : undefined;
}

function noCalls(what: string): TransformersError {
  return new TransformersError(
    'CHAT_REFUSED',
    `The model's chat template knows no tools: ${what}. Leave tools out, or take a model that was made for them.`,
    { option: 'tools' },
  );
}

/** The first attempt that works, else the error that came before them. */
function firstOf(attempts: readonly (() => string)[], error?: unknown): string {
  for (const attempt of attempts) {
    try {
      return attempt();
    } catch {
      // The first error says it best.
    }
  }
  throw error;
}

/** All texts of a value, keys included, but for the fields of that name. */
function marked(value: Value, mark: (text: string) => string, except?: string): Value {
  if (typeof value === 'string') return mark(value);
  if (Array.isArray(value)) return value.map((item) => marked(item, mark, except));
  if (!(value instanceof Map)) return value;
  return new Map(
    [...value].map(([key, item]) => [marked(key, mark), key === except ? item : marked(item, mark, except)]),
  );
}

/** Puts a character behind the last message's content, at which the text is to be cut. */
function markEnd(list: Record<string, unknown>[]): string {
  const last = list.at(-1)!;
  if (last.role !== 'assistant' || typeof last.content !== 'string') {
    throw new TransformersError(
      'BAD_MESSAGES',
      'chat: an answer is to be continued, but the last message is no text of an assistant; give one, or leave continueLast out.',
      { option: 'continueLast' },
    );
  }
  const end = unusedCharacter([JSON.stringify(list)], true);
  last.content += end;
  return end;
}

kinds.checkCalls(
  ChatTemplate,
  {
    fromText: { template: kinds.STRING, specialTokens: OPTIONS },
    fromGguf: { metadata: METADATA },
    fromDirectory: { directory: PATH },
  },
  'ChatTemplate.',
);

function cutAt(text: string, end: string): string {
  const at = text.lastIndexOf(end);
  if (at < 0) throw templateError('it leaves the last message out, which is to be continued');
  return text.slice(0, at);
}

function checkedVariables(variables: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> {
  const known: readonly string[] = TEMPLATE_VARIABLES;
  for (const name of Object.keys(variables)) {
    if (known.includes(name)) continue;
    throw new TransformersError(
      'INVALID_OPTION',
      `chat: there is no template variable "${name}" that may be set. Variables: ${known.join(', ')}.`,
      { option: 'template' },
    );
  }
  return variables;
}
