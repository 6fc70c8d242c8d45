/** Schemas put together: all of some, any of some, not one. Equal ones are one object. */

export type Condition =
  | { readonly id: number; readonly kind: 'schema'; readonly value: Record<string, unknown>; readonly place: Place }
  | { readonly id: number; readonly kind: 'all' | 'any'; readonly items: readonly Condition[] }
  | { readonly id: number; readonly kind: 'not'; readonly item: Condition };

/** Where a schema stands. */
export interface Place {
  /** JSON Pointer from the root of the document. */
  readonly pointer: string;
  /** URI that references are relative to. */
  readonly base: string;
}

export class Conditions {
  private readonly combined = new Map<string, Condition>();
  private readonly schemas = new Map<object, Condition>();
  private ids = 0;
  /** Every value, and none. */
  readonly always: Condition = this.make('all', []);
  readonly never: Condition = this.make('any', []);

  /** @param value a schema that is no boolean */
  schema(value: Record<string, unknown>, place: Place): Condition {
    let condition = this.schemas.get(value);
    if (!condition) {
      condition = { id: ++this.ids, kind: 'schema', value, place };
      this.schemas.set(value, condition);
    }
    return condition;
  }

  all(...items: readonly Condition[]): Condition {
    return this.combine('all', items, this.always, this.never);
  }

  any(...items: readonly Condition[]): Condition {
    return this.combine('any', items, this.never, this.always);
  }

  not(item: Condition): Condition {
    if (item === this.always) return this.never;
    if (item === this.never) return this.always;
    if (item.kind === 'not') return item.item;
    const key = `!${item.id}`;
    const known = this.combined.get(key) ?? ({ id: ++this.ids, kind: 'not', item } as const);
    this.combined.set(key, known);
    return known;
  }

  private combine(kind: 'all' | 'any', items: readonly Condition[], neutral: Condition, final: Condition): Condition {
    const parts = new Set(items.flatMap((item) => (item.kind === kind ? item.items : [item])));
    parts.delete(neutral);
    if (parts.has(final)) return final;
    return parts.size === 1 ? [...parts][0] : this.make(kind, [...parts]);
  }

  /** Items keep their order, in which properties are written. */
  private make(kind: 'all' | 'any', items: readonly Condition[]): Condition {
    const key = `${kind}${items.map(({ id }) => id).join(',')}`;
    const known = this.combined.get(key) ?? { id: ++this.ids, kind, items };
    this.combined.set(key, known);
    return known;
  }
}
