/**
 * Near matches for a name that was not found, for error messages: most missing tensors and keys are a wrong prefix or a
 * slip of one letter.
 */

/** Up to `count` of `names` closest to `wanted`, closest first; none when nothing is close. */
function nearMatches(wanted: string, names: Iterable<string>, count = 3): string[] {
  const tail = wanted.split('.').slice(-2).join('.');
  const scored: { name: string; score: number }[] = [];
  for (const name of names) {
    // A bounded distance: names of quite another length cannot be near, and are not worth the table.
    const far = Math.abs(name.length - wanted.length) > 8;
    const distance = far ? Number.POSITIVE_INFINITY : editDistance(wanted, name);
    const shared = tail.length > 3 && name.endsWith(tail) ? 4 : Number.POSITIVE_INFINITY;
    const score = Math.min(distance, shared);
    if (score <= Math.max(3, wanted.length / 4)) scored.push({ name, score });
  }
  scored.sort((a, b) => a.score - b.score || (a.name < b.name ? -1 : 1));
  return scored.slice(0, count).map((entry) => entry.name);
}

/** " Near: 'a', 'b'." or nothing. */
export function didYouMean(wanted: string, names: Iterable<string>): string {
  const near = nearMatches(wanted, names);
  return near.length === 0 ? '' : ` Near: ${near.map((name) => `'${name}'`).join(', ')}.`;
}

function editDistance(a: string, b: string): number {
  let previous = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const same = a.charCodeAt(i - 1) === b.charCodeAt(j - 1) ? 0 : 1;
      row.push(Math.min(previous[j] + 1, row[j - 1] + 1, previous[j - 1] + same));
    }
    previous = row;
  }
  return previous[b.length];
}
