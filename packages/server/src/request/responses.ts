/** The body of `/v1/responses`: items in, as messages of a chat. */
import { kinds } from '@x/core';
import type { ChatOptions } from '@x/engine';
import type { ChatMessage } from '@x/transformers';
import { badField } from '../errors';
import type { ResolvedOptions } from '../options';
import {
  checkNames,
  readArguments,
  readContent,
  readFormat,
  readTemplateVariables,
  readTool,
  readToolChoice,
} from './chat';
import type { Fields } from './fields';
import { MAX_TOP_LOGPROBS, readMaxTokens, readSampling } from './sampling';

const MAX_ITEMS = 4096;
const MAX_TOOLS = 128;
const TEXTS = ['input_text', 'output_text', 'text', 'refusal'];
const ROLES = ['system', 'developer', 'user', 'assistant'] as const;

export interface ResponsesRequest {
  messages: ChatMessage[];
  options: ChatOptions;
  stream: boolean;
  parallel: boolean;
  /** What the answer repeats of the request. */
  echo: Record<string, unknown>;
}

/** @throws ApiError 400 */
export function readResponses(fields: Fields, options: ResolvedOptions): ResponsesRequest {
  const noState = 'is not supported: this server keeps no answers; send the whole input';
  fields.refuse({ previous_response_id: noState, conversation: noState, prompt: 'is not supported' });
  if (fields.boolean('background')) fields.refuse({ background: 'is not supported' });
  const given = checkNames(fields, (fields.objects('tools', MAX_TOOLS) ?? []).map(readFunction));
  const { tools, toolChoice } = readToolChoice(fields, given, false);
  const format = readFormat(fields.object('text')?.object('format'), false);
  const maxTokens = readMaxTokens(fields, ['max_output_tokens'], options);
  const effort = fields.object('reasoning')?.string('effort', 32);
  const template = { ...readTemplateVariables(fields), ...(effort !== undefined && { reasoning_effort: effort }) };
  const instructions = fields.string('instructions');
  const top = fields.integer('top_logprobs', 0, MAX_TOP_LOGPROBS);
  const include = fields.list('include', 16) ?? [];
  for (const [i, one] of include.entries())
    if (typeof one !== 'string') throw badField(fields.at(`include[${i}]`), `is ${kinds.showField(one)}; give a text`);
  fields.object('metadata');
  const sampling = readSampling(fields);
  const parallel = fields.boolean('parallel_tool_calls') ?? true;
  const messages = readInput(fields);
  if (instructions !== undefined) messages.unshift({ role: 'system', content: instructions });
  return {
    messages,
    stream: fields.boolean('stream') ?? false,
    parallel,
    options: {
      ...sampling,
      ...(Number.isFinite(maxTokens) && { maxTokens }),
      ...((top !== undefined || include.includes('message.output_text.logprobs')) && {
        logprobs: true,
        topLogprobs: top ?? 0,
      }),
      ...(tools.length > 0 && { tools, toolChoice }),
      ...(Object.keys(template).length > 0 && { template }),
      ...format,
    },
    echo: {
      instructions: instructions ?? null,
      max_output_tokens: fields.raw('max_output_tokens') ?? null,
      metadata: fields.raw('metadata') ?? {},
      parallel_tool_calls: parallel,
      previous_response_id: null,
      reasoning: { effort: effort ?? null, summary: null },
      store: false,
      temperature: sampling.temperature,
      text: { format: fields.object('text')?.raw('format') ?? { type: 'text' } },
      tool_choice: fields.raw('tool_choice') ?? 'auto',
      tools: fields.raw('tools') ?? [],
      top_p: fields.raw('top_p') ?? 1,
      truncation: 'disabled',
      user: fields.raw('user') ?? null,
    },
  };
}

function readFunction(tool: Fields) {
  if (tool.raw('type') !== 'function')
    throw badField(tool.at('type'), `is ${kinds.showField(tool.raw('type'))}; this server has "function" alone`);
  return readTool(tool);
}

function readInput(fields: Fields): ChatMessage[] {
  const raw = fields.required('input', fields.raw('input'));
  if (typeof raw === 'string') return [{ role: 'user', content: raw }];
  if (!Array.isArray(raw)) throw badField('input', `is ${kinds.showField(raw)}; give a text, or a list of items`);
  const items = fields.objects('input', MAX_ITEMS)!;
  if (items.length === 0) throw badField('input', 'is empty; give a text or at least one item');
  const messages: ChatMessage[] = [];
  /** What the assistant thought, said and called in a row is one message of a chat. */
  const assistant = (): ChatMessage => {
    const last = messages.at(-1);
    if (last?.role === 'assistant') return last;
    const next: ChatMessage = { role: 'assistant', content: '' };
    messages.push(next);
    return next;
  };
  for (const item of items) {
    const type = item.string('type') ?? 'message';
    if (type === 'message') {
      const role = item.required('role', item.choice('role', ROLES));
      const content = item.required('content', readContent(item, 'content', TEXTS));
      if (role === 'assistant') add(assistant(), 'content', content);
      else messages.push({ role, content });
    } else if (type === 'function_call') {
      const id = item.required('call_id', item.string('call_id', 256));
      const name = item.required('name', item.string('name', 64));
      const message = assistant();
      message.toolCalls = [...(message.toolCalls ?? []), { id, name, arguments: readArguments(item) }];
    } else if (type === 'function_call_output') {
      const toolCallId = item.required('call_id', item.string('call_id', 256));
      const content = item.required('output', readContent(item, 'output', TEXTS));
      messages.push({ role: 'tool', content, toolCallId });
    } else if (type === 'reasoning') {
      const text = (item.objects('content', 256) ?? []).map((part) => part.string('text') ?? '').join('');
      if (text !== '') add(assistant(), 'reasoning', text);
    } else
      throw badField(
        item.at('type'),
        `is ${kinds.showField(type)}; this server takes messages, calls, their outputs and reasoning`,
      );
  }
  return messages;
}

/** Puts a text behind what the message has of it. */
function add(message: ChatMessage, field: 'content' | 'reasoning', text: string): void {
  const before = message[field];
  message[field] = before ? `${before}\n\n${text}` : text;
}
