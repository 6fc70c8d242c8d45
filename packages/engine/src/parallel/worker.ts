/** The program of a thread that is a rank: see threads.ts. */
import { type MessagePort, receiveMessageOnPort, workerData } from 'node:worker_threads';
import { Follower } from './follower';
import type { FromFollower, ToFollower } from './messages';
import { ACKNOWLEDGED, SENT, type ThreadData } from './threads';

/**
 * So long after a message the thread waits for the next one asleep, which wakes it in a few microseconds; a turn of the event
 * loop takes more, and steps follow each other closely.
 */
const WAIT_MS = 100;
/** The event loop turns at least so often. */
const TURN_MS = 50;

const { port, counts, modules } = workerData as ThreadData;

class ThreadLink {
  constructor(private readonly port: MessagePort) {}

  send(message: FromFollower): void {
    this.port.postMessage(message);
  }

  acknowledge(): void {
    Atomics.add(counts, ACKNOWLEDGED, 1);
  }

  close(): void {
    this.port.close();
  }
}

async function main(): Promise<void> {
  for (const module of modules) await import(module);
  const follower = new Follower(new ThreadLink(port));
  let received = 0;
  const receive = (message: ToFollower) => {
    received++;
    follower.receive(message);
  };
  let last = 0;
  const drain = () => {
    for (let now = performance.now(), end = now + TURN_MS; now < end; now = performance.now()) {
      const next = receiveMessageOnPort(port);
      if (next) {
        receive(next.message);
        last = performance.now();
      } else if (now - last > WAIT_MS) return;
      else if (Atomics.load(counts, SENT) === received) Atomics.wait(counts, SENT, received, end - now);
    }
    setImmediate(drain);
  };
  port.on('message', (message: ToFollower) => {
    const isIdle = performance.now() - last > WAIT_MS;
    receive(message);
    last = performance.now();
    if (isIdle) drain();
  });
  port.postMessage({ type: 'here' } satisfies FromFollower);
}

void main();
