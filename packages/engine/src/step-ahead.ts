/**
 * The step behind the one under way, enqueued before the tokens are known that it begins with: the device takes them from where
 * the step before leaves its choices, so it does not wait while the host reads them, shows them and asks for the next ones. A
 * sequence that asks in time finds its step on its way; what nobody asks for is left, and its place in the cache is written over.
 *
 * It is done where what chooses a token does not depend on the token before it (no penalties, no form of the text), of sequences
 * whose steps are graphs.
 */
import type { SequenceCache } from './kv/sequence-cache';
import type { Runner, Step, StepUnderWay } from './runner';
import type { Sampler } from './sampling';
import { idOfRow } from './sampling/device';

/** A sequence that wants its next token. */
export interface DecodeRequest {
  cache: SequenceCache;
  /** Those that come next, then drafts. */
  ids: readonly number[];
  /** For the token behind the known ones, and behind each draft. */
  samplers: readonly Sampler[];
  /** For the token after that: the same object when it is asked for. Null: none will be; undefined: that depends on the token. */
  following: Sampler | null | undefined;
  signal: AbortSignal | undefined;
}

interface Row<Request> {
  cache: SequenceCache;
  sampler: Sampler;
  /** Where its token stands, and what had happened to the sequence: else the row counts for nothing. */
  position: number;
  changes: number;
  /** Of a sequence that had asked already. */
  request: Request | undefined;
}

/** A step on its way, and of whom. */
export interface Asked<Request> {
  requests: readonly Request[];
  /** The row of each. */
  rows: readonly number[];
  under: StepUnderWay;
  /** Those that it is not for. */
  rest: Request[];
}

export class StepAhead<Request extends DecodeRequest> {
  private flight: { rows: readonly Row<Request>[]; under: StepUnderWay } | undefined;

  /**
   * @param tryReserve takes room for so many positions of a sequence where nobody has to give up any for it
   * @param most rows of a step
   */
  constructor(
    private readonly runner: Runner,
    private readonly tryReserve: (cache: SequenceCache, length: number) => boolean,
    private readonly most: number,
  ) {}

  /** Whether someone waits for the step. */
  get isAsked(): boolean {
    return this.flight?.rows.some(({ request }) => request !== undefined) ?? false;
  }

  /**
   * Enqueues the step behind one: of those whose tokens that chooses, and of all that wait. Where it cannot be for all of them, there
   * is none, and who waits is served as usual.
   * @param requests of the step under way, and their rows
   * @returns whether those that wait are served
   */
  enqueue(
    under: StepUnderWay,
    requests: readonly Request[],
    rows: readonly number[],
    waiting: readonly Request[],
  ): boolean {
    this.flight = undefined;
    if (!under.leads) return false;
    try {
      const goingOn = this.goingOn(requests);
      if (goingOn.every((row) => row === null)) return false;
      const next = [...goingOn, ...this.joining(waiting)];
      if (next.includes(undefined)) return false;
      const steps: Step[] = next.flatMap((row, i) =>
        row ? [{ cache: row.cache, ids: row.request?.ids ?? [idOfRow(rows[i])] }] : [],
      );
      if (steps.length > this.most) return false;
      const own = next.filter((row) => row) as Row<Request>[];
      const behind = this.runner.follow(
        steps,
        own.map(({ sampler }) => sampler),
      );
      if (!behind) return false;
      // Nobody may ask for it.
      behind.choices.catch(() => {});
      this.flight = { rows: own, under: behind };
      return true;
    } catch {
      // What is wrong shows itself when the step is made as usual.
      return false;
    }
  }

  /** The step that was enqueued, for those of the requests that it is for; undefined where it is for none of them. */
  take(waiting: readonly Request[]): Asked<Request> | undefined {
    const { flight } = this;
    if (!flight || (waiting.length === 0 && !this.isAsked)) return undefined;
    this.flight = undefined;
    const rest = new Set(waiting);
    const requests: Request[] = [];
    const rows: number[] = [];
    flight.rows.forEach((row, i) => {
      const request = row.request ?? waiting.find((request) => isFor(row, request));
      if (!request) return;
      if (!row.request) row.cache.commit(request.ids);
      rest.delete(request);
      requests.push(request);
      rows.push(i);
    });
    return requests.length > 0 ? { requests, rows, under: flight.under, rest: [...rest] } : undefined;
  }

  /** Until nothing of a sequence is on its way that nobody asks for. */
  async settled(cache: SequenceCache): Promise<void> {
    const { flight } = this;
    if (!flight?.rows.some((row) => row.cache === cache)) return;
    await flight.under.choices.catch(() => {});
  }

  /** A row for each sequence of the step under way: null where none will be asked for, undefined where it cannot be foretold. */
  private goingOn(requests: readonly Request[]): (Row<Request> | null | undefined)[] {
    return requests.map(({ cache, following }) => {
      if (!following) return following;
      const position = cache.length;
      if (!this.tryReserve(cache, position + 1)) return undefined;
      return { cache, sampler: following, position, changes: cache.changes, request: undefined };
    });
  }

  /** A row for each that waits, undefined where it cannot come along: what it gave up is to be computed again, or it has drafts. */
  private joining(waiting: readonly Request[]): (Row<Request> | undefined)[] {
    return waiting.map((request) => {
      const { cache, ids, samplers, signal } = request;
      const isReady = cache.capacity > 0 && cache.length === cache.tokens.length && !signal?.aborted;
      if (ids.length > 1 || !isReady || !this.tryReserve(cache, cache.length + 1)) return undefined;
      return { cache, sampler: samplers[0], position: cache.length, changes: cache.changes, request };
    });
  }
}

function isFor<Request extends DecodeRequest>(
  { cache, sampler, position, changes }: Row<Request>,
  { cache: asking, samplers: [first], signal }: Request,
): boolean {
  return (
    asking === cache && first === sampler && cache.length === position && cache.changes === changes && !signal?.aborted
  );
}
