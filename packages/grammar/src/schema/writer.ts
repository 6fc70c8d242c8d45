/** Writes the grammar of the JSON texts that a schema allows. */
import type { Expression, Expressions } from '../regular/expression';
import {
  type DistinctHead,
  EPSILON,
  either,
  type Node,
  newRule,
  type Rule,
  ruleNode,
  sequence,
  terminal,
} from '../syntax/node';
import { Decimals } from '../text/decimal';
import { arrayNode } from './arrays';
import type { Case } from './case';
import type { Cases } from './cases';
import type { Condition } from './condition';
import { numberTexts } from './numbers';
import { type Members, objectNode } from './objects';

/**
 * White space between the parts of a JSON text: none, one space behind each comma and colon, what programs write (at most one space,
 * or a line break with an indentation, which a colon has not), or any up to some characters wherever JSON allows it.
 */
export type Whitespace = 'compact' | 'spaced' | 'pretty' | 'any';
export const WHITESPACES: readonly Whitespace[] = ['compact', 'spaced', 'pretty', 'any'];

/** Characters in one place, so that a text cannot go on with nothing else. */
const MOST_WHITESPACE = 64;
/** Behind a line break: twelve levels of two spaces. */
const MOST_INDENTATION = 24;

export interface WriterOptions {
  whitespace: Whitespace;
  /** Objects have none but the properties that some schema mentions, unless it says otherwise. */
  closed: boolean;
}

export class Writer {
  readonly rules: Rule[] = [];
  readonly decimals: Decimals;
  /** Texts of numbers by what they are. */
  readonly numbers = new Map<string, Expression>();
  readonly marks: Readonly<
    Record<'openList' | 'closeList' | 'open' | 'close' | 'comma' | 'colon' | 'space', Expression>
  >;
  private readonly known = new Map<Condition, Node>();

  constructor(
    readonly make: Expressions,
    readonly cases: Cases,
    readonly options: WriterOptions,
  ) {
    this.decimals = new Decimals(make);
    const { epsilon } = make;
    const one = make.repeat(make.literal(' '), 0, 1);
    const any = make.repeat(make.range(9, 10, 13, 13, 32, 32), 0, MOST_WHITESPACE);
    const indentation = make.repeat(make.range(9, 9, 32, 32), 0, MOST_INDENTATION);
    const line = make.sequence(make.repeat(make.literal('\r'), 0, 1), make.literal('\n'), indentation);
    // Beside brackets and behind commas; in front of commas and colons; behind colons.
    const { space, before, behind } = {
      compact: { space: epsilon, before: epsilon, behind: epsilon },
      spaced: { space: epsilon, before: epsilon, behind: make.literal(' ') },
      pretty: { space: make.either(one, line), before: one, behind: one },
      any: { space: any, before: any, behind: any },
    }[options.whitespace];
    this.marks = {
      space,
      openList: make.sequence(make.literal('['), space),
      closeList: make.sequence(space, make.literal(']')),
      open: make.sequence(make.literal('{'), space),
      close: make.sequence(space, make.literal('}')),
      comma: make.sequence(before, make.literal(','), options.whitespace === 'spaced' ? behind : space),
      colon: make.sequence(before, make.literal(':'), behind),
    };
  }

  /** The texts of the values that meet a condition. */
  node(condition: Condition): Node {
    const known = this.known.get(condition);
    if (known) return known;
    const rule = this.rule('value');
    const node = ruleNode(rule);
    this.known.set(condition, node);
    const cases = this.cases.of(condition);
    const texts = cases.flatMap((one) => (one.type === 'string' ? [one.language] : []));
    const parts = cases.filter(({ type }) => type !== 'string').map((one) => this.case(one));
    if (texts.length > 0) parts.push(this.terminal(this.quoted(this.make.either(...texts))));
    rule.body = either(...parts);
    return node;
  }

  rule(name: string): Rule {
    const rule = newRule(name);
    this.rules.push(rule);
    return rule;
  }

  /** A terminal, or nothing where no text belongs to it. */
  terminal(expression: Expression): Node {
    return this.make.isProductive(expression) ? terminal(expression) : either();
  }

  /** JSON strings that stand for the texts of a language. */
  quoted(language: Expression): Expression {
    return this.make.sequence(this.make.literal('"'), this.make.string(language));
  }

  /** Texts that are told apart in a list. */
  textHead(language: Expression): Pick<DistinctHead, 'language' | 'quoted'> {
    return { language, quoted: true };
  }

  get members(): Members {
    const { make, marks } = this;
    return {
      separator: marks.comma,
      key: (name) => make.sequence(make.literal(JSON.stringify(name)), marks.colon),
      before: EPSILON,
      head: (names) => this.textHead(names),
      behind: marks.colon,
      value: (condition) => this.node(condition),
    };
  }

  private case(one: Case): Node {
    switch (one.type) {
      case 'null':
        return terminal(this.make.literal('null'));
      case 'boolean':
        return terminal(this.make.literals(one.values.map(String)));
      case 'number':
        return this.terminal(numberTexts(this, one, false));
      case 'string':
        return this.terminal(this.quoted(one.language));
      case 'array':
        return sequence(terminal(this.marks.openList), arrayNode(this, one), terminal(this.marks.closeList));
      case 'object':
        return sequence(terminal(this.marks.open), objectNode(this, one), terminal(this.marks.close));
    }
  }
}
