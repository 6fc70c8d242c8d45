// The curve of a training run as an SVG: loss over steps, for the text that is learnt from and for the held-out one.

export interface Point {
  step: number;
  /** Mean of -log p a character. */
  loss: number;
}

export interface Curve {
  train: Point[];
  heldOut: Point[];
}

const SIZE = { width: 640, height: 360, left: 56, right: 16, top: 16, bottom: 44 };
const COLOURS = { train: '#9aa5b1', heldOut: '#d6336c', baseline: '#495057' };

/** @param baseline a loss to compare with: a dashed line */
export function lossChart({ train, heldOut }: Curve, baseline: number): string {
  const { width, height, left, right, top, bottom } = SIZE;
  const losses = [...train, ...heldOut].map(({ loss }) => loss);
  const last = Math.max(1, ...train.map(({ step }) => step));
  const [low, high] = [
    Math.floor(2 * Math.min(baseline, ...losses)) / 2,
    Math.ceil(2 * Math.max(baseline, ...losses)) / 2,
  ];
  const x = (step: number) => left + (step / last) * (width - left - right);
  const y = (loss: number) => top + ((high - loss) / (high - low)) * (height - top - bottom);
  const text = (at: number, to: number, content: string | number, anchor = 'middle') =>
    `<text x="${at.toFixed(1)}" y="${to.toFixed(1)}" text-anchor="${anchor}">${content}</text>`;
  const line = (points: readonly Point[], colour: string, dashed = false) => {
    const path = points.map(({ step, loss }) => `${x(step).toFixed(1)},${y(loss).toFixed(1)}`).join(' ');
    return `<polyline points="${path}" fill="none" stroke="${colour}" stroke-width="2"${dashed ? ' stroke-dasharray="5 4"' : ''}/>`;
  };
  const lossTicks = ticks(low, high, 0.5).map(
    (value) =>
      `<path d="M${left} ${y(value).toFixed(1)}H${width - right}" stroke="#e9ecef"/>${text(left - 8, y(value) + 4, value.toFixed(1), 'end')}`,
  );
  const stepTicks = ticks(0, last, niceStep(last / 6)).map((value) => text(x(value), height - bottom + 18, value));
  const legend = [
    ['training', COLOURS.train],
    ['held out', COLOURS.heldOut],
    ['counting pairs', COLOURS.baseline],
  ].map(([name, colour], i) => {
    const at = top + 20 + 18 * i;
    return `<path d="M${width - 150} ${at - 4}h20" stroke="${colour}" stroke-width="2"/>${text(width - 124, at, name, 'start')}`;
  });
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" font-family="sans-serif" font-size="12" fill="#495057">`,
    '<title>Loss over steps: training and held-out text</title>',
    `<rect width="${width}" height="${height}" fill="#fff"/>`,
    ...lossTicks,
    ...stepTicks,
    `<path d="M${left} ${top}V${height - bottom}H${width - right}" fill="none" stroke="#adb5bd"/>`,
    line(
      [
        { step: 0, loss: baseline },
        { step: last, loss: baseline },
      ],
      COLOURS.baseline,
      true,
    ),
    line(train, COLOURS.train),
    line(heldOut, COLOURS.heldOut),
    ...legend,
    text((left + width - right) / 2, height - 8, 'step'),
    `<text transform="translate(14 ${(top + height - bottom) / 2}) rotate(-90)" text-anchor="middle">loss, nats a character</text>`,
    '</svg>',
    '',
  ].join('\n');
}

function ticks(low: number, high: number, step: number): number[] {
  return Array.from({ length: Math.floor((high - low) / step + 1e-9) + 1 }, (_, i) => low + i * step);
}

/** The next of 1, 2, 5, 10, 20, 50, .. */
function niceStep(atLeast: number): number {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, atLeast)));
  return power * ([1, 2, 5, 10].find((factor) => factor * power >= atLeast) ?? 10);
}
