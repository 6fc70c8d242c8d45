/**
 * `instanceof` by a mark in place of the prototype: a program may hold this package as an ES module and as CommonJS, or
 * installed twice, and a tensor of one copy is a tensor to the other.
 */

/**
 * Marks the instances of a class and makes `value instanceof type` ask for the mark. Subclasses without a mark of their own
 * tell their instances as ever.
 * @param value the mark: copies with another one do not know the instances
 */
export function brand(type: { readonly prototype: object }, name: string, value: unknown = true): void {
  const key = Symbol.for(name);
  Object.defineProperty(type.prototype, key, { value });
  Object.defineProperty(type, Symbol.hasInstance, {
    value(this: unknown, instance: unknown): boolean {
      if (this !== type) return Function.prototype[Symbol.hasInstance].call(this as never, instance);
      return typeof instance === 'object' && instance !== null && (instance as Record<symbol, unknown>)[key] === value;
    },
  });
}
