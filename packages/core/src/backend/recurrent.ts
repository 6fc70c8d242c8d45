/**
 * Layers that carry a state of fixed size from token to token, as a device may have them in kernels: short convolutions,
 * selective scans and the gated delta rule. `@x/nn` composes them of operations where not.
 */
import type { StoragePart } from './attention';
import type { BackendStorage } from './storage';

/**
 * Sequences one behind the other in the rows of a batch, and the places of their states in a pool. All u32 and contiguous;
 * no launch depends on what they hold. What a place says to read is never written in the same call.
 */
export interface StateSpans {
  sequences: number;
  /** Rows of all sequences together. */
  rows: number;
  /** [sequences + 1], the first row of each sequence, and behind the last one the number of rows. */
  starts: StoragePart;
  /** [sequences], the state that each begins with; one beyond the pool is zeros. */
  from: StoragePart;
  /** [sequences], where the state at its end goes; one beyond the pool is left out. */
  to: StoragePart;
}

/** A pool of states, contiguous, f32. */
export interface StatePoolPart {
  /** Of `slots` states. */
  states: StoragePart;
  slots: number;
}

/** Rows of f32 values that are contiguous and begin every `row` values. */
export interface RowsPart {
  part: StoragePart;
  row: number;
}

export interface CausalConv1dProblem {
  channels: number;
  /** Taps, of which the last one is the row itself. A state is [taps - 1, channels]. */
  taps: number;
  silu: boolean;
  /** [rows, channels] */
  x: RowsPart;
  /** [channels, taps] */
  weight: StoragePart;
  /** [channels] */
  bias?: StoragePart;
  /** Multiplies x: [rows, channels], whose rows begin as those of x do. */
  inGate?: StoragePart;
  /** Multiplies the result: the same. */
  outGate?: StoragePart;
}

export interface SelectiveScanProblem {
  channels: number;
  /** Values of a channel's state. A state is [channels, n]. */
  n: number;
  /** [rows, channels] */
  x: RowsPart;
  /** [rows, channels], before softplus. */
  dt: RowsPart;
  /** [channels] */
  dtBias: StoragePart;
  /** [channels, n] */
  a: StoragePart;
  /** [rows, n] */
  b: RowsPart;
  c: RowsPart;
  /** [channels] */
  d: StoragePart;
}

/** Heads whose states [valueDim, keyDim] decay by one number a row: exp(a · softplus(dt + dtBias)). A state is [heads, valueDim, keyDim]. */
export interface DecayProblem {
  heads: number;
  keyHeads: number;
  keyDim: number;
  valueDim: number;
  /** Head h has the keys of head h / group % keyHeads. */
  group: number;
  /** [rows, keyHeads · keyDim], what the states are read by; C of Mamba 2. */
  q: RowsPart;
  /** [rows, keyHeads · keyDim], what they are written by; B of Mamba 2. */
  k: RowsPart;
  /** [rows, heads · valueDim]; x of Mamba 2. */
  v: RowsPart;
  /** [rows, heads] */
  dt: RowsPart;
  /** [heads] */
  dtBias: StoragePart;
  /** [heads] */
  a: StoragePart;
}

export interface SsdProblem extends DecayProblem {
  /** [heads], times v is added to what is read. */
  d: StoragePart;
  /** Steps are cut to this range after softplus. */
  dtMin: number;
  dtMax: number;
}

export interface GatedDeltaRuleProblem extends DecayProblem {
  /** [rows, heads], the share of the difference that is written, before the sigmoid. */
  beta: RowsPart;
  /** Multiplies the queries. */
  scale: number;
  /** Added to the sums of squares by which queries and keys are divided. */
  eps: number;
}

/** A long short-term memory over rows of equally many steps. Everything is f32 and contiguous. */
export interface LstmProblem {
  rows: number;
  steps: number;
  hidden: number;
  /** From the last step to the first. */
  reversed: boolean;
  /** [rows, steps, 4 · hidden], what the inputs give to the input, forget, cell and output gate. */
  gates: StoragePart;
  /** [4 · hidden], added to them. */
  bias?: StoragePart;
  /** [4 · hidden, hidden], for what the state adds; f32, or bf16, with which outputs may be rounded to bf16 before they are multiplied. */
  weight: StoragePart;
  /** [rows, hidden], output and cell before the first step. */
  h: StoragePart;
  c: StoragePart;
}

/** The gradient of a long short-term memory, followed back through all steps. Everything is f32 and contiguous. */
export interface LstmBackwardProblem {
  rows: number;
  steps: number;
  hidden: number;
  reversed: boolean;
  /** What {@link RecurrentOps.lstmKept} has left. */
  kept: StoragePart;
  /** [4 · hidden, hidden] */
  weight: StoragePart;
  /** [rows, hidden], the cell before the first step. */
  c: StoragePart;
  /** [rows, steps, hidden], of the outputs. */
  grad: StoragePart;
}

export interface RecurrentOps {
  /** Whether {@link ssd} and {@link gatedDeltaRule} are for keys of this size. */
  supportsKeys(keyDim: number): boolean;
  /** Whether {@link selectiveScan} is for channels with so many values. */
  supportsScan(n: number): boolean;
  /** Whether {@link lstm} is for so many units. */
  supportsLstm(hidden: number): boolean;
  /** Outputs and cells of all steps, each [rows, steps, hidden]. */
  lstm(problem: LstmProblem): { h: BackendStorage; c: BackendStorage };
  /** As {@link lstm}: the outputs. `kept`, of 5 · rows · steps · hidden f32, is for {@link lstmBackward}. */
  lstmKept(problem: LstmProblem, kept: StoragePart): BackendStorage;
  /** [rows, steps, 4 · hidden]: the gradients of all that the gates were given. */
  lstmBackward(problem: LstmBackwardProblem): BackendStorage;
  /** [rows, channels] */
  causalConv1d(problem: CausalConv1dProblem, spans: StateSpans, pool: StatePoolPart): BackendStorage;
  /** [rows, channels] */
  selectiveScan(problem: SelectiveScanProblem, spans: StateSpans, pool: StatePoolPart): BackendStorage;
  /** [rows, heads · valueDim] */
  ssd(problem: SsdProblem, spans: StateSpans, pool: StatePoolPart): BackendStorage;
  /** [rows, heads · valueDim] */
  gatedDeltaRule(problem: GatedDeltaRuleProblem, spans: StateSpans, pool: StatePoolPart): BackendStorage;
}
