/** Small helpers for pictures: all are SVG on white, of one width and one face. */

export const INK = { text: '#495057', faint: '#e9ecef', line: '#adb5bd', accent: '#b45309' };

/** The colours of series, in order. */
export const SERIES = ['#1c7ed6', '#d6336c', '#2f9e44'];

export function picture(width: number, height: number, title: string, parts: readonly string[]): string {
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" font-family="sans-serif" font-size="12" fill="${INK.text}">`,
    `<title>${escaped(title)}</title>`,
    `<rect width="${width}" height="${height}" fill="#fff"/>`,
    ...parts,
    '</svg>',
    '',
  ].join('\n');
}

export function text(x: number, y: number, content: string, attributes = ''): string {
  return `<text x="${x.toFixed(1)}" y="${y.toFixed(1)}"${attributes && ` ${attributes}`}>${escaped(content)}</text>`;
}

export function escaped(content: string): string {
  return content.replace(/&/g, '&amp;').replace(/</g, '&lt;').replace(/>/g, '&gt;');
}
