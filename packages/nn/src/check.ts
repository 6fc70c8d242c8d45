/** Arguments of layers and functions that TypeScript would refuse: an error that names them, as those of tensors have. */
import { kinds, ShapeError, type Tensor } from '@x/core';

const VAR_BUILDER = kinds.kind(
  (value) => typeof (value as { getWithHintsSync?: unknown } | null | undefined)?.getWithHintsSync === 'function',
  'give a VarBuilder, as VarBuilder.fromVarMap(new VarMap())',
);

function checkEach(op: string, values: Readonly<Record<string, unknown>>, kind: kinds.Kind): void {
  for (const name in values) kinds.check(op, name, values[name], kind);
}

/** @throws CandleError `INVALID_ARGUMENT` for what is no tensor */
export function checkTensors(op: string, tensors: Readonly<Record<string, unknown>>): void {
  checkEach(op, tensors, kinds.TENSOR);
}

/** @throws CandleError `INVALID_ARGUMENT` for what is no object */
export function checkObjects(op: string, objects: Readonly<Record<string, unknown>>): void {
  checkEach(op, objects, kinds.OBJECT);
}

/** @throws CandleError `INVALID_ARGUMENT` for what is no whole number from 1 */
export function checkPositive(op: string, counts: Readonly<Record<string, unknown>>): void {
  checkEach(op, counts, kinds.POSITIVE);
}

/** @throws CandleError `INVALID_ARGUMENT` for what is no finite number */
export function checkNumbers(op: string, numbers: Readonly<Record<string, unknown>>): void {
  checkEach(op, numbers, kinds.FINITE);
}

/** Numbers of an optimiser, beside its switches. @throws CandleError `INVALID_ARGUMENT` */
export function checkParams(op: string, params: object): void {
  for (const [name, value] of Object.entries(params)) {
    if (typeof value !== 'boolean') kinds.check(op, name, value, kinds.FINITE);
  }
}

/** Options, or a number that stands for one of them. @throws CandleError `INVALID_ARGUMENT` */
export function checkConfig(op: string, config: unknown): void {
  kinds.check(op, 'config', config, typeof config === 'number' ? kinds.FINITE : kinds.OBJECT);
}

/** @throws ShapeError `DIM_OUT_OF_RANGE` for what is no whole number */
export function checkDim(op: string, dim: unknown): void {
  kinds.check(op, 'dim', dim, kinds.DIM);
}

/** @throws ShapeError `DIM_OUT_OF_RANGE` for what is no dimension of the tensor, also where that has no elements */
export function checkDimOf(op: string, { shape, rank }: Tensor, dim: number): void {
  checkDim(op, dim);
  if (dim >= -rank && dim < rank) return;
  const allowed = rank === 0 ? 'a scalar has no dimensions' : `use ${-rank}..${rank - 1}`;
  throw new ShapeError(
    'DIM_OUT_OF_RANGE',
    `${op}: dimension ${dim} does not exist in shape [${shape.join(', ')}]; ${allowed}.`,
  );
}

/** Sizes of a layer, and where its weights come from. @throws CandleError `INVALID_ARGUMENT` */
export function checkLayer(op: string, sizes: Readonly<Record<string, unknown>>, vb: unknown): void {
  checkEach(op, sizes, kinds.COUNT);
  kinds.check(op, 'vb', vb, VAR_BUILDER);
}
