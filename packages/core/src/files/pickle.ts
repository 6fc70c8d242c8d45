/**
 * Reading Python pickles as data: candle's pickle module (candle-core/src/pickle.rs). A pickle is a program for a stack
 * machine, and two of its instructions call what it names; so only the instructions in the table below exist here, the
 * names it may use are those that its reader lists, and what stands for them are functions of ours that build plain values.
 * Anything else is refused before it has any effect, as PyTorch's `weights_only=True` does.
 *
 * dicts become {@link PickleDict}, lists and tuples arrays, sets Sets, bytes Uint8Arrays, whole numbers beyond 2^53 bigints.
 * Lengths are checked against the file before anything is allocated. All that is pushed, remembered, copied and spelled out
 * comes out of one {@link PickleBudget}, so a pickle cannot need more memory than a multiple of its size on disk.
 */
import { FileFormatError } from '../errors';
import { type ByteSource, readBlockSync } from './source';

/** A dict, keys in order. Keys that are no strings or numbers count as different from each other. */
export class PickleDict extends Map<unknown, unknown> {}

/** What a name that a pickle asks for stands for. */
export interface PickleGlobal {
  /** `torch._utils._rebuild_tensor_v2`. */
  readonly name: string;
  /**
   * What calling it with these arguments gives; absent where it is only mentioned. Throws an Error for bad arguments.
   * Copies are taken from the budget before they are made.
   */
  call?(args: readonly unknown[], budget: PickleBudget): unknown;
}

/** An object of a class that means nothing here. Whatever the pickle does to it has no effect. */
export class PickleObject {
  /** Module and name of its class, or of the function that makes it. */
  readonly name: string;

  constructor(name: string) {
    this.name = name;
  }
}

/** Memory that a pickle may take, in bytes as estimated below. */
export class PickleBudget {
  readonly bytes: number;
  #left: number;

  /** @param size bytes of the pickle @param packed of them on disk, fewer when they are deflated */
  constructor(size: number, packed = size) {
    this.bytes = Math.min(MOST, FLOOR + PER_BYTE * Math.min(size, packed * RATIO));
    this.#left = this.bytes;
  }

  /** @throws Error when it is used up */
  take(bytes: number): void {
    this.#left -= bytes;
    if (this.#left < 0) throw new Error(`it needs more memory than the ${this.bytes} bytes that its size justifies`);
  }
}

/** Pickles of tensors take some 12 bytes for each of theirs. */
const PER_BYTE = 40;
/** What deflating saves at most before a pickle is suspicious. */
const RATIO = 4;
const FLOOR = 16 * 2 ** 20;
/** A million tensors. */
const MOST = 2 ** 30;
/** Estimates of what is on the stack, in a container, in the memo. */
const COST = { value: 16, item: 32, entry: 64, list: 96, dict: 256 };

export interface PickleReader {
  /** The thing of this module and name, or undefined to refuse the pickle. */
  findGlobal(module: string, name: string): PickleGlobal | undefined;
  /** What a persistent id stands for. Throws an Error for a bad one. */
  persistentLoad?(id: unknown): unknown;
}

/** Longest whole number that is read, in bytes. */
const MAX_LONG_BYTES = 1024;
/** Bytes fetched at once. */
const WINDOW = 256 * 1024;
/**
 * Runs the pickle that begins at `offset`; `end` is the place behind it.
 * @throws FileFormatError `PICKLE_REFUSED` for an instruction or a name outside the lists, `FILE_INVALID`, `FILE_TRUNCATED`
 */
export function readPickle(
  source: ByteSource,
  offset: number,
  reader: PickleReader,
  budget: PickleBudget,
): { value: unknown; end: number } {
  const machine = new Machine(source, offset, reader, budget);
  for (;;) {
    const at = machine.position;
    const code = machine.byte();
    const run = INSTRUCTIONS[code];
    if (!run)
      throw machine.refused(at, `uses the instruction 0x${code.toString(16)}, which files of tensors do not need`);
    try {
      run(machine);
      if (code === STOP) return { value: machine.pop(), end: machine.position };
    } catch (cause) {
      if (cause instanceof FileFormatError) throw cause;
      throw machine.invalid(at, (cause as Error).message, cause);
    }
  }
}

class Machine {
  stack: unknown[] = [];
  position: number;
  readonly budget: PickleBudget;
  readonly #memo = new Map<number, unknown>();
  readonly #marks: unknown[][] = [];
  readonly #source: ByteSource;
  readonly #reader: PickleReader;
  #window: Uint8Array = new Uint8Array(0);
  #windowStart = 0;

  constructor(source: ByteSource, offset: number, reader: PickleReader, budget: PickleBudget) {
    this.#source = source;
    this.#reader = reader;
    this.position = offset;
    this.budget = budget;
  }

  /** The next `count` bytes; valid until the next call. */
  take(count: number): Uint8Array {
    const { size } = this.#source;
    this.#require(count);
    if (this.position + count > this.#windowStart + this.#window.length) {
      const length = Math.min(Math.max(count, WINDOW), size - this.position);
      this.#window = readBlockSync(this.#source, this.position, length);
      this.#windowStart = this.position;
    }
    const start = this.position - this.#windowStart;
    this.position += count;
    return this.#window.subarray(start, start + count);
  }

  byte(): number {
    return this.take(1)[0];
  }

  /** A little-endian length or index of `bytes` bytes. */
  length(bytes: 1 | 2 | 4 | 8): number {
    const value = Number(unsigned(this.take(bytes)));
    if (Number.isSafeInteger(value)) return value;
    throw new Error(`a length is ${value}`);
  }

  text(count: number): string {
    this.#require(count);
    this.budget.take(2 * count);
    return new TextDecoder('utf-8', { fatal: true }).decode(this.take(count));
  }

  bytes(count: number): Uint8Array {
    this.#require(count);
    this.budget.take(COST.list + count);
    return this.take(count).slice();
  }

  #require(count: number): void {
    const { path, size } = this.#source;
    if (count <= size - this.position) return;
    const message = `${path}: the pickle goes on past the end of the file (byte ${size}); get the file again.`;
    throw new FileFormatError('FILE_TRUNCATED', message, { path, offset: this.position });
  }

  line(): string {
    const bytes: number[] = [];
    for (let byte = this.byte(); byte !== 0x0a; byte = this.byte()) {
      if (bytes.push(byte) > 1000) throw new Error('a name is longer than 1000 characters');
    }
    return new TextDecoder().decode(Uint8Array.from(bytes)).trimEnd();
  }

  push(value: unknown): void {
    this.budget.take(COST.value);
    this.stack.push(value);
  }

  pop(): unknown {
    if (this.stack.length === 0) throw new Error('its stack is empty');
    return this.stack.pop();
  }

  top(): unknown {
    if (this.stack.length === 0) throw new Error('its stack is empty');
    return this.stack[this.stack.length - 1];
  }

  /** Pushes a dict, list, tuple or set. */
  container(value: object): void {
    this.budget.take(Array.isArray(value) ? COST.list : COST.dict);
    this.push(value);
  }

  mark(): void {
    this.budget.take(COST.list);
    this.#marks.push(this.stack);
    this.stack = [];
  }

  /** What was pushed since the last mark. */
  popToMark(): unknown[] {
    const items = this.stack;
    const outer = this.#marks.pop();
    if (!outer) throw new Error('a mark is missing');
    this.stack = outer;
    return items;
  }

  /** Remembers the object on top, without a place behind all others. */
  memoPut(index = this.#memo.size): void {
    this.budget.take(COST.entry);
    this.#memo.set(index, this.top());
  }

  memoGet(index: number): void {
    if (!this.#memo.has(index)) throw new Error(`it asks for object ${index}, which it has not remembered`);
    this.push(this.#memo.get(index));
  }

  /** Sets pairs of key and value, all in one list. */
  setItems(dict: unknown, items: readonly unknown[]): void {
    if (dict instanceof PickleObject) return;
    if (!(dict instanceof PickleDict) || items.length % 2 !== 0) throw new Error('it sets items of what is no dict');
    this.budget.take((items.length / 2) * COST.entry);
    for (let i = 0; i < items.length; i += 2) dict.set(items[i], items[i + 1]);
  }

  append(list: unknown, items: readonly unknown[]): void {
    if (list instanceof PickleObject) return;
    if (!Array.isArray(list)) throw new Error('it appends to what is no list');
    this.budget.take(items.length * COST.item);
    for (const item of items) list.push(item);
  }

  add(set: unknown, items: readonly unknown[]): void {
    if (set instanceof PickleObject) return;
    if (!(set instanceof Set)) throw new Error('it adds items to what is no set');
    this.budget.take(items.length * COST.entry);
    for (const item of items) set.add(item);
  }

  global(module: string, name: string): void {
    const found = this.#reader.findGlobal(module, name);
    if (!found) throw this.refused(this.position, `asks for ${module}.${name}, which files of tensors do not need`);
    this.push(found);
  }

  call(): void {
    const args = this.pop();
    const callee = this.pop() as PickleGlobal | null;
    if (callee instanceof PickleObject) {
      this.push(callee);
      return;
    }
    if (typeof callee?.call !== 'function' || !Array.isArray(args)) throw new Error('it calls what is no function');
    this.budget.take(COST.dict);
    this.push(callee.call(args, this.budget));
  }

  persistentLoad(): void {
    if (!this.#reader.persistentLoad) throw new Error('it has persistent ids, which mean nothing here');
    this.push(this.#reader.persistentLoad(this.pop()));
  }

  refused(at: number, what: string): FileFormatError {
    return new FileFormatError(
      'PICKLE_REFUSED',
      `${this.#source.path}: the pickle ${what}; nothing was run. If you trust the file, load it in Python and save only its tensors, as a state dict or as safetensors.`,
      { path: this.#source.path, offset: at },
    );
  }

  invalid(at: number, what: string, cause?: unknown): FileFormatError {
    return new FileFormatError(
      'FILE_INVALID',
      `${this.#source.path}: the pickle is damaged at byte ${at}: ${what}; get the file again.`,
      { path: this.#source.path, offset: at, cause },
    );
  }
}

function unsigned(bytes: Uint8Array): bigint {
  const digits = Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0'));
  return BigInt(`0x0${digits.reverse().join('')}`);
}

/** A whole number in two's complement, a bigint only where a double is not exact. */
function signed(bytes: Uint8Array): number | bigint {
  const value = BigInt.asIntN(bytes.length * 8, unsigned(bytes));
  return Number.isSafeInteger(Number(value)) ? Number(value) : value;
}

function longOf(machine: Machine, count: number): number | bigint {
  if (count > MAX_LONG_BYTES) throw new Error(`a whole number has ${count} bytes`);
  machine.budget.take(count);
  return signed(machine.take(count));
}

const tupleOf = (count: number) => (m: Machine) => {
  if (m.stack.length < count) throw new Error('its stack is empty');
  m.container(m.stack.splice(m.stack.length - count, count));
};

const STOP = 0x2e;

/** All instructions that exist, by their code; protocols 2 to 4, as `torch.save` writes them. */
const INSTRUCTIONS: Readonly<Record<number, ((m: Machine) => void) | undefined>> = {
  // STOP: nothing to do but to end
  [STOP]: () => {},
  // PROTO
  128: (m) => {
    const version = m.byte();
    if (version > 5) throw new Error(`protocol ${version} is unknown`);
  },
  // FRAME: a hint to read this many bytes at once
  149: (m) => void m.take(8),
  // MARK, POP, POP_MARK
  40: (m) => m.mark(),
  48: (m) => void m.pop(),
  49: (m) => void m.popToMark(),
  // NONE, NEWTRUE, NEWFALSE
  78: (m) => m.push(null),
  136: (m) => m.push(true),
  137: (m) => m.push(false),
  // BININT, BININT1, BININT2, LONG1, LONG4, BINFLOAT
  74: (m) => m.push(signed(m.take(4))),
  75: (m) => m.push(m.byte()),
  77: (m) => m.push(m.length(2)),
  138: (m) => m.push(longOf(m, m.byte())),
  139: (m) => m.push(longOf(m, m.length(4))),
  71: (m) => m.push(new DataView(Uint8Array.from(m.take(8)).buffer).getFloat64(0)),
  // BINUNICODE, SHORT_BINUNICODE, BINUNICODE8, and the strings of Python 2: BINSTRING, SHORT_BINSTRING
  88: (m) => m.push(m.text(m.length(4))),
  140: (m) => m.push(m.text(m.byte())),
  141: (m) => m.push(m.text(m.length(8))),
  84: (m) => m.push(m.text(m.length(4))),
  85: (m) => m.push(m.text(m.byte())),
  // BINBYTES, SHORT_BINBYTES, BINBYTES8
  66: (m) => m.push(m.bytes(m.length(4))),
  67: (m) => m.push(m.bytes(m.byte())),
  142: (m) => m.push(m.bytes(m.length(8))),
  // EMPTY_TUPLE, TUPLE, TUPLE1, TUPLE2, TUPLE3
  41: (m) => m.container([]),
  116: (m) => {
    const items = m.popToMark();
    m.container(items);
  },
  133: tupleOf(1),
  134: tupleOf(2),
  135: tupleOf(3),
  // EMPTY_LIST, APPEND, APPENDS
  93: (m) => m.container([]),
  97: (m) => {
    const item = m.pop();
    m.append(m.top(), [item]);
  },
  101: (m) => {
    const items = m.popToMark();
    m.append(m.top(), items);
  },
  // EMPTY_DICT, SETITEM, SETITEMS
  125: (m) => m.container(new PickleDict()),
  115: (m) => {
    const value = m.pop();
    const key = m.pop();
    m.setItems(m.top(), [key, value]);
  },
  117: (m) => {
    const items = m.popToMark();
    m.setItems(m.top(), items);
  },
  // EMPTY_SET, ADDITEMS, FROZENSET
  143: (m) => m.container(new Set()),
  144: (m) => {
    const items = m.popToMark();
    m.add(m.top(), items);
  },
  145: (m) => {
    const items = m.popToMark();
    const set = new Set();
    m.add(set, items);
    m.container(set);
  },
  // BINPUT, LONG_BINPUT, MEMOIZE, BINGET, LONG_BINGET
  113: (m) => m.memoPut(m.byte()),
  114: (m) => m.memoPut(m.length(4)),
  148: (m) => m.memoPut(),
  104: (m) => m.memoGet(m.byte()),
  106: (m) => m.memoGet(m.length(4)),
  // GLOBAL, STACK_GLOBAL
  99: (m) => m.global(m.line(), m.line()),
  147: (m) => {
    const [module, name] = [m.pop(), m.pop()].reverse();
    if (typeof module !== 'string' || typeof name !== 'string') throw new Error('it asks for what is no name');
    m.global(module, name);
  },
  // REDUCE, NEWOBJ: calls of what GLOBAL gave
  82: (m) => m.call(),
  129: (m) => m.call(),
  // BUILD: attributes for the object below; ours have none that matter
  98: (m) => {
    m.pop();
    m.top();
  },
  // BINPERSID
  81: (m) => m.persistentLoad(),
};
