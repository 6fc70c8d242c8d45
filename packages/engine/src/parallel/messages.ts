/** What the rank that leads and those that follow tell each other: plain objects, for threads and for processes. */
import { CandleError, CollectiveError, FileFormatError } from '@x/core';
import type { DenseDType } from '@x/quantized';
import type { Command } from '../execute/executor';
import type { CacheDType } from '../kv/rows';
import type { Shard } from '../load/build-model';
import type { PromptWork } from './prompt-parts';

/** What a rank loads. */
export interface RankPlan {
  rank: number;
  size: number;
  /** Of the group of devices. */
  id: Uint8Array;
  /** How long a rank waits for another one, in milliseconds. */
  timeoutMs: number;
  /** Of a thread: a process knows its own. */
  path: string | undefined;
  device: string | undefined;
  dtype: DenseDType | undefined;
  activations: DenseDType | undefined;
  cacheDtype: CacheDType | undefined;
  maxContext: number | undefined;
  fused: boolean | undefined;
  split: Shard['split'];
}

export type ToFollower =
  | { type: 'load'; plan: RankPlan }
  | { type: 'command'; command: Command }
  /** To be answered by `done` with the same number. */
  | { type: 'prompt'; request: number; work: PromptWork }
  /** To be acknowledged, and nothing else. */
  | { type: 'ping' }
  /** Gives all memory back and ends. `failed`: other ranks may be gone, so nothing waits for them */
  | { type: 'end'; failed: boolean }
  /** What tests do to a rank: it fails, does not answer any more, or is gone. */
  | { type: 'disturb'; how: 'fail' | 'hang' | 'exit' };

export type FromFollower =
  /** The rank runs and can be told to load. */
  | { type: 'here' }
  | { type: 'progress'; loaded: number; total: number }
  /** `identity`: of the model's files, so that all ranks have the same. `positions`: of a cache that the rank has room for */
  | { type: 'loaded'; identity: string; positions: number | undefined }
  /** `error`: why it could not be done, where it could not. */
  | { type: 'done'; request: number; error: SentError | undefined }
  | { type: 'failed'; error: SentError }
  /** `storages`: buffers on the rank's devices that are still there, which is none. */
  | { type: 'ended'; storages: number };

/** An error as it is sent. */
export interface SentError {
  name: string;
  code: string;
  message: string;
  /** At fault, where one is known. */
  rank: number | undefined;
}

export function sent(error: unknown): SentError {
  const { name, message, code } = (error instanceof Error ? error : new Error(String(error))) as Error & {
    code?: unknown;
  };
  const rank = error instanceof CollectiveError ? error.rank : undefined;
  return { name, message, code: typeof code === 'string' ? code : 'ERROR', rank };
}

/** What was sent, as an error to be the cause of another one. */
export function received({ name, code, message, rank }: SentError): CandleError {
  if (name === 'CollectiveError') return new CollectiveError(code as CollectiveError['code'], message, { rank });
  if (name === 'FileFormatError') return new FileFormatError(code as FileFormatError['code'], message);
  const error = new CandleError(code, message);
  error.name = name;
  return error;
}

/** The leading rank's end of what joins it to another one. */
export interface Channel {
  readonly rank: number;
  send(message: ToFollower): void;
  /** Messages that the rank has dealt with. */
  acknowledged(): number;
  /** Both are to be set before {@link start}. */
  onMessage: (message: FromFollower) => void;
  /** Called once, when the rank is gone. @param why for people */
  onEnd: (why: string) => void;
  start(): void;
  /** Ends the rank, whatever it is doing; resolves when it is gone, or cannot be told to be. */
  terminate(): Promise<void>;
  /** Whether the process goes on for this rank's sake. */
  keepAlive(isKept: boolean): void;
}

/** A following rank's end. */
export interface Link {
  send(message: FromFollower): void;
  /** Says that one more message was dealt with. */
  acknowledge(): void;
  /** Nothing follows. */
  close(): void;
}
