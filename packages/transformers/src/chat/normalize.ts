/** Checks messages and tools, and gives them the form in which templates of published models read them. */
import { kinds } from '@x/core';
import { TransformersError } from '../errors';
import type { ChatMessage, ToolCall, ToolDefinition } from './messages';
import { isStandardSchema, jsonSchemaOf, type StandardSchema } from './standard-schema';

const ROLES: ReadonlySet<string> = new Set(['system', 'developer', 'user', 'assistant', 'tool']);
/** Levels of objects and lists in arguments and schemas. */
const MOST_DEPTH = 100;

function bad(what: string): TransformersError {
  return new TransformersError('BAD_MESSAGES', what);
}

/** @throws TransformersError BAD_MESSAGES naming the message and the field */
export function checkMessages(messages: readonly ChatMessage[]): void {
  if (!Array.isArray(messages) || messages.length === 0) {
    throw bad("chat: there are no messages; give a list such as [{ role: 'user', content: 'Hello' }].");
  }
  for (const [i, message] of messages.entries()) {
    const fail = (field: string, value: unknown, wanted: string) =>
      bad(`chat: messages[${i}]${field} is ${kinds.showField(value)}; give ${wanted}.`);
    if (typeof message !== 'object' || message === null) throw fail('', message, 'an object with role and content');
    const { role, content, reasoning, toolCalls, toolCallId, name } = message;
    if (!ROLES.has(role)) throw fail('.role', role, `one of ${[...ROLES].join(', ')}`);
    if (typeof content !== 'string') throw fail('.content', content, 'text');
    for (const [field, value] of Object.entries({ reasoning, toolCallId, name }))
      if (value !== undefined && typeof value !== 'string') throw fail(`.${field}`, value, 'text');
    if (toolCalls === undefined) continue;
    if (role !== 'assistant' || !Array.isArray(toolCalls))
      throw fail('.toolCalls', toolCalls, 'a list of calls, of an assistant only');
    for (const [j, call] of toolCalls.entries()) {
      const at = `.toolCalls[${j}]`;
      if (typeof call?.name !== 'string' || call.name === '') throw fail(`${at}.name`, call?.name, "the tool's name");
      if (typeof call.id !== 'string') throw fail(`${at}.id`, call.id, 'text');
      if (!kinds.isObject(call.arguments)) throw fail(`${at}.arguments`, call.arguments, 'an object');
      checkDepth(call.arguments, `messages[${i}]${at}.arguments`);
    }
  }
}

/**
 * The tools with a JSON Schema as their parameters, where they have a schema of another library.
 * @throws TransformersError BAD_MESSAGES naming the tool and the field
 */
export function checkTools(tools: readonly ToolDefinition[]): readonly ToolDefinition[] {
  if (!Array.isArray(tools))
    throw bad(`chat: tools is ${kinds.showField(tools)}; give a list of { name, parameters }.`);
  const names = new Set<string>();
  return (tools as readonly ToolDefinition[]).map((tool, i): ToolDefinition => {
    const fail = (field: string, value: unknown, wanted: string) =>
      bad(`chat: tools[${i}]${field} is ${kinds.showField(value)}; give ${wanted}.`);
    if (!kinds.isObject(tool)) throw fail('', tool, 'an object with name and parameters');
    if (typeof tool.name !== 'string' || !/^[\w.-]{1,128}$/.test(tool.name))
      throw fail('.name', tool.name, 'letters, digits, _, . and -, at most 128');
    if (names.has(tool.name)) throw fail('.name', tool.name, 'each tool a name of its own');
    names.add(tool.name);
    if (tool.description !== undefined && typeof tool.description !== 'string')
      throw fail('.description', tool.description, 'text');
    const parameters = isStandardSchema(tool.parameters)
      ? parametersOf(tool.parameters, `tools[${i}].parameters`)
      : tool.parameters;
    if (!kinds.isObject(parameters)) throw fail('.parameters', parameters, 'a JSON Schema');
    if (tool.strict !== undefined && typeof tool.strict !== 'boolean')
      throw fail('.strict', tool.strict, 'true or false');
    checkDepth(parameters, `tools[${i}].parameters`);
    return parameters === tool.parameters ? tool : { ...tool, parameters };
  });
}

function parametersOf(schema: StandardSchema, at: string): object {
  // The model reads the rest, to which the name of a draft says nothing.
  const { $schema: _, ...parameters } = jsonSchemaOf(schema, (why) => bad(`chat: ${at}: ${why}.`));
  return parameters;
}

function checkDepth(value: unknown, at: string, depth = 0): void {
  if (depth > MOST_DEPTH) throw bad(`chat: ${at} is nested more than ${MOST_DEPTH} levels deep; make it flatter.`);
  if (typeof value === 'bigint' || typeof value === 'function' || typeof value === 'symbol')
    throw bad(`chat: ${at} holds a ${typeof value}; give what JSON can hold.`);
  if (typeof value !== 'object' || value === null) return;
  for (const item of Object.values(value)) checkDepth(item, at, depth + 1);
}

/** What templates differ in, read off their text. */
export interface TemplateTraits {
  /** The roles that it tells apart include `developer`. */
  developer: boolean;
  /** Calls are looked for only where the content is none. */
  noneContent: boolean;
  /** Ids of calls must be nine letters and digits (Mistral). */
  shortIds: boolean;
  /** Reasoning is read from `thinking` (gpt-oss), not from `reasoning_content`. */
  thinkingField: boolean;
  /** The first call of a message is read, and no other (gpt-oss, Llama 3). */
  oneCall: boolean;
  /** Reasoning is cut out of an answer's text (Qwen 3, DeepSeek), which it cannot be where tags in texts are no tags. */
  splitsReasoning: boolean;
  /** Tools are read from the system's message, as JSON (Phi 4 mini). */
  toolsOfSystem: boolean;
}

export function traitsOf(source: string): TemplateTraits {
  return {
    developer: /['"]developer['"]/.test(source),
    noneContent: /content['"]?\]?\s+is\s+none/.test(source),
    shortIds: source.includes('[TOOL_CALLS]'),
    thinkingField: /message\.thinking|['"]thinking['"]\s+in\s+message/.test(source),
    oneCall: /tool_calls['"]?\]?\[0\]/.test(source) && !/\sin\s+\w+(\.tool_calls|\[['"]tool_calls['"]\])/.test(source),
    splitsReasoning: /split\(\s*['"]<\/think>/.test(source),
    toolsOfSystem: /['"]tools['"]\s+in\s+message/.test(source),
  };
}

/**
 * Messages as templates read them, the names being OpenAI's and Hugging Face's.
 * @param tools for templates that read them from the system's message
 */
export function templateMessages(
  given: readonly ChatMessage[],
  traits: TemplateTraits,
  callArguments: 'object' | 'text',
  tools: readonly ToolDefinition[] = [],
): Record<string, unknown>[] {
  const id = (text: string) => (traits.shortIds ? shortId(text) : text);
  const split = traits.splitsReasoning ? given.map(withReasoning) : given;
  const messages = traits.oneCall ? oneCallEach(split) : split;
  const list = messages.map(({ role, content, reasoning, toolCalls = [], toolCallId, name }, i) => {
    const message: Record<string, unknown> = {
      role: role === 'developer' && !traits.developer ? 'system' : role,
      content,
    };
    if (name !== undefined) message.name = name;
    if (role === 'tool' && toolCallId !== undefined) {
      message.tool_call_id = id(toolCallId);
      message.name ??= nameOfCall(messages.slice(0, i), toolCallId);
    }
    if (reasoning !== undefined && role === 'assistant') {
      message[traits.thinkingField ? 'thinking' : 'reasoning_content'] = reasoning;
    }
    if (toolCalls.length > 0) {
      message.tool_calls = toolCalls.map((call) => {
        const given = callArguments === 'object' ? call.arguments : JSON.stringify(call.arguments);
        return { id: id(call.id), type: 'function', function: { name: call.name, arguments: given } };
      });
      if (content === '' && traits.noneContent) message.content = null;
      // gpt-oss has one place for both.
      if (traits.thinkingField && reasoning && content) {
        message.thinking = `${reasoning}\n${content}`;
        message.content = '';
      }
    }
    return message;
  });
  if (!traits.toolsOfSystem || tools.length === 0) return list;
  const written = JSON.stringify(
    tools.map(({ name, description = '', parameters }) => ({ name, description, parameters })),
  );
  const system = list.find(({ role }) => role === 'system');
  if (!system) return [{ role: 'system', content: '', tools: written }, ...list];
  system.tools = written;
  return list;
}

/** The message with what its text holds of reasoning as such, which a template would cut out itself. */
function withReasoning(message: ChatMessage): ChatMessage {
  const { role, content, reasoning } = message;
  const end = content.indexOf('</think>');
  if (role !== 'assistant' || reasoning !== undefined || end < 0) return message;
  const thought = content.slice(0, end).replace(/^\s*<think>/, '');
  return { ...message, reasoning: thought.trim(), content: content.slice(end + '</think>'.length).trimStart() };
}

/** Calls that were made at once as one after the other, each with its result. */
function oneCallEach(messages: readonly ChatMessage[]): ChatMessage[] {
  return messages.flatMap((message, i) => {
    const { toolCalls = [] } = message;
    if (message.role === 'tool' && callsBefore(messages, i).length > 1) return [];
    if (toolCalls.length < 2) return [message];
    const behind = messages.slice(i + 1);
    const end = behind.findIndex(({ role }) => role !== 'tool');
    const results = end < 0 ? behind : behind.slice(0, end);
    const isOf = ({ toolCallId }: ChatMessage, { id }: ToolCall) => toolCallId === id;
    const others = results.filter((result) => !toolCalls.some((call) => isOf(result, call)));
    const { reasoning: _, ...rest } = message;
    return [
      ...toolCalls.flatMap((call, j) => [
        { ...(j === 0 ? message : { ...rest, content: '' }), toolCalls: [call] },
        ...results.filter((result) => isOf(result, call)),
      ]),
      ...others,
    ];
  });
}

/** The calls that a tool's result answers one of: of the last message that is none. */
function callsBefore(messages: readonly ChatMessage[], at: number): readonly ToolCall[] {
  return messages.slice(0, at).findLast(({ role }) => role !== 'tool')?.toolCalls ?? [];
}

export function templateTools(tools: readonly ToolDefinition[]): unknown[] {
  return tools.map(({ name, description, parameters }) => ({
    type: 'function',
    function: { name, description: description ?? '', parameters },
  }));
}

/** Of the last call with that id: some programs count them anew in each turn. */
function nameOfCall(before: readonly ChatMessage[], id: string): string | undefined {
  return before.flatMap(({ toolCalls = [] }) => toolCalls).findLast((call) => call.id === id)?.name;
}

/** Nine letters and digits: `id` itself where it is that, else made from it, the same each time. */
export function shortId(id: string): string {
  if (/^[a-zA-Z0-9]{9}$/.test(id)) return id;
  let hash = 0n;
  for (const character of id) hash = (hash * 1_000_003n + BigInt(character.codePointAt(0)!)) & 0xffff_ffff_ffffn;
  return hash.toString(36).padStart(9, '0').slice(-9);
}

/**
 * What a template that wants strictly alternating roles, or knows no system message, is given instead: neighbours of one
 * role become one message, and the system's text goes before the next user's. Undefined where that changes nothing.
 */
export function alternating(messages: readonly ChatMessage[], foldSystem: boolean): ChatMessage[] | undefined {
  const result: ChatMessage[] = [];
  for (const message of messages) {
    const role = foldSystem && isSystem(message) ? 'user' : message.role;
    const last = result.at(-1);
    const isSame = last !== undefined && (last.role === role || (isSystem(last) && isSystem(message)));
    if (!isSame || role === 'tool' || last.toolCalls?.length || message.toolCalls?.length) {
      result.push({ ...message, role });
      continue;
    }
    result[result.length - 1] = { ...last, ...message, role: last.role, content: joined(last, message) };
  }
  const isChanged = result.length !== messages.length || result.some(({ role }, i) => role !== messages[i].role);
  return isChanged ? result : undefined;
}

/**
 * What a template is given that shows the first of several system messages, and no other: one that holds all in front, and those
 * behind a user's before the next user's text, or by themselves as one. Undefined where there are not several.
 */
export function oneSystem(messages: readonly ChatMessage[]): ChatMessage[] | undefined {
  if (messages.filter(isSystem).length < 2) return undefined;
  const start = messages.findIndex((message) => !isSystem(message));
  const [front, rest] = start < 0 ? [messages, []] : [messages.slice(0, start), messages.slice(start)];
  const first = front.slice(0, 1).map((message) => ({ ...message, content: joined(...front) }));
  return [...first, ...(alternating(rest, true) ?? rest)];
}

function joined(...messages: readonly ChatMessage[]): string {
  return messages
    .map(({ content }) => content)
    .filter((text) => text !== '')
    .join('\n\n');
}

export function isSystem({ role }: ChatMessage): boolean {
  return role === 'system' || role === 'developer';
}
