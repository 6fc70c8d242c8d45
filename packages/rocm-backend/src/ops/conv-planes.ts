/**
 * How a convolution lies on planes (kernels/conv/planes.h): a plane is a channel of the image with zeros around it, cut into
 * parts of every `step`-th row and column, and whatever moves on along it reads neighbours. What stays in a tile then has an
 * offset in the plane: a tap of the kernel, or in `windows` an output.
 */

/** One axis of a convolution. */
export interface AxisSizes {
  out: number;
  /** Taps of the kernel. */
  k: number;
  padding: number;
  stride: number;
  dilation: number;
}

/** One axis of a plane: parts, elements of a part, the step that cuts it, and zeros before the image. */
export interface PlaneAxis {
  parts: number;
  size: number;
  step: number;
  before: number;
}

/** Where something begins on an axis of a plane. */
interface Place {
  part: number;
  at: number;
}

/** Outputs of an axis that read the same taps: every `step`-th from `start`. */
interface AxisPhase {
  start: number;
  count: number;
  taps: { tap: number; place: Place }[];
}

interface AxisPlan {
  plane: PlaneAxis;
  phases: AxisPhase[];
  /** From an output of a phase to the next in the result. */
  step: number;
}

/** Outputs that read the same taps, as a tile goes through them: rows as long as the plane's. */
export interface Phase {
  rows: number;
  columns: number;
  /** The first one in a channel of the result. */
  start: number;
  taps: { down: number; across: number; offset: number }[];
}

export interface PlanesPlan {
  down: PlaneAxis;
  across: PlaneAxis;
  /** Elements of a plane. */
  planeSize: number;
}

export interface TapsPlan extends PlanesPlan {
  phases: Phase[];
  /** In the result, from an output of a phase to the one below and the one beside it. */
  steps: { down: number; across: number };
}

export interface WindowsPlan extends PlanesPlan {
  /** The offset of each output in a plane. */
  places: number[];
}

/** Planes along which outputs move on; taps have offsets. */
export function tapsPlan(down: AxisSizes, across: AxisSizes, transposed: boolean): TapsPlan {
  const axis = transposed ? transposedAxis : directAxis;
  const [y, x] = [axis(down), axis(across)];
  const phases = y.phases.flatMap((rows) =>
    x.phases.map((columns) => ({
      rows: rows.count,
      columns: columns.count,
      start: rows.start * across.out + columns.start,
      taps: rows.taps.flatMap((i) =>
        columns.taps.map((j) => ({
          down: i.tap,
          across: j.tap,
          offset: offsetOf(y.plane, x.plane, i.place, j.place),
        })),
      ),
    })),
  );
  return { ...planes(y.plane, x.plane), phases, steps: { down: y.step * across.out, across: x.step } };
}

/** Planes along which taps move on, for kernels larger than the result; outputs have offsets. Not for transposed ones. */
export function windowsPlan(down: AxisSizes, across: AxisSizes): WindowsPlan {
  const [y, x] = [down, across].map(({ out, k, padding, stride, dilation }) => cut(out, stride, k, dilation, padding));
  const places = y.places.flatMap((row) => x.places.map((column) => offsetOf(y.plane, x.plane, row, column)));
  return { ...planes(y.plane, x.plane), places };
}

/** `count` positions `distance` apart, from each of which `length` elements are read that are `step` apart. */
function cut(count: number, distance: number, length: number, step: number, before: number) {
  const reach = (count - 1) * distance;
  const plane = { parts: Math.min(step, reach + 1), size: length + Math.floor(reach / step), step, before };
  const places = Array.from({ length: count }, (_, i): Place => {
    const part = (i * distance) % step;
    return { part, at: (i * distance - part) / step };
  });
  return { plane, places };
}

function directAxis({ out, k, padding, stride, dilation }: AxisSizes): AxisPlan {
  const { plane, places } = cut(k, dilation, out, stride, padding);
  return { plane, phases: [{ start: 0, count: out, taps: places.map((place, tap) => ({ tap, place })) }], step: 1 };
}

/** Output y reads input (y + padding - tap * dilation) / stride where that is whole: a phase a remainder of y. */
function transposedAxis({ out, k, padding, stride, dilation }: AxisSizes): AxisPlan {
  const found = Array.from({ length: Math.min(stride, out) }, (_, start) => {
    const taps = Array.from({ length: k }, (_, tap) => ({ tap, from: start + padding - tap * dilation }));
    const read = taps.filter(({ from }) => from % stride === 0).map(({ tap, from }) => ({ tap, from: from / stride }));
    return { start, count: Math.ceil((out - start) / stride), read };
  });
  const before = Math.max(0, ...found.flatMap(({ read }) => read.map(({ from }) => -from)));
  const size = Math.max(
    ...found.flatMap(({ count, read }) => [count, ...read.map(({ from }) => from + before + count)]),
  );
  const phases = found.map(({ start, count, read }) => ({
    start,
    count,
    taps: read.map(({ tap, from }) => ({ tap, place: { part: 0, at: from + before } })),
  }));
  return { plane: { parts: 1, size, step: 1, before }, phases, step: stride };
}

function planes(down: PlaneAxis, across: PlaneAxis): PlanesPlan {
  return { down, across, planeSize: down.parts * across.parts * down.size * across.size };
}

function offsetOf(down: PlaneAxis, across: PlaneAxis, row: Place, column: Place): number {
  return ((row.part * across.parts + column.part) * down.size + row.at) * across.size + column.at;
}
