/**
 * Compiles a regular expression into a small program for linear-pattern.ts. The source is that of a JavaScript RegExp with
 * the flag u, which has checked its syntax. Sets of characters are left to RegExp, which decides about one character at once.
 */

/** What a step of a program does; `next` is the step after it unless it says otherwise. */
export type Step =
  | { op: 'character'; code: number }
  | { op: 'set'; has: (code: number) => boolean }
  /** Goes on at `first`, and where that fails at `second`; `index` counts the steps of this kind. */
  | { op: 'split'; first: number; second: number; index: number }
  | { op: 'jump'; to: number }
  /** Goes on if the steps from `body` on match here, or with `behind` the character before; or if not. */
  | { op: 'look'; body: number; behind: boolean; negated: boolean; next: number }
  | { op: 'start' }
  | { op: 'end' }
  | { op: 'match' };

export interface Program {
  readonly steps: readonly Step[];
  readonly splits: number;
}

type Node =
  | { kind: 'set'; source: string }
  | { kind: 'sequence'; nodes: Node[] }
  | { kind: 'either'; nodes: Node[] }
  | { kind: 'repeat'; node: Node; least: number; most: number; lazy: boolean }
  | { kind: 'look'; node: Node; behind: boolean; negated: boolean }
  | { kind: 'edge'; op: 'start' | 'end' };

/** Repetitions are written out, so a short expression can be a long program. */
const MOST_STEPS = 4000;
const MOST_DEPTH = 200;

/** @throws Error saying what of the expression is not supported */
export function compile(source: string): Program {
  return new Emitter().program(new Parser(source).parse());
}

const ESCAPE =
  /\\(?:[pP]\{[^}]*\}|u\{[0-9a-fA-F]+\}|u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|c[A-Za-z]|.)/suy;
const SET = /\[(?:[^\]\\]|\\.)*\]/suy;
const REPEAT = /(?:([*+?])|\{(\d+)(?:(,)(\d*))?\})(\??)/suy;
const GROUP = /\((?:\?(?:(:)|(<?)([=!])|<[^>]*>))?/suy;

class Parser {
  #at = 0;

  constructor(readonly source: string) {}

  parse(): Node {
    const node = this.#either(0);
    if (this.#at < this.source.length) throw new Error(`"${this.source[this.#at]}" at ${this.#at} closes nothing`);
    return node;
  }

  #either(depth: number): Node {
    if (depth > MOST_DEPTH) throw new Error(`groups are nested deeper than ${MOST_DEPTH}`);
    const nodes = [this.#sequence(depth)];
    while (this.source[this.#at] === '|') {
      this.#at++;
      nodes.push(this.#sequence(depth));
    }
    return nodes.length === 1 ? nodes[0] : { kind: 'either', nodes };
  }

  #sequence(depth: number): Node {
    const nodes: Node[] = [];
    while (this.#at < this.source.length && !'|)'.includes(this.source[this.#at])) {
      const node = this.#atom(depth);
      const repeat = this.#take(REPEAT);
      nodes.push(repeat === null ? node : repeated(node, repeat));
    }
    return nodes.length === 1 ? nodes[0] : { kind: 'sequence', nodes };
  }

  #atom(depth: number): Node {
    const first = this.source[this.#at];
    if (first === '(') {
      const [, , back, look] = this.#take(GROUP)!;
      const node = this.#either(depth + 1);
      if (this.source[this.#at++] !== ')') throw new Error('a group is not closed');
      return look === undefined ? node : { kind: 'look', node, behind: back === '<', negated: look === '!' };
    }
    if (first === '^' || first === '$') {
      this.#at++;
      return { kind: 'edge', op: first === '^' ? 'start' : 'end' };
    }
    if (first === '[') return { kind: 'set', source: this.#take(SET)![0] };
    if (first === '\\') {
      const [text] = this.#take(ESCAPE)!;
      if (/^\\[1-9k]/.test(text)) throw new Error(`it refers back to a group (${text}), for which time has no bound`);
      if (/^\\[bB]$/.test(text)) throw new Error(`${text} is not supported`);
      return { kind: 'set', source: text };
    }
    const character = String.fromCodePoint(this.source.codePointAt(this.#at)!);
    this.#at += character.length;
    return { kind: 'set', source: character };
  }

  #take(expression: RegExp): RegExpExecArray | null {
    expression.lastIndex = this.#at;
    const match = expression.exec(this.source);
    if (match) this.#at = expression.lastIndex;
    return match;
  }
}

function repeated(node: Node, [, sign, least, comma, most, lazy]: RegExpExecArray): Node {
  const counts: Record<string, [number, number]> = {
    '*': [0, Number.POSITIVE_INFINITY],
    '+': [1, Number.POSITIVE_INFINITY],
    '?': [0, 1],
  };
  const upper = comma === undefined ? Number(least) : most === '' ? Number.POSITIVE_INFINITY : Number(most);
  const [from, to] = sign === undefined ? [Number(least), upper] : counts[sign];
  return { kind: 'repeat', node, least: from, most: to, lazy: lazy === '?' };
}

class Emitter {
  readonly #steps: Step[] = [];
  readonly #sets = new Map<string, Step>();
  #splits = 0;

  program(node: Node): Program {
    this.#emit(node);
    this.#add({ op: 'match' });
    return { steps: this.#steps, splits: this.#splits };
  }

  #add<T extends Step>(step: T): T {
    if (this.#steps.length >= MOST_STEPS) throw new Error(`it takes more than ${MOST_STEPS} steps`);
    this.#steps.push(step);
    return step;
  }

  #split(): Extract<Step, { op: 'split' }> {
    return this.#add({ op: 'split', first: 0, second: 0, index: this.#splits++ });
  }

  get #here(): number {
    return this.#steps.length;
  }

  #emit(node: Node): void {
    if (node.kind === 'set') this.#add(this.#set(node.source));
    else if (node.kind === 'edge') this.#add({ op: node.op });
    else if (node.kind === 'sequence') for (const part of node.nodes) this.#emit(part);
    else if (node.kind === 'either') this.#emitEither(node.nodes);
    else if (node.kind === 'repeat') this.#emitRepeat(node);
    else {
      if (node.behind && !isOne(node.node)) throw new Error('it looks back at more than one character');
      const look = this.#add({ op: 'look', body: this.#here + 1, behind: node.behind, negated: node.negated, next: 0 });
      this.#emit(node.node);
      this.#add({ op: 'match' });
      look.next = this.#here;
    }
  }

  #emitEither(nodes: readonly Node[]): void {
    const jumps: { to: number }[] = [];
    nodes.forEach((node, i) => {
      const split = i + 1 < nodes.length ? this.#split() : undefined;
      if (split) split.first = this.#here;
      this.#emit(node);
      if (!split) return;
      jumps.push(this.#add({ op: 'jump', to: 0 }));
      split.second = this.#here;
    });
    for (const jump of jumps) jump.to = this.#here;
  }

  #emitRepeat({ node, least, most, lazy }: Extract<Node, { kind: 'repeat' }>): void {
    const choose = (split: { first: number; second: number }, inside: number, after: number) => {
      split.first = lazy ? after : inside;
      split.second = lazy ? inside : after;
    };
    const endless = most === Number.POSITIVE_INFINITY;
    for (let i = 0; i < least - (endless ? 1 : 0); i++) this.#emit(node);
    if (endless && least > 0) {
      const start = this.#here;
      this.#emit(node);
      choose(this.#split(), start, this.#here);
    } else if (endless) {
      const split = this.#split();
      const start = this.#here;
      this.#emit(node);
      this.#add({ op: 'jump', to: start - 1 });
      choose(split, start, this.#here);
    } else {
      const splits: [{ first: number; second: number }, number][] = [];
      for (let i = least; i < most; i++) {
        splits.push([this.#split(), this.#here]);
        this.#emit(node);
      }
      for (const [split, start] of splits) choose(split, start, this.#here);
    }
  }

  #set(source: string): Step {
    const known = this.#sets.get(source);
    if (known) return known;
    const step = setOf(source);
    this.#sets.set(source, step);
    return step;
  }
}

/** Whether a node is one character and nothing else. */
function isOne(node: Node): boolean {
  if (node.kind === 'either') return node.nodes.every(isOne);
  return node.kind === 'set' || (node.kind === 'sequence' && node.nodes.length === 1 && isOne(node.nodes[0]));
}

/** Characters of the basic plane are asked for once. */
const PLANE = 65536;

function setOf(source: string): Step {
  if (!/^[\\[.]/.test(source)) return { op: 'character', code: source.codePointAt(0)! };
  const one = new RegExp(`^${source}$`, 'u');
  const known = new Uint8Array(PLANE);
  const has = (code: number): boolean => {
    if (code >= PLANE) return one.test(String.fromCodePoint(code));
    if (known[code] === 0) known[code] = one.test(String.fromCodePoint(code)) ? 2 : 1;
    return known[code] === 2;
  };
  return { op: 'set', has };
}
