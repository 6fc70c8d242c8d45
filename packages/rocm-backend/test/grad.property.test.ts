/**
 * Every differentiable operation against central differences in f64, on every device: the slope of a weighted sum of the
 * result along random directions, operands being views of all kinds; the second derivative likewise, as the slope of the
 * first along another direction; and nothing is left alive afterwards.
 */
import { memoryStats, type Shape, scope, Tensor, Var } from '@x/core';
import { testDevices } from '@x/testing/devices';
import { runs } from '@x/testing/operands';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  CONVOLUTION,
  Draw,
  ELEMENTWISE,
  FUSED,
  type GradCase,
  INDEXING,
  PRODUCTS,
  REDUCING,
  RESAMPLING,
  VIEWS,
} from './grad-cases';

const STEP = 1e-5;
/** Central differences of values around 1 with this step keep about nine digits, second differences seven. */
const TOLERANCE = 2e-7;

describe.each(testDevices())('gradients on %s', (device) => {
  const families = { ELEMENTWISE, REDUCING, VIEWS, INDEXING, PRODUCTS, FUSED, CONVOLUTION, RESAMPLING };
  for (const [family, cases] of Object.entries(families)) {
    describe(family.toLowerCase(), () => {
      for (const [name, make] of Object.entries(cases)) {
        it(name, () => {
          fc.assert(
            fc.property(fc.integer({ min: 1, max: 2 ** 31 - 1 }), (seed) => {
              const before = memoryStats();
              scope(() => {
                const draw = new Draw(seed, device);
                checkCase(make(draw), draw);
              });
              expect(memoryStats()).toEqual(before);
            }),
            runs(12),
          );
        });
      }
    });
  }
});

function checkCase(given: GradCase, draw: Draw): void {
  const vars = given.shapes.map((shape) => Var.from(values(draw, given, shape), { device: draw.device, shape }));
  const views = vars.map(() => draw.int(0, 2));
  /** A weighted sum of the result, so that every element has a slope of its own. */
  let weights: Tensor | undefined;
  const loss = (operands = vars) =>
    scope(() => {
      const out = given.run(...operands.map((variable, i) => seen(variable, views[i])));
      weights ??= Tensor.from(randomDirection(draw, out.shape), { device: draw.device, shape: out.shape });
      return { out: out.mul(weights.toDtype(out.dtype)).sumAll(), weights };
    }).out;
  const directions = vars.map((variable) => randomDirection(draw, variable.shape));
  const others = vars.map((variable) => randomDirection(draw, variable.shape));

  const total = loss();
  const grads = total.backward({ createGraph: true });
  const first = vars.map((variable) => grads.get(variable));
  for (const [i, variable] of vars.entries()) {
    expect(first[i]?.shape).toEqual(variable.shape);
    expect(first[i]?.isContiguous()).toBe(true);
  }
  /** The slope of the loss along `others`, as a tensor when recorded. */
  const along = (found: (Tensor | undefined)[]) =>
    found
      .map((grad, i) => grad!.mul(Tensor.from(others[i], { device: draw.device, shape: vars[i].shape })).sumAll())
      .reduce((sum, part) => sum.add(part));

  // Constant slopes have a record that leads to no variable, or none.
  const slope = along(first);
  const secondGrads = slope.trackOp ? slope.backward() : undefined;
  const analytic = dot(first, directions);
  const second = dot(
    vars.map((variable) => secondGrads?.get(variable)),
    directions,
  );
  const at = (distance: number) => {
    vars.forEach((variable, i) => {
      moved(variable, directions[i], distance);
    });
    const value = loss();
    const found = value.backward();
    const result = { value: value.toScalarSync(), slope: along(vars.map((v) => found.get(v))).toScalarSync() };
    vars.forEach((variable, i) => {
      moved(variable, directions[i], -distance);
    });
    return result;
  };
  const [up, down] = [at(STEP), at(-STEP)];
  near((up.value - down.value) / (2 * STEP), analytic);
  if (given.linear) expect(Math.abs(second)).toBe(0);
  else near((up.slope - down.slope) / (2 * STEP), second);
  if (draw.next() < 0.3) checkNarrow(given, vars, loss);
}

/** Error of a gradient, relative to its norm or to 1. */
const NARROW = { f32: 1e-4, f16: 3e-2, bf16: 2e-1 } as const;

/** The same gradient in narrower dtypes; operands with kinks in f32 only, since closer values become equal. */
function checkNarrow(given: GradCase, vars: Var[], loss: (operands: Var[]) => Tensor): void {
  const wanted = loss(vars).backward();
  for (const dtype of given.kinked ? (['f32'] as const) : (['f32', 'f16', 'bf16'] as const)) {
    const narrow = vars.map((variable) => Var.fromTensor(variable.detach().toDtype(dtype)));
    const found = loss(narrow).backward();
    for (const [i, variable] of narrow.entries()) {
      const [expected, actual] = [wanted.get(vars[i])!, found.get(variable)!];
      expect(actual.dtype).toBe(dtype);
      const off = actual.toDtype('f64').sub(expected).norm().toScalarSync();
      const norm = expected.norm().toScalarSync();
      expect(off / Math.max(1, norm), `${dtype}: ${actual} for ${expected}`).toBeLessThan(NARROW[dtype]);
    }
  }
}

function near(numeric: number, analytic: number): void {
  const scale = Math.max(1, Math.abs(numeric), Math.abs(analytic));
  expect(Math.abs(numeric - analytic) / scale, `${analytic} against ${numeric}`).toBeLessThan(TOLERANCE);
}

/** The operand as it is, transposed twice through memory, or a part of something larger. */
function seen(variable: Tensor, view: number): Tensor {
  if (view === 0 || variable.rank === 0) return variable;
  if (view === 1) return variable.transpose(0, -1).contiguous().transpose(0, -1);
  return Tensor.cat([variable, variable], -1).narrow(-1, variable.dim(-1), variable.dim(-1));
}

function values(draw: Draw, { positive, kinked }: GradCase, shape: Shape): Float64Array {
  const count = shape.reduce((a, b) => a * b, 1);
  if (positive) return new Float64Array(count).map(() => 0.2 + 2 * draw.next());
  // Each in a hundredth of its own, some thousandths from its ends.
  if (kinked) return new Float64Array(count).map(() => (draw.fresh(-400, 400) + 0.2 + 0.6 * draw.next()) / 100);
  return new Float64Array(count).map(() => (draw.next() - 0.5) * 3);
}

function randomDirection(draw: Draw, shape: Shape): Float64Array {
  return new Float64Array(shape.reduce((a, b) => a * b, 1)).map(() => draw.next() * 2 - 1);
}

function moved(variable: Var, direction: Float64Array, distance: number): void {
  scope(() => {
    const step = Tensor.from(direction, { device: variable.device, shape: variable.shape });
    variable.set(variable.detach().add(step.mul(distance)));
  });
}

function dot(grads: (Tensor | undefined)[], directions: Float64Array[]): number {
  let sum = 0;
  grads.forEach((grad, i) => {
    grad?.toArraySync<Float64Array>().forEach((value, j) => {
      sum += value * directions[i][j];
    });
  });
  return sum;
}
