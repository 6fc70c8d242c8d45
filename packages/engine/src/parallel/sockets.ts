/** Ranks in other processes: the leading one listens, the others connect to it. */
import { connect, createServer, type Socket } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import { CollectiveError } from '@x/core';
import { isLoopback, type ProcessGroup } from './environment';
import { FrameReader, writeFrame } from './frames';
import { greet, introduce, Refused } from './handshake';
import type { Channel, FromFollower, Link, ToFollower } from './messages';

/** Processes that come together may take so long: machines start, models are downloaded. */
const MEET_MS = 600_000;
const RETRY_MS = 250;
/** Connections that have not introduced themselves yet, at most. */
const MAX_STRANGERS = 64;
/** A peer whose machine is gone is noticed after this and ten more seconds. */
const KEEPALIVE_MS = 5000;

/** Where all are on one machine nothing else is asked for. */
const LOCAL_TOKEN = 'ranks on one machine';

/** Number of messages that were dealt with, from a rank. */
interface Acknowledgment {
  type: 'acknowledged';
  count: number;
}

/** Waits for all other ranks. @throws CollectiveError RANK_TIMEOUT naming one that did not come; the signal's reason */
export async function gather(
  { size, host, port, token = LOCAL_TOKEN }: ProcessGroup,
  signal: AbortSignal | undefined,
  timeoutMs = MEET_MS,
): Promise<Channel[]> {
  const found = new Map<number, SocketChannel>();
  const strangers = new Set<Socket>();
  const server = createServer({ noDelay: true, keepAlive: true, keepAliveInitialDelay: KEEPALIVE_MS });
  const limit = AbortSignal.timeout(timeoutMs);
  try {
    await new Promise<void>((resolve, reject) => {
      const stop = () => reject(signal?.aborted ? signal.reason : missing(size, found, timeoutMs));
      limit.addEventListener('abort', stop, { once: true });
      signal?.addEventListener('abort', stop, { once: true });
      server.on('error', (cause) => reject(unusable(host, port, cause)));
      server.on('connection', (socket) => {
        if (strangers.size >= MAX_STRANGERS) return void socket.destroy();
        strangers.add(socket);
        socket.on('error', () => {});
        greet(socket, token, size, (rank) => rank > 0 && rank < size && !found.has(rank))
          .then(({ rank, rest }) => {
            strangers.delete(socket);
            found.set(rank, new SocketChannel(rank, socket, rest));
            if (found.size === size - 1) resolve();
          })
          .catch(() => socket.destroySoon())
          .finally(() => strangers.delete(socket));
      });
      signal?.throwIfAborted();
      // A name may stand for something in front of this machine, so all of its addresses are listened at.
      server.listen(isLoopback(host) ? { host, port } : { port });
    });
    return [...found.values()].sort((a, b) => a.rank - b.rank);
  } catch (error) {
    for (const channel of found.values()) void channel.terminate();
    throw error;
  } finally {
    server.close();
    for (const socket of strangers) socket.destroy();
  }
}

function missing(size: number, found: ReadonlyMap<number, unknown>, timeoutMs: number): CollectiveError {
  const ranks = Array.from({ length: size - 1 }, (_, i) => i + 1).filter((rank) => !found.has(rank));
  const message = `Processes of a model: rank ${ranks.join(', ')} of ${size} did not connect within ${Math.round(timeoutMs / 1000)} s; start all processes with the same MASTER_ADDR and MASTER_PORT.`;
  return new CollectiveError('RANK_TIMEOUT', message, { rank: ranks[0] });
}

function unusable(host: string, port: number, cause: Error): CollectiveError {
  const message = `Processes of a model: rank 0 cannot listen at ${host}:${port}: ${cause.message}; give another MASTER_PORT, or X_GROUP_PORT.`;
  return new CollectiveError('GROUP_FAILED', message, { rank: 0, cause });
}

/** Connects to the leading rank, which may not be there yet. @throws CollectiveError; the signal's reason */
export async function meet(
  { rank, size, host, port, token = LOCAL_TOKEN }: ProcessGroup,
  signal: AbortSignal | undefined,
  timeoutMs = MEET_MS,
): Promise<{ socket: Socket; rest: Buffer }> {
  const until = performance.now() + timeoutMs;
  const place = `rank 0 at ${host}:${port}`;
  for (;;) {
    signal?.throwIfAborted();
    let socket: Socket | undefined;
    try {
      socket = await connected(host, port, signal);
      const rest = await introduce(socket, token, rank, size);
      return { socket, rest };
    } catch (cause) {
      socket?.destroy();
      signal?.throwIfAborted();
      const why = (cause as Error).message;
      if (cause instanceof Refused) {
        const message = `Processes of a model: ${place} does not take rank ${rank} of ${size}: ${why}. Start all processes with the same WORLD_SIZE and X_GROUP_TOKEN, each with a RANK of its own.`;
        throw new CollectiveError('GROUP_FAILED', message, { rank, cause });
      }
      if (performance.now() > until) {
        const message = `Processes of a model: ${place} was not reached within ${Math.round(timeoutMs / 1000)} s: ${why}. Start it, or correct MASTER_ADDR and MASTER_PORT.`;
        throw new CollectiveError('RANK_TIMEOUT', message, { rank: 0, cause });
      }
      await pause(RETRY_MS, undefined, { signal }).catch(() => {});
    }
  }
}

function connected(host: string, port: number, signal: AbortSignal | undefined): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host, port, noDelay: true, keepAlive: true, keepAliveInitialDelay: KEEPALIVE_MS });
    const stop = () => socket.destroy(new Error('aborted'));
    signal?.addEventListener('abort', stop, { once: true });
    socket.once('error', reject);
    socket.once('connect', () => {
      signal?.removeEventListener('abort', stop);
      socket.off('error', reject);
      socket.on('error', () => {});
      resolve(socket);
    });
  });
}

/** Reads messages of a peer that has introduced itself; one that breaks the rules is cut off. */
function listenTo(
  socket: Socket,
  rest: Buffer,
  received: (message: unknown) => void,
  ended: (why: string) => void,
): void {
  let why = 'its connection was closed';
  const reader = new FrameReader(received);
  const push = (chunk: Buffer) => {
    try {
      reader.push(chunk);
    } catch (error) {
      why = (error as Error).message;
      socket.destroy();
    }
  };
  socket.on('data', push);
  socket.on('error', (error) => {
    why = error.message;
  });
  socket.on('close', () => ended(why));
  // It may have gone before anyone listened.
  if (socket.closed) setImmediate(() => ended(why));
  if (rest.length > 0) push(rest);
  socket.resume();
}

class SocketChannel implements Channel {
  onMessage: (message: FromFollower) => void = () => {};
  onEnd: (why: string) => void = () => {};
  private count = 0;

  constructor(
    readonly rank: number,
    private readonly socket: Socket,
    private readonly rest: Buffer,
  ) {}

  start(): void {
    const received = (message: unknown) => {
      const known = message as FromFollower | Acknowledgment;
      if (known.type === 'acknowledged') this.count = known.count;
      else this.onMessage(known);
    };
    listenTo(this.socket, this.rest, received, (why) => this.onEnd(why));
  }

  send(message: ToFollower): void {
    if (this.socket.writable) writeFrame(this.socket, message);
  }

  acknowledged(): number {
    return this.count;
  }

  async terminate(): Promise<void> {
    this.socket.destroy();
  }

  keepAlive(isKept: boolean): void {
    if (isKept) this.socket.ref();
    else this.socket.unref();
  }
}

/** A following process's end: what is read goes to `received`. */
export class SocketLink implements Link {
  private count = 0;
  private isScheduled = false;

  /** @param ended called once, when the connection is no more */
  constructor(
    private readonly socket: Socket,
    rest: Buffer,
    received: (message: ToFollower) => void,
    ended: (why: string) => void,
  ) {
    // Nothing is received before the caller has this.
    queueMicrotask(() => listenTo(socket, rest, (message) => received(message as ToFollower), ended));
  }

  send(message: FromFollower): void {
    if (this.socket.writable) writeFrame(this.socket, message);
  }

  /** One word for all that was dealt with in a turn. */
  acknowledge(): void {
    this.count++;
    if (this.isScheduled) return;
    this.isScheduled = true;
    queueMicrotask(() => {
      this.isScheduled = false;
      if (this.socket.writable)
        writeFrame(this.socket, { type: 'acknowledged', count: this.count } satisfies Acknowledgment);
    });
  }

  close(): void {
    this.socket.end();
  }
}
