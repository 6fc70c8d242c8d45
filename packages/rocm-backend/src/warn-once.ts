/** Warnings as Node shows them, each once a process and subject. */
const warned = new Set<string>();

export function warnOnce(code: string, message: string, subject = message): void {
  const key = `${code} ${subject}`;
  if (warned.has(key)) return;
  warned.add(key);
  process.emitWarning(message, { type: 'CandleWarning', code });
}
