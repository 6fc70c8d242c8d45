/** Tables of the documents as data: pictures are made of the figures that are written down, of no others. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from './links';

/** The rows of the first table under a heading whose header has all of `columns`; each row by its header. */
export function rowsOf(document: string, heading: string, columns: readonly string[]): Record<string, string>[] {
  const lines = readFileSync(join(ROOT, document), 'utf8').split('\n');
  const from = lines.findIndex((line) => /^#+ /.test(line) && line.replace(/^#+ /, '') === heading);
  if (from < 0) throw new Error(`${document} has no heading "${heading}"`);
  const cells = (line: string) =>
    line
      .split('|')
      .slice(1, -1)
      .map((cell) => cell.trim());
  const at = lines.findIndex((line, i) => i > from && columns.every((column) => cells(line).includes(column)));
  if (at < 0) throw new Error(`${document}, ${heading}: no table with the columns ${columns.join(', ')}`);
  const header = cells(lines[at]);
  const end = lines.findIndex((line, i) => i > at && !line.startsWith('|'));
  return lines
    .slice(at + 2, end)
    .map((line) => Object.fromEntries(cells(line).map((cell, i) => [header[i], cell] as const)));
}

/** 1,067 and 34 %. */
export function numberOf(cell: string): number {
  const value = Number(cell.replace(/,|%|\s/g, ''));
  if (!Number.isFinite(value) || cell === '') throw new Error(`"${cell}" is no number`);
  return value;
}
