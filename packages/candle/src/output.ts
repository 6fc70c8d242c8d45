/** Printing shared by the commands: one JSON object, aligned columns, colours, and errors that name what to do. */
import { CandleError, settings } from '@x/core';
import { Interrupted, isOutputClosed } from './interrupt';

export { formatBytes } from '@x/core';

/** A command line that asks for what cannot be; exit status 2, as for an unknown option. */
export class UsageError extends CandleError {
  override name = 'UsageError';

  constructor(message: string) {
    super('USAGE', message);
  }
}

/**
 * Runs a command's body; a failure becomes one line on stderr (or a JSON object with `--json`) and exit status 1, 2 for a
 * {@link UsageError}, and that of the signal for an interrupt.
 */
export async function guarded(json: boolean | undefined, body: () => Promise<void> | void): Promise<void> {
  try {
    await body();
  } catch (error) {
    if (isOutputClosed()) return;
    const code = (error as { code?: unknown }).code;
    const message = error instanceof Error ? error.message : String(error);
    printError(json === true, typeof code === 'string' ? code : undefined, message);
    if (settings.debug() > 0 && error instanceof Error) process.stderr.write(`${error.stack}\n`);
    process.exitCode = error instanceof Interrupted ? error.exitStatus : error instanceof UsageError ? 2 : 1;
  }
}

/** One line on stderr, or a JSON object on stdout. */
export function printError(json: boolean, code: string | undefined, message: string): void {
  if (json) {
    printJson({ error: { code: code ?? 'ERROR', message } });
    return;
  }
  const label = paint('red', 'error', process.stderr);
  process.stderr.write(`${label}${code === undefined ? '' : ` ${code}`}: ${oneLine(message)}\n`);
}

/** One line on stderr about what was done nevertheless. */
export function printWarning(message: string): void {
  process.stderr.write(`${paint('yellow', 'warning', process.stderr)}: ${oneLine(message)}\n`);
}

function oneLine(message: string): string {
  return shown(message.trim().replace(/\s*\n\s*/g, ' '));
}

/** Text from files and from elsewhere: control characters, which a terminal would obey, as what they are. */
export function shown(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: those are what is written out
  return text.replace(/[\x00-\x1f\x7f-\x9f]/g, (one) => `\\x${one.charCodeAt(0).toString(16).padStart(2, '0')}`);
}

export function printJson(value: unknown, stream: NodeJS.WritableStream = process.stdout): void {
  const text = JSON.stringify(value, (_, item) => (typeof item === 'bigint' ? item.toString() : item));
  stream.write(`${text}\n`);
}

/** SGR codes that switch a style on and off. */
const STYLES = { red: [31, 39], green: [32, 39], yellow: [33, 39], dim: [2, 22], bold: [1, 22] } as const;

/** `text` in a style, where the stream that it goes to shows styles. */
export function paint(style: keyof typeof STYLES, text: string, stream: NodeJS.WriteStream = process.stdout): string {
  const [on, off] = STYLES[style];
  return isColoured(stream) ? `\x1b[${on}m${text}\x1b[${off}m` : text;
}

/** FORCE_COLOR decides (0 and false: no), then NO_COLOR, as Node has it; else terminals are coloured, each stream for itself. */
function isColoured(stream: NodeJS.WriteStream): boolean {
  const { FORCE_COLOR, NO_COLOR, TERM } = process.env;
  if (FORCE_COLOR) return FORCE_COLOR !== '0' && FORCE_COLOR.toLowerCase() !== 'false';
  if (NO_COLOR) return false;
  return stream.isTTY === true && TERM !== 'dumb';
}

/** Rows as columns, padded to the widest cell. */
export function table(rows: readonly (readonly string[])[]): string {
  const widths = rows.reduce<number[]>((all, row) => row.map((cell, i) => Math.max(all[i] ?? 0, cell.length)), []);
  return rows
    .map((row) =>
      row
        .map((cell, i) => cell.padEnd(widths[i]))
        .join('  ')
        .trimEnd(),
    )
    .join('\n');
}
