/**
 * Who computes next: a number of slots, and for each client its requests in the order in which they came. A free slot goes to
 * the client with the fewest, then to the one that has waited longest for its turn, so that a thousand requests of one client
 * hold up a single one of another by no more than what runs.
 */
import { ApiError } from '../errors';

export interface QueueLimits {
  /** Sequences that run at once. */
  maxSequences: number;
  /** Sequences that wait at most. */
  maxWaiting: number;
  /** Sequences of one client, running or waiting. */
  maxPerClient: number;
  /** Milliseconds that one waits at most. */
  waitTimeoutMs: number;
}

/**
 * A place in the queue, later a slot. One that is `held` counts and is not served before {@link line}: who still waits for a
 * model must not have a slot that those who use another one need to end. {@link release} it in any case.
 */
export class Ticket {
  private resolve!: () => void;
  private reject!: (error: unknown) => void;
  /** When the slot is there. */
  private readonly granted = new Promise<void>((resolve, reject) => {
    this.resolve = resolve;
    this.reject = reject;
  });
  state: 'held' | 'waiting' | 'running' | 'released' = 'held';
  begun = 0;
  private timer: NodeJS.Timeout | undefined;

  constructor(
    readonly client: string,
    private readonly queue: FairQueue,
    private readonly waitTimeoutMs: number,
  ) {
    this.granted.catch(() => {});
  }

  /** Waits for a slot from here on. */
  line(): void {
    if (this.state !== 'held') return;
    const { queue, waitTimeoutMs } = this;
    const late = () => {
      const message = `No slot was free within ${waitTimeoutMs} ms; try again later.`;
      this.release(new ApiError(503, message, { code: 'server_full', retryAfter: queue.retryAfter() }));
    };
    this.timer = setTimeout(late, waitTimeoutMs);
    this.state = 'waiting';
    queue.line(this);
  }

  /** @throws ApiError 503 after too long; the signal's reason */
  async ready(signal: AbortSignal): Promise<void> {
    const leave = () => this.release(signal.reason);
    if (signal.aborted) leave();
    signal.addEventListener('abort', leave, { once: true });
    try {
      await this.granted;
    } finally {
      signal.removeEventListener('abort', leave);
    }
  }

  /** Of the queue alone. */
  grant(): void {
    clearTimeout(this.timer);
    this.state = 'running';
    this.begun = performance.now();
    this.resolve();
  }

  /** Gives the place or the slot to others. Harmless when repeated. @param error for who still waits */
  release(error: unknown = new ApiError(499, 'The request was left.')): void {
    const { state } = this;
    if (state === 'released') return;
    clearTimeout(this.timer);
    this.state = 'released';
    if (state !== 'running') this.reject(error);
    this.queue.leave(this, state);
  }
}

interface Client {
  waiting: Ticket[];
  /** Tickets that are not in line yet. */
  held: number;
  /** Slots that it has. */
  running: number;
  /** Number of the grant that was its last; 0 for a newcomer. */
  turn: number;
}

export class FairQueue {
  private readonly clients = new Map<string, Client>();
  private runningCount = 0;
  private waitingCount = 0;
  private grants = 0;
  /** Of the last requests, in ms. */
  private typicalMs = 1000;

  constructor(private readonly limits: QueueLimits) {}

  get running(): number {
    return this.runningCount;
  }

  get waiting(): number {
    return this.waitingCount;
  }

  /**
   * Held places for so many sequences of a client: all or none.
   * @throws ApiError 429 when there are none now, 400 where there are never so many
   */
  enter(name: string, count: number): Ticket[] {
    if (count === 0) return [];
    const { maxSequences, maxWaiting, maxPerClient, waitTimeoutMs } = this.limits;
    const most = Math.min(maxPerClient, maxSequences + maxWaiting);
    if (count > most)
      throw new ApiError(400, `The request asks for ${count} texts at once; this server has room for ${most}.`, {
        code: 'invalid_value',
      });
    const retryAfter = this.retryAfter();
    const client = this.clients.get(name) ?? { waiting: [], held: 0, running: 0, turn: 0 };
    const own = client.waiting.length + client.held + client.running;
    if (own + count > maxPerClient) {
      const message = `This client has ${own} sequences under way, and ${count} more are over its limit of ${maxPerClient}; wait for some to end.`;
      throw new ApiError(429, message, { retryAfter });
    }
    if (this.waitingCount + count > maxSequences - this.runningCount + maxWaiting)
      throw new ApiError(429, 'The server is full; try again later.', { code: 'server_full', retryAfter });
    const tickets = Array.from({ length: count }, () => new Ticket(name, this, waitTimeoutMs));
    client.held += count;
    this.clients.set(name, client);
    this.waitingCount += count;
    return tickets;
  }

  /** Of tickets alone. */
  line(ticket: Ticket): void {
    const client = this.clients.get(ticket.client)!;
    client.held--;
    client.waiting.push(ticket);
    this.grantNext();
  }

  /** Seconds until there should be room, from how long requests take. */
  retryAfter(): number {
    const rounds = (this.waitingCount + 1) / this.limits.maxSequences;
    return Math.min(60, Math.max(1, Math.ceil((rounds * this.typicalMs) / 1000)));
  }

  /** Of tickets alone. */
  leave(ticket: Ticket, was: 'held' | 'waiting' | 'running'): void {
    const client = this.clients.get(ticket.client)!;
    if (was === 'running') {
      client.running--;
      this.runningCount--;
      this.typicalMs += 0.1 * (performance.now() - ticket.begun - this.typicalMs);
    } else {
      if (was === 'held') client.held--;
      else client.waiting.splice(client.waiting.indexOf(ticket), 1);
      this.waitingCount--;
    }
    if (client.running + client.held + client.waiting.length === 0) this.clients.delete(ticket.client);
    this.grantNext();
  }

  private grantNext(): void {
    while (this.runningCount < this.limits.maxSequences) {
      let next: Client | undefined;
      for (const client of this.clients.values()) {
        if (client.waiting.length === 0) continue;
        if (!next || client.running < next.running || (client.running === next.running && client.turn < next.turn))
          next = client;
      }
      if (!next) return;
      const ticket = next.waiting.shift()!;
      next.turn = ++this.grants;
      next.running++;
      this.waitingCount--;
      this.runningCount++;
      ticket.grant();
    }
  }
}
