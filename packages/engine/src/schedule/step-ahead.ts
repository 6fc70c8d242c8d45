/**
 * The forward pass behind the step under way, enqueued before the tokens are known that it begins with: the device takes them from
 * where that step leaves its choices, so it does not wait while the host reads them, shows them and is asked for the next ones.
 * How those are chosen is enqueued when they are asked for, which is in time where that takes the host less than the pass takes
 * the device. A row that nobody asks for is left, and its place in the cache is written over. Parts of prompts that wait come along.
 */
import type { SequenceCache } from '../kv/sequence-cache';
import type { LogitsAhead, Runner } from '../runner';
import type { Choice, Sampler } from '../sampling';
import { idOfRow, type RowSamplers } from '../sampling/device';
import type { Step } from './pass-planner';
import type { QueuedPart } from './prompt-queue';

/** A sequence that wants its next token. */
export interface DecodeRequest {
  cache: SequenceCache;
  /** Those that come next, then drafts. */
  ids: readonly number[];
  /** For the token behind the known ones, and behind each draft. */
  samplers: readonly Sampler[];
  /** Whether the token after that is likely to be asked for. */
  goesOn: boolean;
  signal: AbortSignal | undefined;
}

interface Row<Request> {
  cache: SequenceCache;
  /** Where its token stands, and what had happened to the sequence: else the row counts for nothing. */
  position: number;
  changes: number;
  /** Of a sequence that had asked already. */
  request: Request | undefined;
  /** Its token, once it is known. */
  id: number | undefined;
}

/** A pass on its way, and what it is asked for. */
export interface Asked<Request> {
  requests: readonly Request[];
  /** The row of each. */
  rows: readonly number[];
  /** Parts of prompts in it. */
  parts: readonly QueuedPart[];
  /** Of all rows, those behind parts last. */
  samplers: RowSamplers;
  ahead: LogitsAhead;
  /** Requests that it is not for. */
  rest: Request[];
}

interface Flight<Request> {
  rows: readonly Row<Request>[];
  parts: readonly QueuedPart[];
  ahead: LogitsAhead;
}

/** Where parts of prompts come from. */
export interface PartSource {
  takeAlong(): readonly QueuedPart[];
  giveBack(parts: readonly QueuedPart[]): void;
}

export class StepAhead<Request extends DecodeRequest> {
  private flight: Flight<Request> | undefined;

  /**
   * @param tryReserve takes room for so many positions of a sequence where nobody has to give up any for it
   * @param most rows of a pass
   */
  constructor(
    private readonly runner: Runner,
    private readonly prompts: PartSource,
    private readonly tryReserve: (cache: SequenceCache, length: number) => boolean,
    private readonly most: number,
  ) {}

  /** Whether someone waits for the pass. */
  get isAsked(): boolean {
    const { flight } = this;
    return (
      flight !== undefined && (flight.parts.length > 0 || flight.rows.some(({ request }) => request !== undefined))
    );
  }

  /** Sequences whose next token is on its way. */
  get rows(): number {
    return this.flight?.rows.length ?? 0;
  }

  /**
   * Enqueues the pass behind a step: of those whose tokens that chooses, and of the first of those that wait. Where one of these
   * cannot come along there is none, and all are served as usual.
   * @param requests of the step under way, and their rows in it
   * @returns how many of those that wait are served
   */
  enqueue(requests: readonly Request[], rows: readonly number[], waiting: readonly Request[]): number {
    this.flight = undefined;
    const going = requests.flatMap(({ cache, goesOn }, i) => (goesOn ? [{ cache, ids: [idOfRow(rows[i])] }] : []));
    const joining = waiting.slice(0, this.most - going.length);
    const steps: Step[] = [...going, ...joining];
    if (going.length === 0 || !joining.every(isReady)) return 0;
    try {
      if (!steps.every(({ cache }) => this.tryReserve(cache, cache.length + 1))) return 0;
      const places = steps.map(({ cache }) => ({ cache, position: cache.length, changes: cache.changes }));
      const beside = this.beside(steps);
      const ahead = beside?.ahead ?? this.runner.follow(steps);
      if (!ahead) return 0;
      const own = places.map((place, i) => ({ ...place, request: joining[i - going.length], id: undefined }));
      this.flight = { rows: own, parts: beside?.parts ?? [], ahead };
      return joining.length;
    } catch {
      // What is wrong shows itself when the step is made as usual.
      return 0;
    }
  }

  /** A pass of steps and of the parts that wait; undefined where there are none, or they are better read by themselves. */
  private beside(steps: readonly Step[]): { ahead: LogitsAhead; parts: readonly QueuedPart[] } | undefined {
    const parts = this.prompts.takeAlong();
    if (parts.length === 0) return undefined;
    try {
      const ahead = this.runner.followBeside(steps, parts);
      if (ahead) {
        // Who goes on with the next part is there for the next pass.
        for (const { sampler, resolve } of parts) if (!sampler) resolve(undefined);
        return { ahead, parts };
      }
    } catch {
      // What is wrong with one of them shows itself when they are read as usual.
    }
    this.prompts.giveBack(parts);
    return undefined;
  }

  /** What the step in front of the pass chose, for each of its requests. */
  know(requests: readonly Request[], choices: readonly (Choice | undefined)[]): void {
    const ids = new Map(requests.map(({ cache }, i) => [cache, choices[i]?.id]));
    for (const row of this.flight?.rows ?? []) row.id = ids.get(row.cache);
  }

  /**
   * The pass that was enqueued, for those of the requests that it is for; undefined where it is for none of them. It has no requests
   * where its logits are there no more.
   */
  take(waiting: readonly Request[]): Asked<Request> | undefined {
    const { flight } = this;
    if (!flight || (waiting.length === 0 && !this.isAsked)) return undefined;
    this.flight = undefined;
    const { rows, parts, ahead } = flight;
    if (!this.runner.has(ahead))
      return { requests: [], rows: [], parts: [], samplers: [], ahead, rest: [...lost(rows), ...waiting] };
    const asking = rows.map((row) => row.request ?? waiting.find((one) => isFor(row, one)));
    asking.forEach((request, i) => {
      if (request && !rows[i].request) request.cache.commit(request.ids);
    });
    const requests = asking.filter((request) => request !== undefined);
    if (requests.length === 0 && parts.length === 0) return undefined;
    return {
      requests,
      rows: [...asking.keys()].filter((i) => asking[i]),
      parts,
      samplers: [
        ...asking.map((request) => request?.samplers[0]),
        ...parts.map(({ sampler }) => sampler).filter((sampler) => sampler !== undefined),
      ],
      ahead,
      rest: waiting.filter((request) => !requests.includes(request)),
    };
  }
}

/** Requests that had a row, whose tokens are to be computed again. */
function lost<Request>(rows: readonly Row<Request>[]): Request[] {
  return rows.flatMap(({ cache, position, request }) => {
    if (!request) return [];
    cache.truncate(position);
    return [request];
  });
}

/** Whether a sequence that waits can come along: not where what it gave up is to be computed again, and not with drafts. */
function isReady({ cache, ids, signal }: DecodeRequest): boolean {
  return ids.length === 1 && cache.capacity > 0 && cache.length === cache.tokens.length && !signal?.aborted;
}

function isFor({ cache, position, changes, id }: Row<unknown>, request: DecodeRequest): boolean {
  const { ids, signal } = request;
  const isNext = request.cache === cache && ids.length === 1 && ids[0] === id && !signal?.aborted;
  return isNext && cache.length === position && cache.changes === changes;
}
