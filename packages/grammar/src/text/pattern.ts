/**
 * Regular expressions of JavaScript (ECMA-262 with the flag `u`, and what it allows without) as languages. Groups and lazy
 * repetition mean nothing for what matches; backreferences, lookbehind and word boundaries are errors.
 */
import { GrammarError } from '../errors';
import { characters } from '../regular/characters';
import type { Expression, Expressions } from '../regular/expression';
import { type PatternNode, parsePattern } from './pattern-parser';

/** Copies of a repeated part that holds assertions. */
const MOST_COPIES = 64;

/** The texts that a pattern matches as a whole. @throws GrammarError BAD_PATTERN */
export function wholeMatch(make: Expressions, source: string, flags = ''): Expression {
  return new Compiler(make, source).compile(parsePattern(source, flags), make.epsilon, true);
}

/** The texts in which a pattern matches somewhere, as `RegExp.prototype.test` has it. @throws GrammarError BAD_PATTERN */
export function searchMatch(make: Expressions, source: string, flags = ''): Expression {
  const compiler = new Compiler(make, source);
  const node = parsePattern(source, flags);
  const inside = make.sequence(make.all, compiler.compile(node, make.all, false));
  return make.either(compiler.compile(node, make.all, true), inside);
}

class Compiler {
  constructor(
    private readonly make: Expressions,
    private readonly source: string,
  ) {}

  /**
   * @param rest what follows the part up to the end of the text
   * @param isStart whether the part stands where the text begins
   */
  compile(node: PatternNode, rest: Expression, isStart: boolean): Expression {
    const { make } = this;
    switch (node.kind) {
      case 'set':
        return make.sequence(characters(make, node.set), rest);
      case 'either':
        return make.either(...node.items.map((item) => this.compile(item, rest, isStart)));
      case 'sequence': {
        let start = isStart;
        const starts = node.items.map((item) => {
          const own = start;
          if (own && !isZeroWidth(item)) start = false;
          return own;
        });
        node.items.forEach((item, i) => {
          if (!starts[i] && isStart && holds(item, 'start') && node.items.slice(0, i).every(mayBeEmpty))
            this.refuse('has ^ behind a part that may be empty');
        });
        return node.items.reduceRight((after, item, i) => this.compile(item, after, starts[i]), rest);
      }
      case 'repeat':
        return this.repeat(node, rest, isStart);
      case 'start':
        return isStart ? rest : make.empty;
      case 'end':
        return rest.nullable ? make.epsilon : make.empty;
      case 'ahead': {
        const ahead = this.compile(node.item, make.all, isStart);
        return make.both(node.isNegative ? make.not(ahead) : ahead, rest);
      }
    }
  }

  private repeat({ item, min, max }: PatternNode & { kind: 'repeat' }, rest: Expression, isStart: boolean): Expression {
    const { make } = this;
    if (!['start', 'end', 'ahead'].some((kind) => holds(item, kind)))
      return make.sequence(make.repeat(this.compile(item, make.epsilon, false), min, max), rest);
    if (max > MOST_COPIES) this.refuse('repeats an assertion such as ^, $ or (?=...) without a small limit');
    let result = rest;
    for (let count = max; count > 0; count--) {
      const again = this.compile(item, result, isStart && count === 1);
      result = count > min ? make.either(rest, again) : again;
    }
    return result;
  }

  private refuse(what: string): never {
    throw new GrammarError('BAD_PATTERN', `The pattern ${shown(this.source)} ${what}; write it in another way.`);
  }
}

function shown(source: string): string {
  return `/${source.length > 80 ? `${source.slice(0, 80)}...` : source}/`;
}

function isZeroWidth(node: PatternNode): boolean {
  if (node.kind === 'sequence' || node.kind === 'either') return node.items.every(isZeroWidth);
  if (node.kind === 'repeat') return node.max === 0 || isZeroWidth(node.item);
  return node.kind !== 'set';
}

function mayBeEmpty(node: PatternNode): boolean {
  if (node.kind === 'sequence') return node.items.every(mayBeEmpty);
  if (node.kind === 'either') return node.items.some(mayBeEmpty);
  if (node.kind === 'repeat') return node.min === 0 || mayBeEmpty(node.item);
  return node.kind !== 'set';
}

function holds(node: PatternNode, kind: string): boolean {
  if (node.kind === kind) return true;
  if (node.kind === 'sequence' || node.kind === 'either') return node.items.some((item) => holds(item, kind));
  return (node.kind === 'repeat' || node.kind === 'ahead') && holds(node.item, kind);
}
