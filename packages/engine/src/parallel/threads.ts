/** Ranks in worker threads of this process. */
import { MessageChannel, type MessagePort, Worker } from 'node:worker_threads';
import { backendModules } from '@x/core';
import type { Channel, FromFollower, ToFollower } from './messages';
import { threadProgram } from './thread-program';

/** What a thread starts with. */
export interface ThreadData {
  port: MessagePort;
  /** {@link SENT} and {@link ACKNOWLEDGED}. */
  counts: Int32Array;
  /** URLs of modules that register backends. */
  modules: readonly string[];
}

/** Places in {@link ThreadData.counts}: messages to the rank, and those that it has dealt with. */
export const SENT = 0;
export const ACKNOWLEDGED = 1;

/** A thread that does not end within this time is in a call that cannot be ended from outside. */
const TERMINATE_MS = 2000;

export function startThread(rank: number): Channel {
  const { port1, port2 } = new MessageChannel();
  const counts = new Int32Array(new SharedArrayBuffer(8));
  const { program, isText, modules } = threadProgram(backendModules());
  const data: ThreadData = { port: port2, counts, modules };
  const worker = new Worker(program, {
    workerData: data,
    transferList: [port2],
    eval: isText,
    name: `rank ${rank}`,
  });
  return new ThreadChannel(rank, worker, port1, counts);
}

class ThreadChannel implements Channel {
  onMessage: (message: FromFollower) => void = () => {};
  onEnd: (why: string) => void = () => {};
  private readonly gone: Promise<void>;
  private cause: string | undefined;

  constructor(
    readonly rank: number,
    private readonly worker: Worker,
    private readonly port: MessagePort,
    private readonly counts: Int32Array,
  ) {
    worker.on('error', (error) => {
      this.cause = error instanceof Error ? error.message : String(error);
    });
    this.gone = new Promise((resolve) => {
      worker.once('exit', (code) => {
        port.close();
        this.onEnd(this.cause ?? `its thread ended with status ${code}`);
        resolve();
      });
    });
  }

  start(): void {
    this.port.on('message', (message: FromFollower) => this.onMessage(message));
  }

  send(message: ToFollower): void {
    this.port.postMessage(message);
    Atomics.add(this.counts, SENT, 1);
    Atomics.notify(this.counts, SENT);
  }

  acknowledged(): number {
    return Atomics.load(this.counts, ACKNOWLEDGED);
  }

  async terminate(): Promise<void> {
    void this.worker.terminate();
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, TERMINATE_MS);
    });
    await Promise.race([this.gone, late]);
    clearTimeout(timer);
  }

  keepAlive(isKept: boolean): void {
    if (isKept) {
      this.worker.ref();
      this.port.ref();
    } else {
      this.worker.unref();
      this.port.unref();
    }
  }
}
