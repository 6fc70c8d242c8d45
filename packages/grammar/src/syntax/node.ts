/** Context-free grammars: rules over terminals, which are regular languages. */
import { GrammarError } from '../errors';
import type { Expression } from '../regular/expression';

export type Node =
  | { readonly id: number; readonly kind: 'terminal'; readonly expression: Expression }
  | { readonly id: number; readonly kind: 'sequence' | 'either'; readonly items: readonly Node[] }
  | { readonly id: number; readonly kind: 'repeat'; readonly item: Node; readonly min: number; readonly max: number }
  | { readonly id: number; readonly kind: 'rule'; readonly rule: Rule }
  | DistinctNode;

/** Items of a list of which no two may be equal, such as the names in an object. */
export interface DistinctNode {
  readonly id: number;
  readonly kind: 'distinct';
  readonly heads: readonly DistinctHead[];
  readonly separator: Node;
  readonly min: number;
  readonly max: number;
}

/** What is compared, and what follows it. */
export interface DistinctHead {
  /** Of a quoted head the text that its JSON string stands for. */
  readonly language: Expression;
  readonly quoted: boolean;
  readonly tail: Node;
}

/** A body that may refer to itself. */
export interface Rule {
  /** For messages. */
  readonly name: string;
  body: Node;
  /** Filled in by {@link finish}. */
  nullable: boolean;
  productive: boolean;
}

let ids = 0;

const NOTHING: Node = { id: ++ids, kind: 'either', items: [] };
export const EPSILON: Node = { id: ++ids, kind: 'sequence', items: [] };

export function terminal(expression: Expression): Node {
  if (expression.kind === 'empty') return NOTHING;
  return expression.kind === 'epsilon' ? EPSILON : { id: ++ids, kind: 'terminal', expression };
}

export function sequence(...items: readonly Node[]): Node {
  if (items.includes(NOTHING)) return NOTHING;
  const parts = items.flatMap((item) => (item.kind === 'sequence' ? item.items : [item]));
  if (parts.length === 1) return parts[0];
  return parts.length === 0 ? EPSILON : { id: ++ids, kind: 'sequence', items: parts };
}

export function either(...items: readonly Node[]): Node {
  const parts = [...new Set(items.flatMap((item) => (item.kind === 'either' ? item.items : [item])))];
  if (parts.length === 1) return parts[0];
  return parts.length === 0 ? NOTHING : { id: ++ids, kind: 'either', items: parts };
}

export function repeat(item: Node, min: number, max: number): Node {
  if (max === 0 || item === EPSILON) return EPSILON;
  if (item === NOTHING) return min === 0 ? EPSILON : NOTHING;
  return min === 1 && max === 1 ? item : { id: ++ids, kind: 'repeat', item, min, max };
}

export function distinct(parts: Omit<DistinctNode, 'id' | 'kind'>): Node {
  const heads = parts.heads.filter(({ tail }) => tail !== NOTHING);
  if (parts.max === 0 || heads.length === 0) return parts.min === 0 ? EPSILON : NOTHING;
  return { ...parts, heads, id: ++ids, kind: 'distinct' };
}

export function newRule(name: string): Rule {
  return { name, body: NOTHING, nullable: false, productive: false };
}

export function ruleNode(rule: Rule): Node {
  return { id: ++ids, kind: 'rule', rule };
}

export function isNullable(node: Node): boolean {
  switch (node.kind) {
    case 'terminal':
      return node.expression.nullable;
    case 'sequence':
      return node.items.every(isNullable);
    case 'either':
      return node.items.some(isNullable);
    case 'repeat':
      return node.min === 0 || isNullable(node.item);
    case 'rule':
      return node.rule.nullable;
    case 'distinct':
      return node.min === 0;
  }
}

function isProductive(node: Node): boolean {
  switch (node.kind) {
    case 'terminal':
      return true;
    case 'sequence':
      return node.items.every(isProductive);
    case 'either':
      return node.items.some(isProductive);
    case 'repeat':
      return node.min === 0 || isProductive(node.item);
    case 'rule':
      return node.rule.productive;
    case 'distinct':
      return node.min === 0 || node.heads.some(({ tail }) => isProductive(tail));
  }
}

/**
 * Works out which rules can be met at all and which by the empty text; leaves out what cannot.
 * @throws GrammarError BAD_GRAMMAR for a rule that begins with itself
 */
export function finish(rules: readonly Rule[]): void {
  for (const rule of rules) rule.nullable = rule.productive = false;
  for (let changed = true; changed; ) {
    changed = false;
    for (const rule of rules) {
      const nullable = isNullable(rule.body);
      const productive = isProductive(rule.body);
      changed ||= nullable !== rule.nullable || productive !== rule.productive;
      rule.nullable = nullable;
      rule.productive = productive;
    }
  }
  for (const rule of rules) rule.body = rule.productive ? pruned(rule.body) : NOTHING;
  checkLeftRecursion(rules);
}

function pruned(node: Node): Node {
  switch (node.kind) {
    case 'terminal':
      return node;
    case 'sequence':
      return sequence(...node.items.map(pruned));
    case 'either':
      return either(...node.items.filter(isProductive).map(pruned));
    case 'repeat':
      return isProductive(node.item) ? repeat(pruned(node.item), node.min, node.max) : EPSILON;
    case 'rule':
      return node;
    case 'distinct': {
      const heads = node.heads.filter(({ tail }) => isProductive(tail));
      return distinct({ ...node, heads: heads.map((head) => ({ ...head, tail: pruned(head.tail) })) });
    }
  }
}

function checkLeftRecursion(rules: readonly Rule[]): void {
  const done = new Set<Rule>();
  const path: Rule[] = [];
  // With a stack of its own: chains of rules are as long as grammars are large.
  for (const start of rules) {
    if (done.has(start)) continue;
    const stack: { rule: Rule; below: Rule[] }[] = [{ rule: start, below: firstRules(start.body) }];
    path.push(start);
    while (stack.length > 0) {
      const top = stack[stack.length - 1];
      const next = top.below.pop();
      if (next === undefined) {
        stack.pop();
        path.pop();
        done.add(top.rule);
      } else if (path.includes(next)) {
        const circle = [...path.slice(path.indexOf(next)), next].map(({ name }) => name).join(' -> ');
        throw new GrammarError(
          'BAD_GRAMMAR',
          `A rule begins with itself (${circle}); write the repetition with * or +, or put what is repeated behind.`,
        );
      } else if (!done.has(next)) {
        stack.push({ rule: next, below: firstRules(next.body) });
        path.push(next);
      }
    }
  }
}

/** The rules that a text may begin with. */
function firstRules(node: Node): Rule[] {
  const found = new Set<Rule>();
  const visit = (part: Node): void => {
    if (part.kind === 'rule') found.add(part.rule);
    else if (part.kind === 'either') part.items.forEach(visit);
    else if (part.kind === 'repeat') visit(part.item);
    else if (part.kind === 'sequence') {
      for (const item of part.items) {
        visit(item);
        if (!isNullable(item)) return;
      }
    } else if (part.kind === 'distinct') {
      for (const { language, quoted, tail } of part.heads) if (!quoted && language.nullable) visit(tail);
    }
  };
  visit(node);
  return [...found];
}
