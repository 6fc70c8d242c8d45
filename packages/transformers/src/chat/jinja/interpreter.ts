/**
 * Runs a parsed template as Python's Jinja would in the environment of transformers' `apply_chat_template` (sandboxed, no
 * changes of lists and dicts, `tojson`, `raise_exception`, `strftime_now`), within a budget. It only computes text: nothing of
 * the process can be reached from a template.
 */
import { TransformersError } from '../../errors';
import { type Budget, templateError } from './budget';
import { applyFilter, applyTest, contains } from './filters';
import { formatPercent, strftime } from './format';
import { methodOf } from './methods';
import type { CallNode, Node, Parameter } from './syntax';
import {
  type Arguments,
  Callable,
  compare,
  counted,
  type Dict,
  equals,
  isTruthy,
  iterate,
  listOf,
  Namespace,
  numberOf,
  PyFloat,
  str,
  Tuple,
  typeName,
  type Value,
} from './values';

/** Items of a `range`, as Jinja's sandbox has it. */
const MOST_RANGE = 100_000;

class Scope {
  private readonly variables = new Map<string, Value>();

  constructor(private readonly parent?: Scope) {}

  get(name: string): Value {
    for (let scope: Scope | undefined = this; scope; scope = scope.parent)
      if (scope.variables.has(name)) return scope.variables.get(name);
    return undefined;
  }

  set(name: string, value: Value): void {
    this.variables.set(name, value);
  }
}

/** How a block ended. */
type End = 'break' | 'continue' | undefined;

export class Interpreter {
  private readonly globals = new Scope();

  constructor(
    private readonly budget: Budget,
    now: Date,
  ) {
    const define = (name: string, call: (given: Arguments) => Value) =>
      this.globals.set(name, new Callable(name, call));
    define('range', ({ args }) => this.range(args));
    define('namespace', (given) => this.namespace(given));
    define('dict', ({ args: [from], named }) => {
      const entries = counted((from ?? new Map()) as Dict, budget);
      return new Map<Value, Value>([...entries, ...named]);
    });
    define('strftime_now', ({ args: [format] }) => strftime(now, str(format, budget)));
    define('raise_exception', ({ args: [message] }) => {
      throw new TransformersError('CHAT_REFUSED', `The chat template refuses these messages: ${str(message, budget)}`);
    });
    for (const [name, value] of [
      ['true', true],
      ['false', false],
      ['none', null],
    ] as const) {
      this.globals.set(name, value);
      this.globals.set(name[0].toUpperCase() + name.slice(1), value);
    }
  }

  /** @throws TransformersError BAD_CHAT_TEMPLATE, CHAT_REFUSED */
  run(body: readonly Node[], variables: ReadonlyMap<string, Value>): string {
    const scope = new Scope(this.globals);
    for (const [name, value] of variables) scope.set(name, value);
    try {
      return this.render(body, scope);
    } catch (cause) {
      if (cause instanceof RangeError) throw templateError('it, or what it makes, is nested too deeply', cause);
      throw cause;
    }
  }

  private render(body: readonly Node[], scope: Scope): string {
    const out: string[] = [];
    this.block(body, scope, out);
    return this.budget.text(out.join(''));
  }

  private block(body: readonly Node[], scope: Scope, out: string[]): End {
    for (const node of body) {
      const end = this.statement(node, scope, out);
      if (end) return end;
    }
    return undefined;
  }

  private statement(node: Node, scope: Scope, out: string[]): End {
    this.budget.spend(1);
    switch (node.type) {
      case 'Comment':
        return undefined;
      case 'Break':
        return 'break';
      case 'Continue':
        return 'continue';
      case 'If':
        return this.block(isTruthy(this.value(node.test, scope)) ? node.body : node.alternate, scope, out);
      case 'For':
        this.loop(node, scope, out);
        return undefined;
      case 'Set':
        this.assign(
          node.assignee,
          node.value ? this.value(node.value, scope) : this.render(node.body, new Scope(scope)),
          scope,
        );
        return undefined;
      case 'Macro':
        scope.set(node.name.value, this.macro(node.name.value, node.args, node.body, scope));
        return undefined;
      case 'CallStatement':
        out.push(str(this.callBlock(node, scope), this.budget));
        return undefined;
      case 'FilterStatement':
        out.push(str(this.filter(this.render(node.body, new Scope(scope)), node.filter, scope), this.budget));
        return undefined;
      default: {
        const text = str(this.value(node, scope), this.budget);
        out.push(this.budget.text(text));
        return undefined;
      }
    }
  }

  private loop(node: Node & { type: 'For' }, outer: Scope, out: string[]): void {
    const { iterable, loopvar } = node;
    const filtered = iterable.type === 'SelectExpression';
    let items = iterate(this.value(filtered ? iterable.lhs : iterable, outer), this.budget);
    if (filtered) {
      items = items.filter((item) => {
        const scope = new Scope(outer);
        this.assign(loopvar, item, scope);
        return isTruthy(this.value(iterable.test, scope));
      });
    }
    let isAny = false;
    for (const [i, item] of items.entries()) {
      this.budget.spend(1);
      const scope = new Scope(outer);
      scope.set('loop', this.loopVariable(items, i));
      this.assign(loopvar, item, scope);
      const end = this.block(node.body, scope, out);
      if (end === 'break') break;
      isAny ||= end === undefined;
    }
    // In Jinja only a turn that reaches its end counts.
    if (!isAny) this.block(node.defaultBlock, new Scope(outer), out);
  }

  private loopVariable(items: readonly Value[], i: number): Value {
    const cycle = new Callable('cycle', ({ args }) => args[i % args.length]);
    const { length } = items;
    return new Map<Value, Value>(
      Object.entries({
        index: i + 1,
        index0: i,
        revindex: length - i,
        revindex0: length - i - 1,
        first: i === 0,
        last: i === length - 1,
        length,
        previtem: items[i - 1],
        nextitem: items[i + 1],
        depth: 1,
        depth0: 0,
        cycle,
      }),
    );
  }

  private assign(target: Node, value: Value, scope: Scope): void {
    if (target.type === 'Identifier') scope.set(target.value, value);
    else if (target.type === 'TupleLiteral') {
      const items = iterate(value, this.budget);
      if (items.length !== target.value.length)
        throw templateError(`${items.length} values are given to ${target.value.length} variables`);
      for (const [i, part] of target.value.entries()) this.assign(part, items[i], scope);
    } else if (target.type === 'MemberExpression' && !target.computed && target.property.type === 'Identifier') {
      const object = this.value(target.object, scope);
      if (!(object instanceof Namespace)) throw templateError('only attributes of a namespace can be set');
      object.fields.set(target.property.value, value);
    } else throw templateError('something is set that is neither a variable nor an attribute of a namespace');
  }

  private macro(name: string, parameters: readonly Parameter[], body: readonly Node[], outer: Scope): Callable {
    return new Callable(name, (given) =>
      this.budget.call(() => {
        const scope = new Scope(outer);
        const named = new Map(given.named);
        for (const [i, parameter] of parameters.entries()) {
          const key = parameter.type === 'Identifier' ? parameter.value : parameter.key.value;
          const isGiven = i < given.args.length || named.has(key);
          const value = i < given.args.length ? given.args[i] : named.get(key);
          named.delete(key);
          const fallback = () => (parameter.type === 'Identifier' ? undefined : this.value(parameter.value, scope));
          scope.set(key, isGiven ? value : fallback());
        }
        scope.set('varargs', given.args.slice(parameters.length));
        const caller = named.get('caller');
        if (caller !== undefined) scope.set('caller', caller);
        scope.set('kwargs', new Map(named));
        return this.render(body, scope);
      }),
    );
  }

  private callBlock({ call, callerArgs, body }: Node & { type: 'CallStatement' }, scope: Scope): Value {
    const given = this.given(call.args, scope);
    given.named.set('caller', this.macro('caller', callerArgs ?? [], body, scope));
    return this.apply(this.value(call.callee, scope), given, call.callee);
  }

  private value(node: Node, scope: Scope): Value {
    this.budget.spend(1);
    const value = this.evaluate(node, scope);
    return typeof value === 'string' ? this.budget.text(value) : value;
  }

  private evaluate(node: Node, scope: Scope): Value {
    switch (node.type) {
      case 'Identifier':
        return scope.get(node.value);
      case 'StringLiteral':
      case 'IntegerLiteral':
        return node.value;
      case 'FloatLiteral':
        return new PyFloat(node.value);
      case 'ArrayLiteral':
        return node.value.map((item) => this.value(item, scope));
      case 'TupleLiteral':
        return new Tuple(node.value.map((item) => this.value(item, scope)));
      case 'ObjectLiteral':
        return new Map([...node.value].map(([key, item]) => [this.value(key, scope), this.value(item, scope)]));
      case 'MemberExpression':
        return this.member(node, scope);
      case 'CallExpression': {
        const callee = this.value(node.callee, scope);
        return this.apply(callee, this.given(node.args, scope), node.callee);
      }
      case 'FilterExpression':
        return this.filter(this.value(node.operand, scope), node.filter, scope);
      case 'TestExpression': {
        const result = applyTest(node.test.value, this.value(node.operand, scope), undefined, this.budget);
        return result !== node.negate;
      }
      case 'Ternary': {
        const chosen = isTruthy(this.value(node.condition, scope)) ? node.trueExpr : node.falseExpr;
        return this.value(chosen, scope);
      }
      case 'SelectExpression':
        return isTruthy(this.value(node.test, scope)) ? this.value(node.lhs, scope) : undefined;
      case 'UnaryExpression':
        return this.unary(node.operator.value, this.value(node.argument, scope));
      case 'BinaryExpression':
        return this.binary(node, scope);
      default:
        throw templateError(`${node.type} is not known here`);
    }
  }

  private given(nodes: readonly Node[], scope: Scope): Arguments {
    const given: Arguments = { args: [], named: new Map() };
    for (const node of nodes) {
      if (node.type === 'KeywordArgumentExpression') given.named.set(node.key.value, this.value(node.value, scope));
      else if (node.type === 'SpreadExpression')
        for (const item of iterate(this.value(node.argument, scope), this.budget)) given.args.push(item);
      else if (node.type === 'KeywordSpreadExpression') {
        const more = this.value(node.argument, scope);
        if (!(more instanceof Map)) throw templateError(`** is given a ${typeName(more)}`);
        for (const [key, value] of more) given.named.set(String(key), value);
      } else given.args.push(this.value(node, scope));
    }
    return given;
  }

  private apply(callee: Value, given: Arguments, node: Node): Value {
    if (callee instanceof Callable) return callee.call(given);
    throw templateError(`${describe(node)} is called, but it is a ${typeName(callee)}`);
  }

  private filter(value: Value, filter: Node & ({ type: 'Identifier' } | CallNode), scope: Scope): Value {
    if (filter.type === 'Identifier')
      return applyFilter(filter.value, value, { args: [], named: new Map() }, this.budget);
    if (filter.callee.type !== 'Identifier') throw templateError('a filter has no name');
    return applyFilter(filter.callee.value, value, this.given(filter.args, scope), this.budget);
  }

  private member({ object, property, computed }: Node & { type: 'MemberExpression' }, scope: Scope): Value {
    const of = this.value(object, scope);
    if (of === undefined)
      throw templateError(`${describe(object)} is undefined, and ${describe(property)} of it is asked for`);
    if (computed && property.type === 'SliceExpression') return this.slice(of, property, scope);
    const key = computed ? this.value(property, scope) : (property as { value: string | number }).value;
    const method = () => (typeof key === 'string' ? methodOf(of, key, this.budget) : undefined);
    if (of instanceof Namespace) return typeof key === 'string' ? of.fields.get(key) : undefined;
    if (of instanceof Map) {
      // As Jinja has it: a dot finds methods first, brackets find items first.
      if (computed) return of.has(key) ? of.get(key) : method();
      return method() ?? of.get(key);
    }
    if (typeof key === 'number') {
      if (typeof of === 'string') return Array.from(of).at(key);
      return listOf(of)?.at(key);
    }
    return method();
  }

  private slice(of: Value, node: Node & { type: 'SliceExpression' }, scope: Scope): Value {
    const items = typeof of === 'string' ? iterate(of, this.budget) : listOf(of);
    if (!items) throw templateError(`a ${typeName(of)} cannot be sliced`);
    const bound = (part: Node | undefined): number | undefined => {
      const value = part ? this.value(part, scope) : undefined;
      if (value === undefined || value === null || typeof value === 'number') return value ?? undefined;
      throw templateError(`a slice is given a ${typeName(value)}`);
    };
    const [start, stop, step = 1] = [bound(node.start), bound(node.stop), bound(node.step)];
    if (step === 0) throw templateError('a slice has a step of 0');
    const { length } = items;
    const clamp = (at: number, low: number, high: number) => Math.min(Math.max(at < 0 ? at + length : at, low), high);
    const result: Value[] = [];
    if (step > 0) {
      const end = clamp(stop ?? length, 0, length);
      for (let i = clamp(start ?? 0, 0, length); i < end; i += step) result.push(items[i]);
    } else {
      const end = stop === undefined ? -1 : clamp(stop, -1, length - 1);
      for (let i = clamp(start ?? length - 1, -1, length - 1); i > end; i += step) result.push(items[i]);
    }
    this.budget.spend(result.length);
    if (typeof of === 'string') return result.join('');
    return of instanceof Tuple ? new Tuple(result) : result;
  }

  private unary(operator: string, value: Value): Value {
    if (operator === 'not') return !isTruthy(value);
    const number = numberOf(value);
    if (number === undefined) throw templateError(`${operator} is given a ${typeName(value)}`);
    const result = operator === '-' ? -number : number;
    return value instanceof PyFloat ? new PyFloat(result) : result;
  }

  private binary(node: Node & { type: 'BinaryExpression' }, scope: Scope): Value {
    const { budget } = this;
    const operator = node.operator.value;
    const left = this.value(node.left, scope);
    if (operator === 'and') return isTruthy(left) ? this.value(node.right, scope) : left;
    if (operator === 'or') return isTruthy(left) ? left : this.value(node.right, scope);
    const right = this.value(node.right, scope);
    switch (operator) {
      case '==':
        return equals(left, right, budget);
      case '!=':
        return !equals(left, right, budget);
      case 'in':
        return contains(right, left, budget);
      case 'not in':
        return !contains(right, left, budget);
      case '<':
        return compare(left, right, budget) < 0;
      case '<=':
        return compare(left, right, budget) <= 0;
      case '>':
        return compare(left, right, budget) > 0;
      case '>=':
        return compare(left, right, budget) >= 0;
      case '~':
        return str(left, budget) + str(right, budget);
      default:
        return this.arithmetic(operator, left, right, node);
    }
  }

  private arithmetic(operator: string, left: Value, right: Value, node: Node & { type: 'BinaryExpression' }): Value {
    const { budget } = this;
    if (operator === '+') {
      if (typeof left === 'string' && typeof right === 'string') return left + right;
      const [list, more] = [listOf(left), listOf(right)];
      if (list && more) {
        budget.spend(list.length + more.length);
        return left instanceof Tuple ? new Tuple([...list, ...more]) : [...list, ...more];
      }
    }
    if (operator === '%' && typeof left === 'string') return formatPercent(left, right, budget);
    if (operator === '*' && typeof right === 'number' && typeof left === 'string') {
      const count = Math.max(0, right);
      budget.length(left.length * count);
      return left.repeat(count);
    }
    const [a, b] = [numberOf(left), numberOf(right)];
    if (a === undefined || b === undefined) {
      const missing = left === undefined ? node.left : right === undefined ? node.right : undefined;
      if (missing) throw templateError(`${describe(missing)} is undefined and cannot be used with ${operator}`);
      throw templateError(`${operator} is given a ${typeName(left)} and a ${typeName(right)}`);
    }
    const isFloat =
      left instanceof PyFloat || right instanceof PyFloat || operator === '/' || (operator === '**' && b < 0);
    const result = calculate(operator, a, b);
    return isFloat ? new PyFloat(result) : result;
  }

  private range(args: readonly Value[]): Value {
    const numbers = args.map((value) => {
      if (typeof value !== 'number') throw templateError(`range is given a ${typeName(value)}`);
      return value;
    });
    const [start, stop, step = 1] = numbers.length === 1 ? [0, numbers[0]] : numbers;
    const count = Math.max(0, Math.ceil((stop - start) / step));
    if (!(count <= MOST_RANGE)) throw templateError(`range makes more than ${MOST_RANGE} numbers`);
    this.budget.spend(count);
    return Array.from({ length: count }, (_, i) => start + i * step);
  }

  private namespace({ args: [from], named }: Arguments): Value {
    const result = new Namespace();
    if (from instanceof Map) for (const [key, value] of from) result.fields.set(String(key), value);
    for (const [key, value] of named) result.fields.set(key, value);
    return result;
  }
}

function calculate(operator: string, a: number, b: number): number {
  if (b === 0 && ['/', '//', '%'].includes(operator)) throw templateError('it divides by zero');
  switch (operator) {
    case '+':
      return a + b;
    case '-':
      return a - b;
    case '*':
      return a * b;
    case '/':
      return a / b;
    case '//':
      return Math.floor(a / b);
    case '%':
      return a - b * Math.floor(a / b);
    case '**':
      return a ** b;
    default:
      throw templateError(`the operator ${operator} is not known here`);
  }
}

/** How an expression reads, for errors. */
function describe(node: Node): string {
  if (node.type === 'Identifier') return node.value;
  if (node.type === 'StringLiteral') return `'${node.value.slice(0, 40)}'`;
  if (node.type === 'IntegerLiteral') return String(node.value);
  if (node.type !== 'MemberExpression') return 'an expression';
  const { object, property, computed } = node;
  return computed ? `${describe(object)}[${describe(property)}]` : `${describe(object)}.${describe(property)}`;
}
