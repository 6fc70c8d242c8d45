/** Arguments of calls as families of models write them: JSON, tags around names and values, or Gemma's notation. */
import { characters, complement, WHITE_SPACE } from './regular/characters';
import type { Expression, Expressions } from './regular/expression';
import type { Cases } from './schema/cases';
import { badSchema } from './schema/complaints';
import type { Condition } from './schema/condition';
import { type Members, objectNode } from './schema/objects';
import { Writer } from './schema/writer';
import { type DistinctHead, either, type Node, sequence, terminal } from './syntax/node';

export type ArgumentNotation =
  | { kind: 'json' }
  /**
   * `open` name `middle` value `close` for each argument, with white space between and where `middle` has a line break. Strings
   * stand there as they are, all else as JSON. `read` says how the parser of calls takes an argument's text: as it is, as it is but
   * for `null`, or as JSON where it is some.
   */
  | {
      kind: 'tags';
      open: string;
      middle: string;
      close: string;
      read(tool: string, argument: string): 'text' | 'text or null' | 'json';
    }
  /** Objects as `{name:value}`, strings between two `quote`s. */
  | { kind: 'quotes'; quote: string };

/** The texts of marks: single tokens, where a model has such. */
export type Mark = (text: string) => Expression;

const WHITE = { whitespace: 'pretty', closed: true } as const;

/** Writes the arguments of a tool. */
export interface ArgumentWriter {
  readonly writer: Writer;
  /** @param condition of an object */
  node(condition: Condition): Node;
}

export function argumentWriter(
  make: Expressions,
  cases: Cases,
  notation: ArgumentNotation,
  tool: string,
  mark: Mark,
): ArgumentWriter {
  if (notation.kind === 'tags') {
    const writer = new TagWriter(make, cases, notation, tool, mark);
    return { writer, node: (condition) => writer.tagged(condition) };
  }
  const writer =
    notation.kind === 'json' ? new Writer(make, cases, WHITE) : new QuoteWriter(make, cases, notation.quote, mark);
  return { writer, node: (condition) => writer.node(condition) };
}

/** Texts in which another one does not occur. */
function without(make: Expressions, text: string): Expression {
  return make.not(make.sequence(make.all, make.literal(text), make.all));
}

class TagWriter extends Writer {
  private readonly free: Expression;

  constructor(
    make: Expressions,
    cases: Cases,
    private readonly tags: Extract<ArgumentNotation, { kind: 'tags' }>,
    private readonly tool: string,
    private readonly mark: Mark,
  ) {
    super(make, cases, WHITE);
    // A value ends where its tag does, whatever stands around it.
    this.free = without(make, tags.close.trim());
  }

  override quoted(language: Expression): Expression {
    return super.quoted(this.make.both(language, this.free));
  }

  override textHead(language: Expression): Pick<DistinctHead, 'language' | 'quoted'> {
    return super.textHead(this.make.both(language, this.free));
  }

  /** All arguments, with white space before the first. */
  tagged(condition: Condition): Node {
    const { cases, marks } = this;
    const objects = cases.of(condition).flatMap((one) => (one.type === 'object' ? [one] : []));
    const members = this.argumentMembers();
    return sequence(terminal(marks.space), either(...objects.map((one) => objectNode(this, one, members))));
  }

  private argumentMembers(): Members {
    const { make, mark, marks, tags } = this;
    const between = make.sequence(
      ...tags.middle.split(/(\n)/).map((part) => (part === '\n' ? marks.space : mark(part))),
    );
    // A line break behind the name belongs to the tag: the parser takes one away.
    const middle = tags.middle.endsWith('>\n') ? mark(tags.middle) : between;
    return {
      separator: marks.space,
      key: (name) => {
        if (!/^[^\s<>](?:[^<>\n]*[^\s<>])?$/.test(name))
          badSchema(
            '',
            `the property ${JSON.stringify(name)} cannot be written between the tags of this model's calls`,
          );
        return make.sequence(mark(tags.open), make.literal(name), middle);
      },
      before: terminal(mark(tags.open)),
      head: (names) => ({ language: make.both(names, this.plainNames()), quoted: false }),
      behind: middle,
      value: (condition, name) => this.value(condition, name),
    };
  }

  private plainNames(): Expression {
    const { make } = this;
    const one = characters(make, complement([...WHITE_SPACE, [0x3c, 0x3c], [0x3e, 0x3e]]));
    return make.repeat(one, 1, Number.POSITIVE_INFINITY);
  }

  /** A value and the tag behind it. */
  private value(condition: Condition, name: string | undefined): Node {
    const { cases, make, tags } = this;
    const close = this.mark(tags.close);
    const read = name === undefined ? 'json' : tags.read(this.tool, name);
    const found = cases.of(condition);
    const strings = found.flatMap((one) => (one.type === 'string' ? [one.language] : []));
    const texts = make.both(make.either(...strings), this.free);
    const closed = (language: Expression) => this.terminal(make.sequence(language, close));
    if (read === 'json')
      return either(sequence(this.node(condition), terminal(close)), closed(make.both(texts, this.noJson())));
    if (read === 'text') return closed(texts);
    const hasNull = found.some(({ type }) => type === 'null');
    const space = make.repeat(characters(make, WHITE_SPACE), 0, Number.POSITIVE_INFINITY);
    const nulls = make.sequence(space, make.literal('null'), space);
    return closed(make.either(make.both(texts, make.not(nulls)), hasNull ? make.literal('null') : make.empty));
  }

  /** Texts that cannot be taken for JSON. */
  private noJson(): Expression {
    const { make } = this;
    const codes = Array.from('\t\n\r -0123456789"[{', (one) => one.charCodeAt(0)).sort((a, b) => a - b);
    const starts = make.range(...codes.flatMap((code) => [code, code]));
    const space = make.repeat(make.range(9, 10, 13, 13, 32, 32), 0, Number.POSITIVE_INFINITY);
    return make.both(
      make.not(make.sequence(starts, make.all)),
      make.not(make.sequence(make.literals(['true', 'false', 'null']), space)),
    );
  }
}

class QuoteWriter extends Writer {
  private readonly free: Expression;

  constructor(
    make: Expressions,
    cases: Cases,
    private readonly quote: string,
    private readonly mark: Mark,
  ) {
    super(make, cases, { whitespace: 'compact', closed: true });
    this.free = without(make, quote);
  }

  override quoted(language: Expression): Expression {
    const { make, mark, quote } = this;
    return make.sequence(mark(quote), make.both(language, this.free), mark(quote));
  }

  override textHead(language: Expression): Pick<DistinctHead, 'language' | 'quoted'> {
    return { language: this.quoted(language), quoted: false };
  }

  override get members(): Members {
    const { make, mark, quote } = this;
    const letter: readonly (readonly [number, number])[] = [
      [0x30, 0x39],
      [0x41, 0x5a],
      [0x5f, 0x5f],
      [0x61, 0x7a],
    ];
    const plain = make.repeat(characters(make, letter), 1, Number.POSITIVE_INFINITY);
    return {
      ...super.members,
      key: (name) => {
        if (/^\w+$/.test(name)) return make.literal(`${name}:`);
        if (name.includes(quote))
          badSchema('', `the property ${JSON.stringify(name)} cannot be written with the quotes of this model's calls`);
        return make.sequence(mark(quote), make.literal(name), mark(quote), make.literal(':'));
      },
      head: (names) => ({ language: make.both(names, plain), quoted: false }),
    };
  }
}
