/** Checks messages and tools, and gives them the form in which templates of published models read them. */
import { TransformersError } from '../errors';
import type { ChatMessage, ToolDefinition } from './messages';
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
      bad(`chat: messages[${i}]${field} is ${shown(value)}; give ${wanted}.`);
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
      if (!isObject(call.arguments)) throw fail(`${at}.arguments`, call.arguments, 'an object');
      checkDepth(call.arguments, `messages[${i}]${at}.arguments`);
    }
  }
}

/**
 * The tools with a JSON Schema as their parameters, where they have a schema of another library.
 * @throws TransformersError BAD_MESSAGES naming the tool and the field
 */
export function checkTools(tools: readonly ToolDefinition[]): readonly ToolDefinition[] {
  if (!Array.isArray(tools)) throw bad(`chat: tools is ${shown(tools)}; give a list of { name, parameters }.`);
  const names = new Set<string>();
  return (tools as readonly ToolDefinition[]).map((tool, i): ToolDefinition => {
    const fail = (field: string, value: unknown, wanted: string) =>
      bad(`chat: tools[${i}]${field} is ${shown(value)}; give ${wanted}.`);
    if (!isObject(tool)) throw fail('', tool, 'an object with name and parameters');
    if (typeof tool.name !== 'string' || !/^[\w.-]{1,128}$/.test(tool.name))
      throw fail('.name', tool.name, 'letters, digits, _, . and -, at most 128');
    if (names.has(tool.name)) throw fail('.name', tool.name, 'each tool a name of its own');
    names.add(tool.name);
    if (tool.description !== undefined && typeof tool.description !== 'string')
      throw fail('.description', tool.description, 'text');
    const parameters = isStandardSchema(tool.parameters)
      ? parametersOf(tool.parameters, `tools[${i}].parameters`)
      : tool.parameters;
    if (!isObject(parameters)) throw fail('.parameters', parameters, 'a JSON Schema');
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

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function checkDepth(value: unknown, at: string, depth = 0): void {
  if (depth > MOST_DEPTH) throw bad(`chat: ${at} is nested more than ${MOST_DEPTH} levels deep; make it flatter.`);
  if (typeof value === 'bigint' || typeof value === 'function' || typeof value === 'symbol')
    throw bad(`chat: ${at} holds a ${typeof value}; give what JSON can hold.`);
  if (typeof value !== 'object' || value === null) return;
  for (const item of Object.values(value)) checkDepth(item, at, depth + 1);
}

function shown(value: unknown): string {
  if (value === undefined) return 'missing';
  if (Array.isArray(value)) return 'a list';
  // Not as text: an object may have none.
  if (isObject(value)) return 'an object';
  const text = typeof value === 'string' ? JSON.stringify(value) : String(value);
  return text.length > 60 ? `${text.slice(0, 60)}...` : text;
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
}

export function traitsOf(source: string): TemplateTraits {
  return {
    developer: /['"]developer['"]/.test(source),
    noneContent: /content['"]?\]?\s+is\s+none/.test(source),
    shortIds: source.includes('[TOOL_CALLS]'),
    thinkingField: /message\.thinking|['"]thinking['"]\s+in\s+message/.test(source),
  };
}

/** Messages as templates read them, the names being OpenAI's and Hugging Face's. */
export function templateMessages(
  messages: readonly ChatMessage[],
  traits: TemplateTraits,
  callArguments: 'object' | 'text',
): Record<string, unknown>[] {
  const id = (text: string) => (traits.shortIds ? shortId(text) : text);
  return messages.map(({ role, content, reasoning, toolCalls = [], toolCallId, name }) => {
    const message: Record<string, unknown> = {
      role: role === 'developer' && !traits.developer ? 'system' : role,
      content,
    };
    if (name !== undefined) message.name = name;
    if (role === 'tool' && toolCallId !== undefined) {
      message.tool_call_id = id(toolCallId);
      message.name ??= nameOfCall(messages, toolCallId);
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
}

export function templateTools(tools: readonly ToolDefinition[]): unknown[] {
  return tools.map(({ name, description, parameters }) => ({
    type: 'function',
    function: { name, description: description ?? '', parameters },
  }));
}

function nameOfCall(messages: readonly ChatMessage[], id: string): string | undefined {
  for (const { toolCalls } of messages) for (const call of toolCalls ?? []) if (call.id === id) return call.name;
  return undefined;
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
 * role become one message, and the system's text goes before the first user's. Undefined where that changes nothing.
 */
export function alternating(messages: readonly ChatMessage[], foldSystem: boolean): ChatMessage[] | undefined {
  const result: ChatMessage[] = [];
  for (const message of messages) {
    const last = result.at(-1);
    const isSame =
      last !== undefined && (last.role === message.role || (foldSystem && isSystem(last) && message.role === 'user'));
    if (!isSame || message.role === 'tool' || last.toolCalls?.length || message.toolCalls?.length) {
      result.push({ ...message });
      continue;
    }
    const content = [last.content, message.content].filter((text) => text !== '').join('\n\n');
    result[result.length - 1] = { ...last, ...message, content };
  }
  return result.length === messages.length ? undefined : result;
}

function isSystem({ role }: ChatMessage): boolean {
  return role === 'system' || role === 'developer';
}
