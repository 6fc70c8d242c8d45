/**
 * Whether operations are recorded for differentiation. candle always records what depends on a variable; `noGrad` is
 * PyTorch's. The mode lives in an AsyncLocalStorage, as scopes do, so concurrent async functions do not disturb each
 * other. It is asked for only when an operand is tracked: code without variables never pays for it.
 */
import { check, FUNCTION } from '../check';
import { createContext } from '../context';
import { shared } from '../one-core';

const mode = shared('gradMode', () => createContext<boolean>());

/** Whether an operation on a tracked tensor made now is recorded. */
export function isGradEnabled(): boolean {
  return mode.getStore() ?? true;
}

/**
 * Runs `fn` without recording: what it makes depends on no variable and keeps nothing alive. `fn` may be async; the mode
 * holds until its promise settles. Variables made inside are variables all the same.
 * @returns what `fn` returns
 */
export function noGrad<T>(fn: () => T): T {
  check('noGrad', 'fn', fn, FUNCTION);
  return mode.run(false, fn);
}

/** Runs `fn` with recording on, also inside of {@link noGrad}. */
export function enableGrad<T>(fn: () => T): T {
  check('enableGrad', 'fn', fn, FUNCTION);
  return mode.run(true, fn);
}
