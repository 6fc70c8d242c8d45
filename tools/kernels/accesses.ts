/**
 * Widths of the global memory accesses of kernels, counted in a disassembly, against what the contiguous path of an
 * elementwise kernel should have. The rule: a thread takes as many elements as fill 16 bytes of its widest operand, so that
 * operand moves 16 bytes an access, and every narrower one what that number of elements is in its type (cast_u8_f32: 4
 * bytes loaded, 16 stored; lt_f32: 16 loaded twice, 4 stored; eq_u8: 16 throughout).
 */

/** Number of accesses by their width in bytes. */
export interface Accesses {
  loads: Map<number, number>;
  stores: Map<number, number>;
}

const SIZES: Record<string, number> = {
  ...{ u8: 1, f8e4m3: 1, i16: 2, bf16: 2, f16: 2, u32: 4, i32: 4, f32: 4, i64: 8, f64: 8 },
};
const TYPE = Object.keys(SIZES).join('|');

/** Modules of elementwise kernels. */
export const ELEMENTWISE = ['affine', 'binary', 'cast', 'fill', 'ternary', 'unary'];

// Instruction suffixes of gfx11 and later (b128), and of the older targets (dwordx4), without d16 and hi marks.
const WIDTHS: Record<string, number> = {
  ...{ b128: 16, dwordx4: 16, b96: 12, dwordx3: 12, b64: 8, dwordx2: 8, b32: 4, dword: 4 },
  ...{ b16: 2, u16: 2, i16: 2, short: 2, ushort: 2, sshort: 2, b8: 1, u8: 1, i8: 1, byte: 1, ubyte: 1, sbyte: 1 },
};
const HEADING = /^(?:[0-9a-f]+ )?<([\w$.]+)>:/;
const ACCESS = /^\s*(?:global|flat|buffer)_(load|store)_(\w+)/;

/** Accesses of each function in the output of `llvm-objdump -d`. Throws on an access whose width it does not know. */
export function parseDisassembly(text: string): Map<string, Accesses> {
  const functions = new Map<string, Accesses>();
  let current: Accesses | undefined;
  for (const line of text.split('\n')) {
    const name = HEADING.exec(line)?.[1];
    if (name !== undefined) {
      current = { loads: new Map(), stores: new Map() };
      functions.set(name, current);
      continue;
    }
    const access = ACCESS.exec(line);
    if (access === null || current === undefined) continue;
    const suffix = access[2]!.replace(/^d16_hi_|^d16_|_d16_hi$|_d16$/, '');
    const width = WIDTHS[suffix];
    if (width === undefined) throw new Error(`"${line.trim()}": an access of unknown width; add it to accesses.ts.`);
    const counts = access[1] === 'load' ? current.loads : current.stores;
    counts.set(width, (counts.get(width) ?? 0) + 1);
  }
  return functions;
}

/** Operand types of an elementwise kernel by its name; undefined when the name follows none of the patterns. */
export function operandsOf(kernel: string): { inputs: string[]; output: string } | undefined {
  const match = (pattern: string) => new RegExp(`^${pattern}$`).exec(kernel);
  const cast = match(`cast_(${TYPE})_(${TYPE})`);
  if (cast !== null) return { inputs: [cast[1]!], output: cast[2]! };
  const where = match(`where_(${TYPE})_(${TYPE})`);
  if (where !== null) return { inputs: [where[1]!, where[2]!, where[2]!], output: where[2]! };
  const binary = match(`b(?:add|sub|mul|div|maximum|minimum|pow)_(${TYPE})`);
  if (binary !== null) return { inputs: [binary[1]!, binary[1]!], output: binary[1]! };
  const compare = match(`(?:eq|ne|lt|le|gt|ge)_(${TYPE})`);
  if (compare !== null) return { inputs: [compare[1]!, compare[1]!], output: 'u8' };
  const constant = match(`(?:fill|const_set)_(${TYPE})`);
  if (constant !== null) return { inputs: [], output: constant[1]! };
  const unary = match(`(?:affine|copy2d|u[a-z]+1?(?:_erf)?)_(${TYPE})`);
  if (unary !== null) return { inputs: [unary[1]!], output: unary[1]! };
  return undefined;
}

/** What is narrower than it should be: `widest load 8 bytes, 16 expected`; empty when nothing is. */
export function narrowAccesses(kernel: string, found: Accesses): string[] {
  // Not elementwise: lines of a tile go through shared memory, or elements are turned round.
  if (/^(transpose_b\d+(_wide)?|copy_back_b\d+)$/.test(kernel)) return [];
  const operands = operandsOf(kernel);
  if (operands === undefined) return ['no rule for this name in accesses.ts'];
  const inputs = operands.inputs.map((type) => SIZES[type]!);
  const output = SIZES[operands.output]!;
  const elements = 16 / Math.max(...inputs, output);
  const problems: string[] = [];
  const check = (what: string, counts: Map<number, number>, width: number, wanted: number) => {
    const have = counts.get(width) ?? 0;
    if (have >= wanted) return;
    const widest = Math.max(0, ...counts.keys());
    problems.push(
      `${have} of ${wanted} ${width}-byte ${what}${wanted === 1 ? '' : 's'}, the widest ${what} moves ${widest} bytes`,
    );
  };
  const widths = inputs.map((size) => size * elements);
  for (const width of new Set(widths)) {
    check('load', found.loads, width, widths.filter((other) => other === width).length);
  }
  check('store', found.stores, output * elements, 1);
  return problems;
}
