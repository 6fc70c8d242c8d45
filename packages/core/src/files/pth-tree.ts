/** Finding things in what a checkpoint's pickle gave: dicts, lists, tensors and plain values, by dotted names. */
import { PickleDict, PickleObject } from './pickle';
import type { TorchTensor } from './pth-objects';

/** A plain value of a checkpoint; whole numbers beyond 2^53 are bigints. */
export type PthScalar = null | boolean | number | bigint | string | Uint8Array;
/** Lists, tuples and sets of plain values are arrays. */
export type PthValue = PthScalar | PthScalar[];

/** `object`: of a class that is not read, such as a sparse tensor. */
export type PthKind = 'tensor' | 'value' | 'dict' | 'list' | 'object';

export function isTensor(value: unknown): value is TorchTensor {
  return typeof value === 'object' && value !== null && 'storage' in value;
}

/** The things of a dict or list with their names; keys of dicts that are no strings or whole numbers have none. */
export function children(level: unknown): [string, unknown][] {
  if (Array.isArray(level)) return level.map((item, i) => [String(i), item]);
  if (!(level instanceof PickleDict)) return [];
  const named = new Map<string, unknown>();
  for (const [key, value] of level) {
    // A text wins over the number that is written like it.
    if (typeof key === 'string' || (Number.isSafeInteger(key) && !level.has(String(key))))
      named.set(String(key), value);
  }
  return [...named];
}

/** What has this name directly on a level; undefined for nothing, which no pickle holds. */
function child(level: unknown, name: string): unknown {
  const index = /^(0|-?[1-9]\d{0,15})$/.test(name) ? Number(name) : undefined;
  if (Array.isArray(level)) return index === undefined ? undefined : level[index];
  if (!(level instanceof PickleDict)) return undefined;
  const found = level.get(name);
  return found !== undefined || index === undefined ? found : level.get(index);
}

/**
 * What has a dotted name: `opt.state.0.exp_avg`. Keys of dicts may have dots themselves, as names of weights do; the whole
 * name is tried first, then every way to cut it. The empty name is the level itself. Undefined when there is nothing.
 */
export function find(level: unknown, name: string): unknown {
  if (name === '') return level;
  // Levels may hold themselves, so each is looked at once for each rest of the name.
  const seen = new Map<unknown, Set<number>>();
  const search = (at: unknown, start: number): unknown => {
    const starts = seen.get(at) ?? new Set();
    if (starts.has(start)) return undefined;
    seen.set(at, starts.add(start));
    const whole = child(at, name.slice(start));
    if (whole !== undefined) return whole;
    for (let dot = name.indexOf('.', start); dot >= 0; dot = name.indexOf('.', dot + 1)) {
      const inner = child(at, name.slice(start, dot));
      const found = typeof inner === 'object' && inner !== null ? search(inner, dot + 1) : undefined;
      if (found !== undefined) return found;
    }
    return undefined;
  };
  return search(level, 0);
}

export function kindOf(value: unknown): PthKind {
  if (isTensor(value)) return 'tensor';
  if (value instanceof PickleObject) return 'object';
  if (value instanceof PickleDict) return 'dict';
  if (plain(value) !== undefined) return 'value';
  return Array.isArray(value) || value instanceof Set ? 'list' : 'object';
}

/** A plain value, or a copy of a list of some; undefined for anything else. */
export function plain(value: unknown): PthValue | undefined {
  if (isScalar(value)) return value;
  const items = Array.isArray(value) ? value : value instanceof Set ? [...value] : undefined;
  if (items?.every(isScalar)) return items.slice();
  // A class or a dtype by its name: torch.float16.
  const { name } = (value ?? {}) as { name?: unknown };
  return !(value instanceof PickleObject) && !isTensor(value) && typeof name === 'string' ? name : undefined;
}

function isScalar(value: unknown): value is PthScalar {
  return value === null || value instanceof Uint8Array || /^(boolean|number|bigint|string)$/.test(typeof value);
}
