/** Checks in front of the methods of a class: every argument of its kind, and none too many. */
import type { Kind } from './check';
import { CandleError } from './errors';
import { show } from './show';

/** The arguments of a method in their order; a last name with `...` takes any number. */
export type Signature = Readonly<Record<string, Kind>>;

type Method = (this: unknown, ...args: unknown[]) => unknown;

/** The names of an object's methods. */
export type MethodsOf<T> = {
  [K in keyof T & string]: T[K] extends (...args: never[]) => unknown ? K : never;
}[keyof T & string];

/**
 * Puts a check in front of methods, each where it is defined: on `holder` or on what it inherits from.
 * @param prefix what messages have before the name of a method, such as `Tensor.`
 */
export function checkCalls(holder: object, signatures: Readonly<Record<string, Signature>>, prefix = ''): void {
  for (const [name, signature] of Object.entries(signatures)) {
    let owner = holder;
    while (!Object.hasOwn(owner, name)) owner = Object.getPrototypeOf(owner);
    const property = Object.getOwnPropertyDescriptor(owner, name)!;
    Object.defineProperty(owner, name, { ...property, value: checked(`${prefix}${name}`, property.value, signature) });
  }
}

/** `method` behind a check of its arguments; a method that returns a promise rejects. */
export function checked<M extends (...args: never[]) => unknown>(op: string, method: M, signature: Signature): M {
  const call = new Checks(op, signature);
  const guarded = guard(method as unknown as Method, call, Object.values(signature));
  Object.defineProperty(guarded, 'name', { value: method.name });
  Object.defineProperty(guarded, 'length', { value: method.length });
  return guarded as unknown as M;
}

const AsyncFunction = (async () => {}).constructor;

/** A function an arity: a list of arguments that is spread again costs as much as a view. */
function guard(method: Method, call: Checks, kinds: readonly Kind[]): Method {
  if (method instanceof AsyncFunction) {
    return async function (this: unknown, ...args) {
      call.check(args);
      return method.apply(this, args);
    };
  }
  const [first, second, third] = kinds;
  if (call.rest || kinds.length > 3) {
    return function (this: unknown, ...args) {
      call.check(args);
      return method.apply(this, args);
    };
  }
  if (kinds.length === 0) {
    return function (this: unknown, ...surplus) {
      if (surplus.length > 0) call.check(surplus);
      return method.call(this);
    };
  }
  if (kinds.length === 1) {
    return function (this: unknown, a, ...surplus) {
      if (surplus.length > 0 || !first.test(a)) call.check([a, ...surplus]);
      return method.call(this, a);
    };
  }
  if (kinds.length === 2) {
    return function (this: unknown, a, b, ...surplus) {
      if (surplus.length > 0 || !first.test(a) || !second.test(b)) call.check([a, b, ...surplus]);
      return method.call(this, a, b);
    };
  }
  return function (this: unknown, a, b, c, ...surplus) {
    if (surplus.length > 0 || !first.test(a) || !second.test(b) || !third.test(c)) call.check([a, b, c, ...surplus]);
    return method.call(this, a, b, c);
  };
}

class Checks {
  readonly #op: string;
  readonly #kinds: readonly (readonly [name: string, kind: Kind])[];
  /** The kind of the arguments behind the named ones, if there may be any. */
  readonly rest: Kind | undefined;

  constructor(op: string, signature: Signature) {
    const kinds = Object.entries(signature);
    this.#op = op;
    this.rest = kinds.at(-1)?.[0].startsWith('...') ? kinds.pop()?.[1] : undefined;
    this.#kinds = kinds;
  }

  /** @throws CandleError for the first argument that is not of its kind, and for one too many */
  check(args: readonly unknown[]): void {
    const count = this.#kinds.length;
    for (let i = 0; i < count; i++) {
      const [name, kind] = this.#kinds[i];
      if (!kind.test(args[i])) throw kind.refuse({ op: this.#op, name, value: args[i], args });
    }
    for (let i = count; i < args.length; i++) {
      const value = args[i];
      if (this.rest ? this.rest.test(value) : value === undefined) continue;
      if (this.rest) throw this.rest.refuse({ op: this.#op, name: `argument ${i + 1}`, value, args });
      const names = this.#kinds.map(([name]) => name).join(', ');
      throw new CandleError(
        'INVALID_ARGUMENT',
        `${this.#op}: argument ${i + 1} is ${show(value)} and has no meaning; write ${this.#op}(${names}).`,
      );
    }
  }
}
