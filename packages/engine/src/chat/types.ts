/** What a chat request takes and gives: {@link LanguageModel.generateChat}. */
import type { ChatMessage, ChatPiece, ToolDefinition } from '@x/transformers';
import type { FinishReason, GenerateOptions, GenerationStats, Piece } from '../generation';

/** Whether an answer calls tools: as the model likes, never, at least one, or this one. */
export type ToolChoice = 'auto' | 'none' | 'required' | { name: string };

export interface ChatOptions extends Omit<GenerateOptions, 'addSpecialTokens'> {
  /** Tools that the answer may call. Default: none. */
  tools?: readonly ToolDefinition[];
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
export interface ChatGeneration extends AsyncIterable<ChatPiece> {
  readonly promptIds: readonly number[];
  /** Runs to the end, or on to it, and returns the answer. */
  message(): Promise<ChatMessage>;
  /** The answer as far as it has come: what an interrupted one keeps. */
  readonly partial: ChatMessage;
  /** Tokens generated so far, with their log probabilities where `logprobs` or `topLogprobs` ask for them. */
  readonly tokens: readonly Piece[];
  /** Figures so far; final once the iteration has ended. */
  readonly stats: GenerationStats;
  /** Why it ended; undefined before. `tool-calls`: the model's own end, after one or more calls. */
  readonly finishReason: FinishReason | 'tool-calls' | undefined;
}
