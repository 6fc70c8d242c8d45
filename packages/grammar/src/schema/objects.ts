/**
 * The members of objects: declared properties in the order in which schemas name them, then those that are only required, then
 * others, whose names differ.
 */
import type { Expression } from '../regular/expression';
import { type DistinctHead, distinct, EPSILON, either, type Node, ruleNode, sequence, terminal } from '../syntax/node';
import type { ObjectCase } from './case';
import { tooLarge } from './complaints';
import type { Condition } from './condition';
import type { Writer } from './writer';

/** Items of a sequence that is given a rule of its own. */
const LONG_SEQUENCE = 64;
/** Places between properties, times the counts of properties that have to be told apart there. */
const MOST_STATES = 100_000;
/** Patterns whose combinations are told apart. */
const MOST_PATTERNS = 8;

/** How the members of an object are written. */
export interface Members {
  /** Between two of them. */
  readonly separator: Expression;
  /** A declared name with all that comes before its value. */
  key(name: string): Expression;
  /** Before another name, the texts of such names, and what stands between one and its value. */
  readonly before: Node;
  head(names: Expression): Pick<DistinctHead, 'language' | 'quoted'>;
  readonly behind: Expression;
  /** A value with all that belongs to it. @param name of a declared property */
  value(condition: Condition, name?: string): Node;
}

/** What stands between the braces. */
export function objectNode(writer: Writer, of: ObjectCase, members: Members = writer.members): Node {
  const { cases, make } = writer;
  const names = [...new Set([...of.groups.flatMap(({ properties }) => [...properties.keys()]), ...of.required])];
  const required = new Set(of.required);
  const declared = names
    .map((name) => ({ name, condition: cases.property(of, name), isRequired: required.has(name) }))
    .filter(({ condition, isRequired }) => isRequired || condition !== cases.conditions.never);
  const heads = otherNames(writer, of, names, members);
  const open = declared.length;
  // Counts that make a difference: none above the least where there is no most.
  const counted = of.max < Number.POSITIVE_INFINITY ? Math.min(of.max, open) : Math.min(of.min, open);
  if ((open + 1) * (counted + 1) > MOST_STATES)
    tooLarge(of.pointer, `minProperties or maxProperties with ${open} properties are too many combinations`);

  const others = (hasBefore: boolean, count: number): Node => {
    const min = Math.max(0, of.min - count);
    const max = of.max - count;
    const separator = sequence(terminal(members.separator), members.before);
    if (!hasBefore && members.before === EPSILON) return distinct({ heads, separator, min, max });
    const first = hasBefore ? separator : members.before;
    const some = sequence(first, distinct({ heads, separator, min: Math.max(1, min), max }));
    return min === 0 ? either(EPSILON, max > 0 ? some : either()) : max > 0 ? some : either();
  };
  // A sequence takes over the items of those in it: of thousands of required properties each would copy all that follow.
  const apart = (node: Node): Node => {
    if (node.kind !== 'sequence' || node.items.length < LONG_SEQUENCE) return node;
    const rule = writer.rule('members');
    rule.body = node;
    return ruleNode(rule);
  };
  /** What may follow after this many declared properties, by count and whether there was one. */
  let after = table(counted, (hasBefore, count) => others(hasBefore, count));
  for (const { name, condition, isRequired } of declared.reverse()) {
    const key = members.key(name);
    const first = terminal(key);
    const next = terminal(make.sequence(members.separator, key));
    const value = members.value(condition, name);
    const behind = after;
    after = table(counted, (hasBefore, count) => {
      const isFull = count + 1 > of.max;
      const more = behind(true, Math.min(count + 1, counted));
      const present = isFull ? either() : sequence(hasBefore ? next : first, value, apart(more));
      if (isRequired) return present;
      // A rule, because what follows stands behind both.
      const rule = writer.rule('members');
      rule.body = either(present, behind(hasBefore, count));
      return ruleNode(rule);
    });
  }
  return after(false, 0);
}

/** All entries, made at once: what is asked for later is there, however long the chain of tables. */
function table(counted: number, make: (hasBefore: boolean, count: number) => Node) {
  const [first, later] = [false, true].map((hasBefore) =>
    Array.from({ length: counted + 1 }, (_, count) => make(hasBefore, count)),
  );
  return (hasBefore: boolean, count: number): Node => (hasBefore ? later : first)[count];
}

/** Names that are not declared, by what their values have to meet. */
function otherNames(writer: Writer, of: ObjectCase, declared: readonly string[], members: Members): DistinctHead[] {
  const { make, cases, options } = writer;
  const { conditions, anyText } = cases;
  const patterns = of.groups.flatMap((group) => group.patterns.map((pattern) => ({ ...pattern, group })));
  const sources = [...new Set(patterns.map(({ source }) => source))];
  if (sources.length > MOST_PATTERNS)
    tooLarge(of.pointer, `has ${sources.length} patterns of names; at most ${MOST_PATTERNS} are told apart`);
  const free = make.both(anyText, make.not(make.literals(declared)), ...of.names.map((name) => cases.textsOf(name)));
  const byCondition = new Map<Condition, Expression[]>();
  for (let subset = 0; subset < 2 ** sources.length; subset++) {
    const isMet = (source: string) => ((subset >>> sources.indexOf(source)) & 1) === 1;
    const language = make.both(
      free,
      ...sources.map((source) => {
        const { language } = patterns.find((pattern) => pattern.source === source)!;
        return isMet(source) ? language : make.not(language);
      }),
    );
    if (!make.isProductive(language)) continue;
    const isMentioned = of.groups.some(
      (group) => group.additional !== undefined || group.patterns.some(({ source }) => isMet(source)),
    );
    if (options.closed && of.groups.length > 0 && !isMentioned) continue;
    const condition = conditions.all(
      ...of.groups.map((group) => {
        const met = group.patterns.filter(({ source }) => isMet(source)).map(({ item }) => item);
        return met.length > 0 ? conditions.all(...met) : (group.additional ?? conditions.always);
      }),
    );
    if (condition === conditions.never) continue;
    byCondition.set(condition, [...(byCondition.get(condition) ?? []), language]);
  }
  return [...byCondition].flatMap(([condition, languages]) => {
    const head = members.head(make.either(...languages));
    const tail = () => sequence(terminal(members.behind), members.value(condition));
    return make.isProductive(head.language) ? [{ ...head, tail: tail() }] : [];
  });
}
