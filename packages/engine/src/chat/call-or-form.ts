/** An answer that is either calls of tools or a text with a form: the first token says which. */
import type { Constraint } from '../constraint';
import type { CallConstraint } from './call-constraint';

export interface CallTokens {
  /** Ids of the marks that begin calls. */
  open: readonly number[];
  /** Tokens that end an answer. */
  endIds: readonly number[];
  vocabSize: number;
}

export class CallOrForm implements Constraint {
  private kind: 'open' | 'calls' | 'form' = 'open';

  constructor(
    private readonly tokens: CallTokens,
    private readonly calls: CallConstraint,
    private readonly form: Constraint,
  ) {
    if (form.fork) this.fork = () => this.copy(form.fork!());
  }

  fork?: () => CallOrForm;

  get isFinished(): boolean {
    return this.kind === 'form' && this.form.isFinished === true;
  }

  mask(): Uint32Array | undefined {
    const { open, endIds, vocabSize } = this.tokens;
    // Behind calls more of them may come, but no text.
    if (this.kind === 'calls')
      return this.calls.mask() ?? withIds(new Uint32Array(Math.ceil(vocabSize / 32)), [...open, ...endIds]);
    const mask = this.form.mask();
    return this.kind === 'form' ? mask : mask && withIds(mask.slice(), open);
  }

  accept(id: number): void {
    if (this.kind === 'open') this.kind = this.tokens.open.includes(id) ? 'calls' : 'form';
    (this.kind === 'calls' ? this.calls : this.form).accept(id);
  }

  private copy(form: Constraint): CallOrForm {
    return Object.assign(new CallOrForm(this.tokens, this.calls.fork(), form), { kind: this.kind });
  }
}

function withIds(mask: Uint32Array, ids: readonly number[]): Uint32Array {
  for (const id of ids) mask[id >>> 5] |= 1 << (id & 31);
  return mask;
}
