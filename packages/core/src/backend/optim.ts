/** What optimisers do to a variable in one kernel; without it their steps are composed of operations. */
import type { StoragePart } from './attention';
import type { Operand } from './operand';
import type { BackendStorage } from './storage';

/**
 * A step of Adam (Kingma and Ba 2015) or AdamW (Loshchilov and Hutter 2019) on `count` contiguous elements: value and gradient of one
 * float dtype, `first` and `second` of it too, but of f32 where it is bf16 or f16. What is remembered are sums that fade,
 * first = beta1 · first + g and second = beta2 · second + g², where g is the gradient and `decay` times the value; the value becomes
 * keep · value - rate · first / (√second · root + eps).
 */
export interface AdamProblem {
  count: number;
  value: StoragePart;
  grad: StoragePart;
  first: StoragePart;
  second: StoragePart;
  beta1: number;
  beta2: number;
  root: number;
  eps: number;
  rate: number;
  keep: number;
  decay: number;
}

export interface OptimOps {
  /** Changes the value and what is remembered, in place. Of bf16, f16, f32 and f64. */
  adam(problem: AdamProblem): void;
  /** The sum of all elements' squares, one element. All contiguous and either f32 or f64. */
  squaredNorm(operands: readonly Operand[]): BackendStorage;
  /** Elements times a number of their dtype on the device, f32 or f64; contiguous. */
  scaleBy(x: Operand, factor: StoragePart): BackendStorage;
}
