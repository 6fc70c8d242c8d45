/**
 * A terminal as a picture: commands and what they wrote, with the moments at which it came. The picture plays them, and is
 * the whole text where nothing moves.
 */
import { escaped } from './svg';

export interface Shown {
  /** Seconds from the beginning. */
  at: number;
  text: string;
  /** What was typed. */
  typed?: boolean;
}

const [COLUMNS, LINE, CHARACTER, MARGIN] = [84, 19, 8.1, 16];

export function terminalPicture(title: string, shown: readonly Shown[]): string {
  const pieces = laidOut(shown);
  const lines = 1 + Math.max(...pieces.map(({ row }) => row));
  const [width, height] = [Math.ceil(COLUMNS * CHARACTER) + 2 * MARGIN, lines * LINE + 2 * MARGIN + 26];
  const words = pieces.map(({ row, column, text, at, typed }) => {
    const [x, y] = [MARGIN + column * CHARACTER, MARGIN + 26 + (row + 0.8) * LINE];
    const attributes = `x="${x.toFixed(1)}" y="${y.toFixed(1)}" textLength="${(text.length * CHARACTER).toFixed(1)}"`;
    return `<text ${attributes} style="animation-delay:${at.toFixed(2)}s"${typed ? ' class="typed"' : ''}>${escaped(text)}</text>`;
  });
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" font-family="ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace" font-size="13.5">`,
    `<title>${escaped(title)}</title>`,
    '<style>text{fill:#d0d7de;animation:come .05s both}.typed{fill:#f5a524}@keyframes come{from{opacity:0}}@media (prefers-reduced-motion:reduce){text{animation:none}}</style>',
    `<rect width="${width}" height="${height}" rx="8" fill="#161b22"/>`,
    ...['#f85149', '#d29922', '#3fb950'].map(
      (colour, i) => `<circle cx="${MARGIN + 5 + 18 * i}" cy="${MARGIN + 4}" r="5.5" fill="${colour}"/>`,
    ),
    ...words,
    '</svg>',
    '',
  ].join('\n');
}

/** Pieces at rows and columns, lines broken at words. */
function laidOut(shown: readonly Shown[]): (Shown & { row: number; column: number })[] {
  const placed: (Shown & { row: number; column: number })[] = [];
  let [row, column] = [0, 0];
  for (const { text, ...rest } of shown) {
    for (const word of text.match(/\n|[^\S\n]*[^\s]+|[^\S\n]+/g) ?? []) {
      if (word === '\n') {
        [row, column] = [row + 1, 0];
        continue;
      }
      const part = word.trimStart();
      const spaces = word.length - part.length;
      if (column + word.length > COLUMNS) [row, column] = [row + 1, 0];
      else column += spaces;
      if (part !== '') placed.push({ ...rest, text: part, row, column });
      column += part.length;
    }
  }
  return placed;
}
