/** Standard input as one text. */
import { standardInput, textOf } from './lines';
import { UsageError } from './output';

const bad = (what: string, remedy: string) => new UsageError(`the prompt on standard input ${what}. ${remedy}`);

const ERRORS = {
  unreadable: ({ message }: Error) => bad(`cannot be read: ${message}`, 'Use --prompt.'),
  tooLong: (mostBytes: number) => bad(`has more than ${mostBytes} bytes`, 'Give a shorter one.'),
  notUtf8: () => bad('is not UTF-8', 'Give text in UTF-8.'),
};

/** Standard input as a prompt, less the newline at its end. */
export async function textFromStdin(signal: AbortSignal): Promise<string> {
  const text = await textOf(standardInput, ERRORS, signal);
  const prompt = text.replace(/\r?\n$/, '');
  if (prompt === '') throw bad('is empty', 'Give some text, or --prompt.');
  return prompt;
}
