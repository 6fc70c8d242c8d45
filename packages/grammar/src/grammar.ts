/** A compiled grammar: what a schema, a regular expression, GBNF or choices become. */
import { GrammarError } from './errors';
import { Masks } from './masks';
import { Matcher } from './matcher';
import type { Expressions } from './regular/expression';
import { type Frame, Frames } from './syntax/frames';
import { finish, type Node, newRule, type Rule, ruleNode } from './syntax/node';
import type { Vocabulary } from './vocabulary';

/** Immutable; any number of texts may follow it at the same time. */
export class Grammar {
  readonly expressions: Expressions;
  /** The stacks of its automaton. */
  readonly frames: Frames;
  /** The stack with which a text begins. */
  readonly start: Frame;
  private readonly masks = new WeakMap<Vocabulary, Masks>();

  /**
   * @param rules every rule that `start` leads to
   * @throws GrammarError BAD_GRAMMAR for left recursion, UNSATISFIABLE where no text belongs to it
   */
  constructor(expressions: Expressions, start: Node, rules: readonly Rule[]) {
    this.expressions = expressions;
    const root = newRule('root');
    root.body = start;
    finish([...rules, root]);
    if (!root.productive)
      throw new GrammarError('UNSATISFIABLE', 'No text meets the conditions; loosen those that contradict each other.');
    this.frames = new Frames(expressions);
    this.start = this.frames.push(ruleNode(root), this.frames.bottom);
  }

  /** Follows a text from its beginning. */
  matcher(vocabulary: Vocabulary): Matcher {
    return new Matcher(this, vocabulary);
  }

  /** Whether a text belongs to the grammar. */
  accepts(text: string): boolean {
    const { expressions, frames, start } = this;
    const bytes = Buffer.from(text, 'utf8');
    const between = (from: number, to: number) => bytes.subarray(from, to);
    expressions.startWork();
    let threads = frames.begin(start);
    bytes.forEach((byte, position) => {
      threads = frames.advance(threads, byte, position, between);
    });
    return bytes.length === 0 ? start.canEnd : threads.some(({ canEnd }) => canEnd);
  }

  /** What is remembered for a vocabulary. */
  masksFor(vocabulary: Vocabulary): Masks {
    let masks = this.masks.get(vocabulary);
    if (!masks) {
      masks = new Masks(this.expressions, this.frames, vocabulary);
      this.masks.set(vocabulary, masks);
    }
    return masks;
  }
}
