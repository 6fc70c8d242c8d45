/** What a chat request takes and gives: {@link LanguageModel.generateChat}. */
import type { ChatMessage, ChatPiece, StandardSchema, ToolDefinition } from '@x/transformers';
import type { GenerateOptions } from '../generate-options';
import type { FinishReason, GenerationStats, Piece } from '../generation';

/** Whether an answer calls tools: as the model likes, never, at least one, or this one. */
export type ToolChoice = 'auto' | 'none' | 'required' | { name: string };

/** A call of one of these tools. Where a tool's `parameters` are a {@link StandardSchema}, the arguments are what it gives. */
export type ParsedCall<Tools extends readonly ToolDefinition[] = readonly ToolDefinition[]> = {
  [I in keyof Tools]: {
    id: string;
    name: Tools[I]['name'];
    arguments: Tools[I]['parameters'] extends StandardSchema<infer Value> ? Value : Record<string, unknown>;
  };
}[number];

export interface ChatOptions<Tools extends readonly ToolDefinition[] = readonly ToolDefinition[]>
  extends Omit<GenerateOptions, 'addSpecialTokens'> {
  /** Tools that the answer may call. Default: none, and then nothing is read as a call. */
  tools?: Tools;
  /** Default `auto`. */
  toolChoice?: ToolChoice;
  /**
   * Variables of the chat template, such as `{ enable_thinking: false }`. Only those that change what the model is asked, by
   * their names; what the template is built on (messages, tools, special tokens) is refused.
   */
  template?: Readonly<Record<string, unknown>>;
  /** The last message is an assistant's, and the answer goes on where it ends. Default false. */
  continueLast?: boolean;
}

/**
 * An answer under way, an async iterator of {@link ChatPiece}; iterate it, or await {@link message}. Errors of the request
 * itself (messages that the template refuses, a prompt that is too long) are thrown by `generateChat`, before anything runs.
 */
export interface ChatGeneration<Tools extends readonly ToolDefinition[] = readonly ToolDefinition[]>
  extends AsyncIterable<ChatPiece> {
  readonly promptIds: readonly number[];
  /** Runs to the end, or on to it, and returns the answer. */
  message(): Promise<ChatMessage>;
  /**
   * Runs to the end, or on to it, and returns the answer's calls, their arguments checked and transformed by the tool's schema
   * where that is one of a Standard Schema library. The message keeps what the model wrote.
   * @throws TransformersError INVALID_VALUE with the tool's name, where the schema refuses arguments
   */
  calls(): Promise<ParsedCall<Tools>[]>;
  /** The answer as far as it has come: what an interrupted one keeps. */
  readonly partial: ChatMessage;
  /** Tokens generated so far, with their log probabilities where `logprobs` or `topLogprobs` ask for them. */
  readonly tokens: readonly Piece[];
  /** Figures so far; final once the iteration has ended. */
  readonly stats: GenerationStats;
  /** Why it ended; undefined before. `tool-calls`: the model's own end, after one or more calls. */
  readonly finishReason: FinishReason | 'tool-calls' | undefined;
}
