/** Texts that tokenizers find hard, made of a seed: as tools/golden/tokenizer_ids.py makes them. */
import { readFileSync } from 'node:fs';

const words = JSON.parse(
  readFileSync(new URL('./fixtures/tokenizers/awkward-words.json', import.meta.url), 'utf8'),
) as { fragments: Record<string, string[]>; ranges: [number, number][] };
const fragments = Object.values(words.fragments).flat();

/** A linear congruential generator, whose upper bits count. */
class Random {
  constructor(private state: number) {}

  below(n: number): number {
    this.state = (Math.imul(this.state, 1664525) + 1013904223) >>> 0;
    return Math.floor(((this.state >>> 8) * n) / 2 ** 24);
  }
}

function awkward(random: Random): string {
  const parts: string[] = [];
  for (let left = 1 + random.below(10); left > 0; left--) {
    const kind = random.below(8);
    if (kind < 5) {
      parts.push(fragments[random.below(fragments.length)]);
    } else if (kind === 5) {
      const [first, last] = words.ranges[random.below(words.ranges.length)];
      const count = 1 + random.below(4);
      for (let i = 0; i < count; i++) parts.push(String.fromCodePoint(first + random.below(last - first + 1)));
    } else if (kind === 6) {
      const digits = String(random.below(2 ** 24));
      parts.push(digits.slice(0, 1 + random.below(8)));
    } else {
      parts.push(' '.repeat(1 + random.below(4)));
    }
    if (random.below(3) === 0) parts.push(' ');
  }
  return parts.join('');
}

export function awkwardTexts(seed: number, count: number): string[] {
  const random = new Random(seed);
  return Array.from({ length: count }, () => awkward(random));
}
