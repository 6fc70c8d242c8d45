/** The program of a thread that is a rank: see threads.ts. */
import { type MessagePort, receiveMessageOnPort, workerData } from 'node:worker_threads';
import { Follower } from './follower';
import type { FromFollower, ToFollower } from './messages';
import { ACKNOWLEDGED, SENT, type ThreadData } from './threads';

/** How long a thread that has just been busy waits for the next message asleep, which wakes it at once. */
const WAIT_MS = 5;
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
  port.on('message', (message: ToFollower) => {
    receive(message);
    // Steps follow each other closely, and a turn of the event loop for each takes longer than a wait.
    const until = performance.now() + TURN_MS;
    while (performance.now() < until) {
      const next = receiveMessageOnPort(port);
      if (next) receive(next.message);
      else if (Atomics.load(counts, SENT) === received) {
        if (Atomics.wait(counts, SENT, received, WAIT_MS) === 'timed-out') return;
      }
    }
  });
  port.postMessage({ type: 'here' } satisfies FromFollower);
}

void main();
