/** What a chat is made of: messages, tools, and the pieces in which an answer arrives. */
import type { StandardSchema } from './standard-schema';

/** Who speaks. `developer` is what some clients call `system`; templates that do not know it are given `system`. */
export type ChatRole = 'system' | 'developer' | 'user' | 'assistant' | 'tool';

/** What a model asks a tool to do. */
export interface ToolCall {
  /** Names the call, so that the tool's answer can refer to it. */
  id: string;
  /** Of the tool, as its {@link ToolDefinition} has it. */
  name: string;
  arguments: Record<string, unknown>;
}

export interface ChatMessage {
  role: ChatRole;
  /** Text; empty where an assistant only calls tools. */
  content: string;
  /** What an assistant thought before it answered. Templates leave it out of earlier turns, or keep it, as the model wants. */
  reasoning?: string;
  /** Calls that an assistant made. */
  toolCalls?: ToolCall[];
  /** Of a `tool` message: the {@link ToolCall.id} that it answers. */
  toolCallId?: string;
  /** Of a `tool` message: the tool. Of others: who speaks, for templates that show it. */
  name?: string;
}

/** A tool that a model may call. */
export interface ToolDefinition {
  name: string;
  description?: string;
  /** JSON Schema of the arguments, an object schema, or a {@link StandardSchema} of them, such as one of zod. */
  parameters: object;
  /**
   * Whether calls must meet `parameters` in all: a schema that cannot be enforced is an error then. Otherwise it is enforced where it
   * can be, and where it cannot the arguments are an object. Default false.
   */
  strict?: boolean;
}

/**
 * A piece of an answer. `text` and `reasoning` come in any number. A tool call comes as a start, its arguments' JSON in
 * any number of texts, and an end with the parsed call; `index` counts the calls of an answer from 0, and one ends before
 * the next begins. A call that breaks off, or whose arguments are no JSON, has no end, nor a start where its name did not come, and is
 * no part of the message: what the model wrote comes as `text`, with the call's index as `ofCall`, so that who has shown the call leaves it out. All `text` pieces
 * joined are the message's content, all `reasoning` pieces its reasoning.
 */
export type ChatPiece =
  | { type: 'text'; text: string; ofCall?: number }
  | { type: 'reasoning'; text: string }
  | { type: 'tool-call-start'; index: number; id: string; name: string }
  | { type: 'tool-call-arguments'; index: number; text: string }
  | { type: 'tool-call-end'; index: number; call: ToolCall };
