/** The items of arrays. */

import { countTexts } from '../regular/count';
import type { Expression } from '../regular/expression';
import {
  type DistinctHead,
  distinct,
  EPSILON,
  either,
  type Node,
  repeat,
  ruleNode,
  sequence,
  terminal,
} from '../syntax/node';
import type { ArrayCase } from './case';
import { tooLarge, unsupported } from './complaints';
import type { Condition } from './condition';
import { numberTexts } from './numbers';
import type { Writer } from './writer';

/** Places in an array, times the counts of items that have to be told apart there. */
const MOST_STATES = 20_000;
/** Items of prefixItems that are one node within the other; more of them are rules behind each other. */
const MOST_NESTED = 128;
/** Least number of different items that is checked against how many there are. */
const MOST_COUNTED = 10_000;

/** What stands between the brackets. */
export function arrayNode(writer: Writer, of: ArrayCase): Node {
  if (of.unique !== undefined && of.max > 1) return uniqueItems(writer, of, of.unique);
  if (of.contains.length > 0) return containing(writer, of);
  const { prefix, rest, min, max } = of;
  const comma = terminal(writer.marks.comma);
  const length = Math.min(prefix.length, max);
  const item = rest === writer.cases.conditions.never ? either() : writer.node(rest);
  const more = sequence(comma, item);
  const [least, most] = [Math.max(0, min - length), max - length];
  let after: Node =
    length > 0
      ? repeat(more, least, most)
      : either(
          least === 0 ? EPSILON : either(),
          most > 0 ? sequence(item, repeat(more, Math.max(0, least - 1), most - 1)) : either(),
        );
  for (let i = length - 1; i >= 0; i--) {
    const present = sequence(i > 0 ? comma : EPSILON, writer.node(prefix[i]), after);
    after = i >= min ? either(EPSILON, present) : present;
    if (i > 0 && i % MOST_NESTED === 0) {
      const rule = writer.rule('items');
      rule.body = after;
      after = ruleNode(rule);
    }
  }
  return after;
}

/** Counts the items that meet `contains` on the way. */
function containing(writer: Writer, of: ArrayCase): Node {
  const { conditions } = writer.cases;
  const [contains, ...others] = of.contains;
  if (others.length > 0)
    unsupported(others[0].pointer, 'contains beside another contains cannot be enforced; put one of them elsewhere');
  if (contains.min > contains.max) return either();
  const isEndless = of.max === Number.POSITIVE_INFINITY;
  const last = isEndless ? Math.max(of.prefix.length, of.min) : of.max;
  // Counts that make a difference: none above the least where there is no most.
  const counts = contains.max === Number.POSITIVE_INFINITY ? contains.min : Math.min(contains.max, last);
  if ((last + 1) * (counts + 1) > MOST_STATES)
    tooLarge(
      contains.pointer,
      `contains with up to ${last} items and ${counts} of them counted are too many combinations`,
    );
  const comma = terminal(writer.marks.comma);
  const nodes = new Map<string, Node>();
  const at = (i: number, count: number, isFirst: boolean): Node => {
    const key = `${i} ${count} ${isFirst}`;
    const known = nodes.get(key);
    if (known) return known;
    const rule = writer.rule('items');
    const node = ruleNode(rule);
    nodes.set(key, node);
    const canEnd = i >= Math.min(of.min, last) && count >= contains.min;
    const parts: Node[] = canEnd ? [EPSILON] : [];
    if (i < last || isEndless) {
      const next = Math.min(i + 1, last);
      const item = of.prefix[i] ?? of.rest;
      const isCapped = contains.max === Number.POSITIVE_INFINITY;
      const separator = isFirst ? EPSILON : comma;
      const member = (condition: Condition, after: number) => {
        if (!writer.cases.isEmpty(condition))
          parts.push(sequence(separator, writer.node(condition), at(next, after, false)));
      };
      if (isCapped && count === counts) member(item, count);
      else {
        if (count < contains.max) member(conditions.all(item, contains.item), count + 1);
        member(isCapped ? item : conditions.all(item, conditions.not(contains.item)), count);
      }
    }
    rule.body = either(...parts);
    return node;
  };
  return at(0, 0, true);
}

/** Items that are not written twice: numbers, strings, booleans and null, each of which has one form. */
function uniqueItems(writer: Writer, of: ArrayCase, pointer: string): Node {
  const { make, cases } = writer;
  if (of.prefix.length > 0) unsupported(pointer, 'uniqueItems beside prefixItems cannot be enforced');
  if (of.contains.length > 0) unsupported(pointer, 'uniqueItems beside contains cannot be enforced');
  const texts: Expression[] = [];
  const plain: Expression[] = [];
  for (const one of cases.of(of.rest)) {
    if (one.type === 'string') texts.push(one.language);
    else if (one.type === 'number') plain.push(numberTexts(writer, one, true));
    else if (one.type === 'boolean') plain.push(make.literals(one.values.map(String)));
    else if (one.type === 'null') plain.push(make.literal('null'));
    else
      unsupported(
        pointer,
        `uniqueItems is enforced for strings, numbers, booleans and null, and the items may be ${one.type}s; say in items what they are`,
      );
  }
  const heads: DistinctHead[] = [];
  const add = (head: Pick<DistinctHead, 'language' | 'quoted'>) => {
    if (make.isProductive(head.language)) heads.push({ ...head, tail: EPSILON });
  };
  add(writer.textHead(make.either(...texts)));
  add({ language: make.either(...plain), quoted: false });
  if (of.min > MOST_COUNTED)
    tooLarge(pointer, `asks for ${of.min} different items; at most ${MOST_COUNTED} are possible`);
  const there = heads.reduce((sum, { language }) => sum + countTexts(make, language, of.min), 0);
  if (there < of.min) return either();
  return distinct({ heads, separator: terminal(writer.marks.comma), min: of.min, max: of.max });
}
