/**
 * The timeline of a decode step, from the table of language models in docs/benchmarks.md: how long a step takes, and how long
 * the host works for it. Below, the launches of one layer, in order and not to scale (docs/architecture.md).
 */
import { INK, picture, SERIES, text } from './svg';
import { numberOf, rowsOf } from './tables';

const SHOWN: [model: string, sequences: string][] = [
  ['1b q4_k_m', '1'],
  ['8b q4_k_m', '1'],
  ['8b q4_k_m', '8'],
  ['8b f16', '8'],
];

/** The launches of a layer of a quantized Llama. */
export const LAYER = [
  'norm',
  'product q k v',
  'attention',
  'product o',
  'norm',
  'product up, gate',
  'gate',
  'product down',
];

export function steps(): { name: string; stepUs: number; hostUs: number }[] {
  const rows = rowsOf('docs/benchmarks.md', 'Language models', ['model', 'sequences', 'decode', 'host a step, us']);
  return SHOWN.map(([model, sequences]) => {
    const row = rows.find((one) => one.model === model && one.sequences === sequences);
    if (!row) throw new Error(`docs/benchmarks.md has no ${model} with ${sequences} sequences`);
    return {
      name: `${model}, ${sequences} ${sequences === '1' ? 'sequence' : 'sequences'}`,
      stepUs: (1e6 * Number(sequences)) / numberOf(row.decode),
      hostUs: numberOf(row['host a step, us']),
    };
  });
}

export function decodePicture(): string {
  const [width, left, right, top] = [720, 168, 20, 34];
  const all = steps();
  const last = Math.max(...all.map(({ stepUs }) => stepUs));
  const scale = (width - left - right) / last;
  const lanes = all.flatMap(({ name, stepUs, hostUs }, i) => {
    const y = top + i * 48;
    return [
      text(left - 10, y + 18, name, 'text-anchor="end"'),
      `<rect x="${left}" y="${y}" width="${(hostUs * scale).toFixed(1)}" height="11" fill="${SERIES[0]}"/>`,
      `<rect x="${left}" y="${y + 14}" width="${(stepUs * scale).toFixed(1)}" height="11" fill="${INK.accent}"/>`,
      text(left + hostUs * scale + 6, y + 10, `host ${hostUs} µs`),
      stepUs * scale > 300
        ? text(left + stepUs * scale - 6, y + 24, `step ${Math.round(stepUs)} µs`, 'text-anchor="end" fill="#fff"')
        : text(left + stepUs * scale + 6, y + 24, `step ${Math.round(stepUs)} µs`),
    ];
  });
  const below = top + all.length * 48 + 26;
  const cell = (width - 40) / LAYER.length;
  const layer = LAYER.flatMap((name, i) => {
    const x = 20 + i * cell;
    const product = name.startsWith('product');
    const [first, ...rest] = name.split(/ (.*)/);
    return [
      `<rect x="${x.toFixed(1)}" y="${below}" width="${(cell - 3).toFixed(1)}" height="40" rx="4" fill="${product ? '#fff7ed' : '#f1f3f5'}" stroke="${product ? INK.accent : INK.line}"/>`,
      text(x + (cell - 3) / 2, below + (rest[0] ? 18 : 24), first, 'text-anchor="middle"'),
      rest[0] ? text(x + (cell - 3) / 2, below + 32, rest[0], 'text-anchor="middle" font-size="11"') : '',
    ];
  });
  return picture(width, below + 56, 'A decode step: the host’s work beside the step, and the launches of a layer', [
    text(20, 18, 'One graph a step: the host writes its inputs, replays it and reads the tokens. One NVIDIA H200.'),
    ...lanes,
    text(20, below - 10, 'A layer in it, eight launches for one sequence (not to scale): only products read weights.'),
    ...layer,
  ]);
}
