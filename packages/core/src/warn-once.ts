/** Warnings that come once, however often their cause does. */
import { shared } from './one-core';
import { warn } from './platform';

const warned = shared('warned', () => new Set<string>());

/** A warning as Node shows them, or on the console of a browser: once a process and subject. @param subject default: the message */
export function warnOnce(code: string, message: string, subject = message): void {
  const key = `${code} ${subject}`;
  if (warned.has(key)) return;
  warned.add(key);
  warn(message, code);
}
