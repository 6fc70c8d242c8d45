/** Printing shared by the commands: one JSON object, aligned columns, and errors that name what to do. */
import { styleText } from 'node:util';

/** Runs a command's body; a failure becomes one line on stderr (or a JSON object with `--json`) and exit status 1. */
export async function guarded(json: boolean | undefined, body: () => Promise<void> | void): Promise<void> {
  try {
    await body();
  } catch (error) {
    const code = (error as { code?: unknown }).code;
    const message = error instanceof Error ? error.message : String(error);
    if (json) printJson({ error: { code: typeof code === 'string' ? code : 'ERROR', message } });
    else process.stderr.write(`${paint('red', 'error')}${typeof code === 'string' ? ` ${code}` : ''}: ${message}\n`);
    if (process.env.X_DEBUG && error instanceof Error) process.stderr.write(`${error.stack}\n`);
    process.exitCode = 1;
  }
}

export function printJson(value: unknown, stream: NodeJS.WritableStream = process.stdout): void {
  const text = JSON.stringify(value, (_, item) => (typeof item === 'bigint' ? item.toString() : item));
  stream.write(`${text}\n`);
}

/** Colour on terminals only. */
export function paint(colour: 'red' | 'green' | 'yellow' | 'dim' | 'bold', text: string): string {
  return process.stdout.isTTY ? styleText(colour, text) : text;
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

/** 7.58 MiB. */
export function formatBytes(bytes: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  const power = bytes < 1 ? 0 : Math.min(units.length - 1, Math.floor(Math.log2(bytes) / 10));
  return power === 0 ? `${bytes} B` : `${(bytes / 2 ** (10 * power)).toFixed(2)} ${units[power]}`;
}
