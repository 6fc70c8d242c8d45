/** The picture of the layers: the published packages and what they depend on, read from their package.json. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from './links';
import { INK, picture, text } from './svg';

const BOX = { width: 128, height: 34, gap: 12, rise: 64 };
const WIDTH = 720;

/** What each package depends on directly, those left out that another of its dependencies brings. */
export function dependencies(): Map<string, string[]> {
  const all = new Map<string, string[]>();
  for (const folder of readdirSync(join(ROOT, 'packages'))) {
    const manifest = JSON.parse(readFileSync(join(ROOT, 'packages', folder, 'package.json'), 'utf8'));
    if (manifest.private) continue;
    const names = Object.keys(manifest.dependencies ?? {}).filter((name) => name.startsWith('@x/'));
    all.set(folder, names.map((name) => name.slice(3)).sort());
  }
  const reaches = (from: string, to: string): boolean =>
    all.get(from)!.some((name) => name === to || reaches(name, to));
  return new Map(
    [...all].map(([name, names]) => [name, names.filter((one) => !names.some((other) => reaches(other, one)))]),
  );
}

/** How many packages lie below at most. */
function levelOf(name: string, below: Map<string, string[]>): number {
  return 1 + Math.max(-1, ...below.get(name)!.map((one) => levelOf(one, below)));
}

export function layersPicture(): string {
  const below = dependencies();
  const names = [...below.keys()];
  const levels = 1 + Math.max(...names.map((name) => levelOf(name, below)));
  const rows = Array.from({ length: levels }, (_, level) => names.filter((name) => levelOf(name, below) === level));
  const height = rows.length * BOX.rise + 40;
  const place = new Map<string, { x: number; y: number }>();
  rows.forEach((row, level) => {
    const total = row.length * BOX.width + (row.length - 1) * BOX.gap;
    row.forEach((name, i) => {
      const x = (WIDTH - total) / 2 + i * (BOX.width + BOX.gap) + BOX.width / 2;
      place.set(name, { x, y: height - 36 - level * BOX.rise });
    });
  });
  const lines = [...below].flatMap(([name, names]) =>
    names.map((other) => {
      const [from, to] = [place.get(name)!, place.get(other)!];
      const [y1, y2] = [from.y + BOX.height / 2, to.y - BOX.height / 2];
      const middle = (y1 + y2) / 2;
      return `<path d="M${from.x.toFixed(1)} ${y1}C${from.x.toFixed(1)} ${middle} ${to.x.toFixed(1)} ${middle} ${to.x.toFixed(1)} ${y2}" fill="none" stroke="${INK.line}"/>`;
    }),
  );
  const boxes = [...place].map(([name, { x, y }]) =>
    [
      `<rect x="${(x - BOX.width / 2).toFixed(1)}" y="${y - BOX.height / 2}" width="${BOX.width}" height="${BOX.height}" rx="6" fill="#fff7ed" stroke="${INK.accent}"/>`,
      text(x, y + 4, `@x/${name}`, 'text-anchor="middle" font-size="13"'),
    ].join(''),
  );
  return picture(WIDTH, height, 'The packages, each above those that it depends on', [...lines, ...boxes]);
}
