/** Messages, tools and formats of chat requests, as OpenAI's clients send them and as the engine takes them. */
import { kinds } from '@x/core';
import type { ToolChoice } from '@x/engine';
import type { ChatMessage, ToolCall, ToolDefinition } from '@x/transformers';
import { badField } from '../errors';
import { argumentsOf } from '../written-calls';
import type { Fields } from './fields';

const MAX_MESSAGES = 4096;
const MAX_PARTS = 256;
const MAX_CALLS = 128;
const MAX_TOOLS = 128;
/** As OpenAI has them; a template may show nothing else. */
const TOOL_NAME = /^[\w.-]{1,64}$/;
const ROLES = ['system', 'developer', 'user', 'assistant', 'tool'] as const;

/** @throws ApiError 400 */
export function readMessages(fields: Fields): ChatMessage[] {
  const messages = fields.required('messages', fields.objects('messages', MAX_MESSAGES));
  if (messages.length === 0) throw badField('messages', 'is empty; give at least one message');
  return messages.map(readMessage);
}

function readMessage(fields: Fields): ChatMessage {
  fields.refuse({ function_call: 'is of an older interface; send tool_calls', audio: 'is not supported' });
  const role = fields.required('role', fields.choice('role', ROLES));
  const calls = fields.objects('tool_calls', MAX_CALLS)?.map(readCall);
  if (calls && role !== 'assistant') throw badField(fields.at('tool_calls'), 'are for messages of the assistant');
  const toolCallId = fields.string('tool_call_id', 256);
  if (role === 'tool') fields.required('tool_call_id', toolCallId);
  const refusal = role === 'assistant' ? fields.string('refusal') : undefined;
  const content = readContent(fields, 'content', ['text', 'refusal']) ?? refusal;
  if (content === undefined && !(role === 'assistant' && calls)) fields.required('content', content);
  const reasoning = fields.string('reasoning_content') ?? fields.string('reasoning');
  const name = fields.string('name', 256);
  return {
    role,
    content: content ?? '',
    ...(reasoning !== undefined && role === 'assistant' && { reasoning }),
    ...(calls && calls.length > 0 && { toolCalls: calls }),
    ...(role === 'tool' && { toolCallId }),
    ...(name !== undefined && { name }),
  };
}

/** A text, or a list of parts of these types, joined. @throws ApiError 400 for images and the like */
export function readContent(fields: Fields, name: string, types: readonly string[]): string | undefined {
  const raw = fields.raw(name);
  if (raw === undefined || typeof raw === 'string') return raw;
  if (!Array.isArray(raw))
    throw badField(fields.at(name), `is ${kinds.showField(raw)}; give a text, or a list of parts`);
  const parts = fields.objects(name, MAX_PARTS)!;
  return parts
    .map((part) => {
      const type = part.required('type', part.string('type'));
      if (!types.includes(type)) throw badField(part.at('type'), `is ${kinds.showField(type)}; this server takes text`);
      const text = type === 'refusal' ? 'refusal' : 'text';
      return part.required(text, part.string(text));
    })
    .join('');
}

function readCall(fields: Fields): ToolCall {
  fields.choice('type', ['function']);
  const call = fields.required('function', fields.object('function'));
  const id = fields.required('id', fields.string('id', 256));
  return { id, name: call.required('name', call.string('name', 64)), arguments: readArguments(call) };
}

/** The arguments of a call, as a model wrote them. @throws ApiError 400 */
export function readArguments(fields: Fields): Record<string, unknown> {
  return argumentsOf(fields.string('arguments') ?? '');
}

/** @throws ApiError 400 */
export function readTools(fields: Fields): ToolDefinition[] {
  fields.refuse({
    functions: 'is of an older interface; send tools',
    function_call: 'is of an older interface; send tool_choice',
  });
  const tools = fields.objects('tools', MAX_TOOLS) ?? [];
  const read = tools.map((tool) => {
    if (tool.raw('type') !== 'function')
      throw badField(tool.at('type'), `is ${kinds.showField(tool.raw('type'))}; give "function"`);
    return readTool(tool.required('function', tool.object('function')));
  });
  return checkNames(fields, read);
}

/** The `{ name, description, parameters }` of a tool. */
export function readTool(fields: Fields): ToolDefinition {
  const name = fields.required('name', fields.string('name'));
  if (!TOOL_NAME.test(name))
    throw badField(fields.at('name'), 'has other characters than letters, digits, "_", "-" and ".", or more than 64');
  const description = fields.string('description');
  const parameters = fields.object('parameters')
    ? (fields.raw('parameters') as object)
    : { type: 'object', properties: {} };
  const strict = fields.boolean('strict') ?? false;
  return { name, parameters, ...(description !== undefined && { description }), ...(strict && { strict }) };
}

export function checkNames(fields: Fields, tools: ToolDefinition[]): ToolDefinition[] {
  const names = tools.map(({ name }) => name);
  const twice = names.find((name, i) => names.indexOf(name) !== i);
  if (twice !== undefined) throw badField(fields.at('tools'), `has two tools with the name ${kinds.showField(twice)}`);
  return tools;
}

/** What of the tools may be called, and whether it must be. */
export interface Offer {
  tools: readonly ToolDefinition[];
  toolChoice: ToolChoice;
}

/** @param nested whether the name of a tool lies in `function`, as it does in chat completions @throws ApiError 400 */
export function readToolChoice(fields: Fields, tools: readonly ToolDefinition[], nested: boolean): Offer {
  const raw = fields.raw('tool_choice');
  if (raw === undefined) return { tools, toolChoice: 'auto' };
  if (!kinds.isObject(raw)) {
    const choice = fields.choice('tool_choice', ['auto', 'none', 'required'])!;
    if (choice === 'required' && tools.length === 0)
      throw badField('tool_choice', 'is "required", but there are no tools');
    return { tools, toolChoice: choice };
  }
  const choice = fields.object('tool_choice')!;
  const type = choice.required('type', choice.choice('type', ['function', 'allowed_tools']));
  const nameOf = (holder: Fields) => {
    const named = nested ? holder.required('function', holder.object('function')) : holder;
    const name = named.required('name', named.string('name', 64));
    if (!tools.some((tool) => tool.name === name))
      throw badField(named.at('name'), `is ${kinds.showField(name)}, which is none of the tools`);
    return name;
  };
  if (type === 'function') return { tools, toolChoice: { name: nameOf(choice) } };
  const allowed = nested ? choice.required('allowed_tools', choice.object('allowed_tools')) : choice;
  const names = allowed.required('tools', allowed.objects('tools', MAX_TOOLS)).map(nameOf);
  if (names.length === 0) throw badField(allowed.at('tools'), 'is empty; give at least one tool');
  const toolChoice = allowed.required('mode', allowed.choice('mode', ['auto', 'required']));
  return { tools: tools.filter(({ name }) => names.includes(name)), toolChoice };
}

/** What the text of an answer has to be: a JSON Schema, where there is one. */
export type AnswerFormat = { schema: object } | undefined;

/** @param fields of `response_format`, or of `text.format`, where name and schema are beside the type @throws ApiError 400 */
export function readFormat(fields: Fields | undefined, nested: boolean): AnswerFormat {
  if (!fields) return undefined;
  const type = fields.required('type', fields.choice('type', ['text', 'json_object', 'json_schema']));
  if (type === 'text') return undefined;
  if (type === 'json_object') return { schema: { type: 'object' } };
  const holder = nested ? fields.required('json_schema', fields.object('json_schema')) : fields;
  holder.required('schema', holder.object('schema'));
  return { schema: holder.raw('schema') as object };
}

/** Variables of the template; which are allowed is the engine's to say. @throws ApiError 400 */
export function readTemplateVariables(fields: Fields): Record<string, unknown> | undefined {
  const given = fields.object('chat_template_kwargs') ? (fields.raw('chat_template_kwargs') as object) : undefined;
  const effort = fields.string('reasoning_effort', 32);
  if (!given && effort === undefined) return undefined;
  return { ...given, ...(effort !== undefined && { reasoning_effort: effort }) };
}
