/** Reads GBNF, the grammar notation of llama.cpp (its grammars/README.md). */
import { GrammarError } from '../errors';
import { type CharacterSet, characters, complement, MOST_CODE_POINT, union } from '../regular/characters';
import type { Expression, Expressions } from '../regular/expression';
import { either, type Node, newRule, type Rule, repeat, ruleNode, sequence, terminal } from '../syntax/node';

type Tree =
  | { readonly kind: 'set'; readonly set: CharacterSet }
  | { readonly kind: 'text'; readonly text: string }
  | { readonly kind: 'name'; readonly name: string; readonly line: number }
  | { readonly kind: 'sequence' | 'either'; readonly items: readonly Tree[] }
  | { readonly kind: 'repeat'; readonly item: Tree; readonly min: number; readonly max: number };

const MOST_LENGTH = 2 ** 20;
const MOST_DEPTH = 200;
/** Parts of a rule, with those of the rules that it names, up to which it becomes one terminal. */
const MOST_PARTS = 300;

/** @throws GrammarError BAD_GRAMMAR with the line, TOO_LARGE */
export function readGbnf(make: Expressions, source: string): { root: Node; rules: Rule[] } {
  const trees = new Parser(source).parse();
  return new Writer(make, trees).write();
}

class Parser {
  private at = 0;
  private depth = 0;

  constructor(private readonly source: string) {
    if (source.length > MOST_LENGTH)
      throw new GrammarError('TOO_LARGE', `The grammar has ${source.length} characters; give at most ${MOST_LENGTH}.`);
  }

  parse(): Map<string, Tree> {
    const rules = new Map<string, Tree>();
    this.skip();
    while (this.at < this.source.length) {
      const name = this.name();
      if (name === undefined || !this.take('::=')) this.fail('a rule such as root ::= "text" is expected here');
      if (rules.has(name)) this.fail(`the rule ${name} is there twice`);
      rules.set(name, this.either());
    }
    return rules;
  }

  private either(): Tree {
    if (++this.depth > MOST_DEPTH) this.fail(`more than ${MOST_DEPTH} groups are nested`);
    const items = [this.sequence()];
    while (this.take('|')) items.push(this.sequence());
    this.depth--;
    return items.length === 1 ? items[0] : { kind: 'either', items };
  }

  private sequence(): Tree {
    const items: Tree[] = [];
    for (;;) {
      const item = this.item();
      if (!item) return items.length === 1 ? items[0] : { kind: 'sequence', items };
      items.push(this.repeated(item));
    }
  }

  private item(): Tree | undefined {
    const next = this.source[this.at];
    if (next === '"') return this.text();
    if (next === '[') return { kind: 'set', set: this.set() };
    if (this.take('.')) return { kind: 'set', set: [[0, MOST_CODE_POINT]] };
    if (this.take('(')) {
      const item = this.either();
      if (!this.take(')')) this.fail('a ) is missing');
      return item;
    }
    const before = this.at;
    const { line } = this;
    const name = this.name();
    if (name === undefined) {
      if (next === undefined || next === '|' || next === ')') return undefined;
      return this.fail(`${JSON.stringify(next)} is not expected here`);
    }
    // The next rule begins.
    if (this.source.startsWith('::=', this.at)) {
      this.at = before;
      return undefined;
    }
    return { kind: 'name', name, line };
  }

  private repeated(item: Tree): Tree {
    let result = item;
    for (;;) {
      const range = this.range();
      if (!range) return result;
      const [min, max] = range;
      if (max < min) this.fail(`the limits of {${min},${max}} are the wrong way round`);
      result = { kind: 'repeat', item: result, min, max };
      if (++this.depth > MOST_DEPTH) this.fail(`more than ${MOST_DEPTH} repetitions follow each other`);
    }
  }

  private range(): [number, number] | undefined {
    if (this.take('*')) return [0, Number.POSITIVE_INFINITY];
    if (this.take('+')) return [1, Number.POSITIVE_INFINITY];
    if (this.take('?')) return [0, 1];
    if (!this.take('{')) return undefined;
    const match = /^\s*(\d{1,15})\s*(,\s*(\d{1,15})?\s*)?\}/.exec(this.source.slice(this.at, this.at + 60));
    if (!match) return this.fail('a repetition such as {2,5} is expected here');
    this.at += match[0].length;
    this.skip();
    const min = Number(match[1]);
    return [min, match[3] !== undefined ? Number(match[3]) : match[2] ? Number.POSITIVE_INFINITY : min];
  }

  private text(): Tree {
    this.at++;
    let text = '';
    for (;;) {
      const next = this.character('"');
      if (next === undefined) break;
      text += String.fromCodePoint(next);
    }
    this.skip();
    if (/\p{Surrogate}/u.test(text)) this.fail('half of a surrogate pair is no character');
    return { kind: 'text', text };
  }

  private set(): CharacterSet {
    this.at++;
    const isNegative = this.source[this.at] === '^';
    if (isNegative) this.at++;
    const parts: [number, number][] = [];
    for (;;) {
      const first = this.character(']');
      if (first === undefined) break;
      let last = first;
      if (this.source[this.at] === '-' && this.source[this.at + 1] !== ']') {
        this.at++;
        last = this.character(']') ?? first;
      }
      if (last < first) this.fail('the ends of a range of characters are the wrong way round');
      parts.push([first, last]);
    }
    this.skip();
    return isNegative ? complement(parts) : union(parts);
  }

  /** A character or an escape; undefined at the end, which is passed. */
  private character(end: string): number | undefined {
    const code = this.source.codePointAt(this.at);
    if (code === undefined || code === 10) return this.fail(`a ${end} is missing`);
    this.at += code > 0xffff ? 2 : 1;
    if (code === end.charCodeAt(0)) return undefined;
    if (code !== 0x5c) return code;
    const name = this.source[this.at++];
    const digits = { x: 2, u: 4, U: 8 }[name];
    if (digits) {
      const hex = this.source.slice(this.at, this.at + digits);
      this.at += digits;
      const value = /^[0-9a-fA-F]+$/.test(hex) && hex.length === digits ? Number.parseInt(hex, 16) : Number.NaN;
      return value <= MOST_CODE_POINT ? value : this.fail(`the escape \\${name}${hex} is no character`);
    }
    const short = { n: 10, r: 13, t: 9, '\\': 0x5c, '"': 0x22, '[': 0x5b, ']': 0x5d, '-': 0x2d, '^': 0x5e, '/': 0x2f }[
      name
    ];
    return short ?? this.fail(`the escape \\${name ?? ''} is not known`);
  }

  private name(): string | undefined {
    const match = /^[A-Za-z0-9_-]+/.exec(this.source.slice(this.at, this.at + 256));
    if (!match) return undefined;
    this.at += match[0].length;
    this.skip();
    return match[0];
  }

  private take(text: string): boolean {
    if (!this.source.startsWith(text, this.at)) return false;
    this.at += text.length;
    this.skip();
    return true;
  }

  /** White space and comments. */
  private skip(): void {
    for (;;) {
      const next = this.source[this.at];
      if (next === '#') {
        const end = this.source.indexOf('\n', this.at);
        this.at = end < 0 ? this.source.length : end;
      } else if (next === ' ' || next === '\t' || next === '\n' || next === '\r') this.at++;
      else return;
    }
  }

  private get line(): number {
    return this.source.slice(0, this.at).split('\n').length;
  }

  private fail(what: string): never {
    throw new GrammarError('BAD_GRAMMAR', `The grammar, line ${this.line}: ${what}.`);
  }
}

class Writer {
  private readonly rules = new Map<string, Rule>();
  private readonly expressions = new Map<string, Expression | undefined>();
  /** Parts of a rule with those that it names; Infinity where it comes back to itself. */
  private readonly parts = new Map<string, number>();

  constructor(
    private readonly make: Expressions,
    private readonly trees: ReadonlyMap<string, Tree>,
  ) {}

  write(): { root: Node; rules: Rule[] } {
    if (!this.trees.has('root'))
      throw new GrammarError('BAD_GRAMMAR', 'The grammar has no rule root; name the rule of the whole text so.');
    return { root: this.named('root', 1), rules: [...this.rules.values()] };
  }

  private named(name: string, line: number): Node {
    const tree = this.trees.get(name);
    if (!tree)
      throw new GrammarError('BAD_GRAMMAR', `The grammar, line ${line}: there is no rule ${name.slice(0, 80)}.`);
    let rule = this.rules.get(name);
    if (!rule) {
      rule = newRule(name);
      this.rules.set(name, rule);
      rule.body = this.node(tree);
    }
    return ruleNode(rule);
  }

  private node(tree: Tree): Node {
    if (this.size(tree) <= MOST_PARTS) {
      const expression = this.expression(tree);
      return this.make.isProductive(expression) ? terminal(expression) : either();
    }
    switch (tree.kind) {
      case 'name':
        return this.named(tree.name, tree.line);
      case 'sequence':
        return sequence(...tree.items.map((item) => this.node(item)));
      case 'either':
        return either(...tree.items.map((item) => this.node(item)));
      case 'repeat':
        return repeat(this.node(tree.item), tree.min, tree.max);
      default:
        return terminal(this.expression(tree));
    }
  }

  private expression(tree: Tree): Expression {
    const { make } = this;
    switch (tree.kind) {
      case 'set':
        return characters(make, tree.set);
      case 'text':
        return make.literal(tree.text);
      case 'sequence':
        return make.sequence(...tree.items.map((item) => this.expression(item)));
      case 'either':
        return make.either(...tree.items.map((item) => this.expression(item)));
      case 'repeat':
        return make.repeat(this.expression(tree.item), tree.min, tree.max);
      case 'name': {
        const known = this.expressions.get(tree.name) ?? this.expression(this.trees.get(tree.name)!);
        this.expressions.set(tree.name, known);
        return known;
      }
    }
  }

  private size(tree: Tree): number {
    if (tree.kind === 'set' || tree.kind === 'text') return 1;
    if (tree.kind === 'repeat') return 1 + this.size(tree.item);
    if (tree.kind !== 'name') return tree.items.reduce((sum, item) => sum + this.size(item), 1);
    const known = this.parts.get(tree.name);
    if (known !== undefined) return known;
    const body = this.trees.get(tree.name);
    if (!body) return Number.POSITIVE_INFINITY;
    this.parts.set(tree.name, Number.POSITIVE_INFINITY);
    const size = this.size(body);
    this.parts.set(tree.name, size);
    return size;
  }
}
