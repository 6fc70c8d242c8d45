/**
 * What ends a command from outside: Ctrl-C, SIGTERM, a terminal that is closed, and a reader that closed its end of the output
 * (`candle ... | head`).
 * A command that has something to clean up runs in {@link interruptible}; the others end at once.
 */
import { CandleError } from '@x/core';

/** Exit statuses, as a shell has them for a program that a signal ended: 128 and the signal's number. */
const STATUS = { SIGHUP: 129, SIGINT: 130, SIGTERM: 143, SIGPIPE: 141 } as const;
type Cause = keyof typeof STATUS;

/** The reason of the signal that {@link interruptible} aborts. */
export class Interrupted extends CandleError {
  override name = 'Interrupted';
  readonly exitStatus: number;

  constructor(by: Cause) {
    super('INTERRUPTED', by === 'SIGPIPE' ? 'the output was closed' : `interrupted by ${by}`);
    this.exitStatus = STATUS[by];
  }
}

let running: AbortController | undefined;
let outputClosed = false;

/** Whether nobody reads stdout any more. */
export function isOutputClosed(): boolean {
  return outputClosed;
}

/**
 * Runs `body` with a signal that the first SIGINT, SIGTERM, SIGHUP or closed output aborts, with an {@link Interrupted} as the
 * reason. The process's exit status says so then, whatever `body` does. A second SIGINT or SIGTERM ends the process at once.
 */
export async function interruptible<T>(body: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const controller = new AbortController();
  running = controller;
  // Without a handler the system's own action is back: it ends the process even when this thread is busy.
  const forget = () => {
    process.removeListener('SIGINT', onSignal);
    process.removeListener('SIGTERM', onSignal);
  };
  const onSignal = (name: NodeJS.Signals) => {
    forget();
    controller.abort(new Interrupted(name as Cause));
  };
  process.on('SIGINT', onSignal);
  process.on('SIGTERM', onSignal);
  // Kept to the end: of a closed terminal the shell tells a command, and the kernel tells it again. Where SIGHUP was ignored
  // (nohup), Node has undone that before this runs, so that this takes nothing away.
  process.on('SIGHUP', onSignal);
  try {
    return await body(controller.signal);
  } finally {
    forget();
    process.removeListener('SIGHUP', onSignal);
    running = undefined;
    if (controller.signal.reason instanceof Interrupted) process.exitCode = controller.signal.reason.exitStatus;
  }
}

/** Ends the command quietly when its output is closed, and with a message when it cannot be written (a full disk). */
export function watchOutput(): void {
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (outputClosed) return;
    outputClosed = true;
    if (error.code !== 'EPIPE') {
      process.stderr.write(`error ${error.code ?? 'ERROR'}: cannot write the output: ${error.message}\n`);
      process.exit(1);
    }
    if (running === undefined) process.exit(STATUS.SIGPIPE);
    running.abort(new Interrupted('SIGPIPE'));
  });
  // Nobody is left to be told.
  process.stderr.on('error', () => {});
}
