/** Standard input as one text. */
import { UsageError } from './output';

/** Standard input as a prompt, less the newline at its end. */
export async function textFromStdin(signal: AbortSignal): Promise<string> {
  const stop = () => process.stdin.destroy(signal.reason as Error);
  signal.addEventListener('abort', stop);
  const chunks: Buffer[] = [];
  try {
    signal.throwIfAborted();
    for await (const chunk of process.stdin) chunks.push(chunk as Buffer);
  } finally {
    signal.removeEventListener('abort', stop);
  }
  let text: string;
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(Buffer.concat(chunks));
  } catch {
    throw new UsageError('the prompt on standard input is not UTF-8. Give text in UTF-8.');
  }
  const prompt = text.replace(/\r?\n$/, '');
  if (prompt === '') throw new UsageError('the prompt on standard input is empty. Give some text, or --prompt.');
  return prompt;
}
