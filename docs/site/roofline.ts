/**
 * A roofline of docs/benchmarks.md, its first table: what each operation reaches, by how much it computes for each byte. Roofs
 * are what the same run reached: its copy, and its fastest product in each dtype.
 */
import { INK, picture, SERIES, text } from './svg';
import { numberOf, rowsOf } from './tables';

const SIZES = { f32: 4, f16: 2, bf16: 2 } as const;
type BenchDType = keyof typeof SIZES;

/** Operations and bytes of those whose arithmetic is beyond dispute, in the shapes of tools/bench/op-list.ts. */
const COUNTS: Record<string, { label: string; flop: number; bytes: (size: number) => number; tf32?: true }> = {
  add: { label: 'add', flop: 2 ** 28, bytes: (size) => 3 * 2 ** 28 * size },
  sum_last: { label: 'sum, affine', flop: 2 ** 28, bytes: (size) => 2 ** 28 * size },
  affine: { label: '', flop: 2 ** 29, bytes: (size) => 2 ** 29 * size },
  matvec_14336x4096: { label: 'matrix × vector', flop: 2 * 14336 * 4096, bytes: (size) => 14336 * 4096 * size },
  conv2d: {
    label: 'conv2d',
    flop: 2 * 32 * 56 * 56 * 256 * 128 * 9,
    bytes: (size) => (32 * 56 * 56 * (128 + 256) + 256 * 128 * 9) * size,
    // Multiplies f32 in TF32, as PyTorch does, which is another roof.
    tf32: true,
  },
  matmul_4096: { label: 'matmul 4096', flop: 2 * 4096 ** 3, bytes: (size) => 3 * 4096 ** 2 * size },
  matmul_8192: { label: 'matmul 8192', flop: 2 * 8192 ** 3, bytes: (size) => 3 * 8192 ** 2 * size },
};

export interface RoofPoint {
  label: string;
  dtype: BenchDType;
  /** Operations a byte. */
  intensity: number;
  /** TFLOP/s. */
  reached: number;
}

export function roofPoints(): { points: RoofPoint[]; copy: number } {
  const times = new Map(
    rowsOf('docs/benchmarks.md', 'Tensor operations beside PyTorch', ['op', 'ms', 'ratio']).map((row) => [
      row.op,
      numberOf(row.ms) / 1000,
    ]),
  );
  const timeOf = (name: string) => {
    const time = times.get(name);
    if (time === undefined) throw new Error(`docs/benchmarks.md has no ${name}`);
    return time;
  };
  const points = (Object.keys(SIZES) as BenchDType[]).flatMap((dtype) =>
    Object.entries(COUNTS)
      .filter(([, { tf32 }]) => !(tf32 && dtype === 'f32'))
      .map(([name, { label, flop, bytes }]) => ({
        label,
        dtype,
        intensity: flop / bytes(SIZES[dtype]),
        reached: flop / timeOf(`${name}_${dtype}`) / 1e12,
      })),
  );
  // TB/s; times operations a byte that is TFLOP/s.
  const copy = (2 * 2 ** 28 * SIZES.f32) / timeOf('copy_f32') / 1e12;
  return { points, copy };
}

const SIZE = { width: 720, height: 420, left: 62, right: 28, top: 20, bottom: 46 };
const X = [0.05, 5000];
const Y = [0.2, 2000];

export function rooflinePicture(): string {
  const { points, copy } = roofPoints();
  const { width, height, left, right, top, bottom } = SIZE;
  const x = (value: number) => left + ((width - left - right) * Math.log(value / X[0])) / Math.log(X[1] / X[0]);
  const y = (value: number) =>
    height - bottom - ((height - top - bottom) * Math.log(value / Y[0])) / Math.log(Y[1] / Y[0]);
  const decades = (from: number, to: number) =>
    Array.from({ length: 12 }, (_, i) => 10 ** (i - 3)).filter((value) => value >= from && value <= to);
  const grid = [
    ...decades(X[0], X[1]).map(
      (value) =>
        `<path d="M${x(value).toFixed(1)} ${top}V${height - bottom}" stroke="${INK.faint}"/>${text(x(value), height - bottom + 18, `${value}`, 'text-anchor="middle"')}`,
    ),
    ...decades(Y[0], Y[1]).map(
      (value) =>
        `<path d="M${left} ${y(value).toFixed(1)}H${width - right}" stroke="${INK.faint}"/>${text(left - 8, y(value) + 4, `${value}`, 'text-anchor="end"')}`,
    ),
  ];
  const fastest = (dtypes: readonly string[]) =>
    Math.max(...points.filter(({ dtype }) => dtypes.includes(dtype)).map(({ reached }) => reached));
  const roofs = [
    { value: fastest(['f16', 'bf16']), name: 'f16 and bf16' },
    { value: fastest(['f32']), name: 'f32' },
  ].map(({ value, name }) => {
    const knee = value / copy;
    return [
      `<path d="M${x(knee).toFixed(1)} ${y(value).toFixed(1)}H${width - right}" stroke="${INK.text}" stroke-dasharray="5 4"/>`,
      text(width - right, y(value) - 6, `fastest product, ${name}: ${value.toFixed(0)} TFLOP/s`, 'text-anchor="end"'),
    ].join('');
  });
  const peak = fastest(['f16', 'bf16']);
  const slope = [
    `<path d="M${x(X[0]).toFixed(1)} ${y(X[0] * copy).toFixed(1)}L${x(peak / copy).toFixed(1)} ${y(peak).toFixed(1)}" stroke="${INK.text}" stroke-dasharray="5 4"/>`,
    `<text transform="translate(${x(3).toFixed(1)} ${(y(3 * copy) - 8).toFixed(1)}) rotate(${slopeDegrees(x, y, copy)})" text-anchor="middle">copy of the same run: ${copy.toFixed(2)} TB/s</text>`,
  ];
  const dtypes = Object.keys(SIZES);
  const dots = points.map(
    ({ dtype, intensity, reached }) =>
      `<circle cx="${x(intensity).toFixed(1)}" cy="${y(reached).toFixed(1)}" r="4" fill="${SERIES[dtypes.indexOf(dtype)]}"><title>${dtype}: ${reached.toPrecision(3)} TFLOP/s</title></circle>`,
  );
  // One label for the points of all dtypes: below those of f32, or of f16 where f32 is left out.
  const labels = points
    .filter(({ dtype, label }) => dtype === (label === 'conv2d' ? 'f16' : 'f32'))
    .map(({ label, intensity, reached }) => {
      const before = label === 'matmul 4096';
      return text(
        x(intensity) + (before ? -6 : 6),
        y(reached) + 18,
        label,
        `text-anchor="${before ? 'end' : 'start'}"`,
      );
    });
  const legend = dtypes.map(
    (dtype, i) =>
      `<circle cx="${left + 16}" cy="${top + 16 + 18 * i}" r="4" fill="${SERIES[i]}"/>${text(left + 28, top + 20 + 18 * i, dtype)}`,
  );
  return picture(width, height, 'Roofline of the operations measured on one NVIDIA H200', [
    ...grid,
    `<path d="M${left} ${top}V${height - bottom}H${width - right}" fill="none" stroke="${INK.line}"/>`,
    ...slope,
    ...roofs,
    ...dots,
    ...labels,
    ...legend,
    text((left + width - right) / 2, height - 8, 'operations a byte', 'text-anchor="middle"'),
    `<text transform="translate(16 ${(top + height - bottom) / 2}) rotate(-90)" text-anchor="middle">TFLOP/s</text>`,
  ]);
}

function slopeDegrees(x: (value: number) => number, y: (value: number) => number, copy: number): string {
  return ((Math.atan2(y(10 * copy) - y(copy), x(10) - x(1)) * 180) / Math.PI).toFixed(1);
}
