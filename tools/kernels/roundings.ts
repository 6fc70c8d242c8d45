/**
 * Products that a disassembly rounds wrongly. LLVM selects v_fma_mixlo_f16 for an f32 product that is rounded to f16, with
 * an addend of +0: a product of -0 becomes +0. `opaque` in kernels/include/x/convert.h keeps it from doing so. A real
 * multiply-add has a register or another constant there.
 */

const HEADING = /^(?:[0-9a-f]+ )?<([\w$.]+)>:/;
const MIXED = /^\s*(v_(?:fma|mad)_mix(?:lo|hi)?_f(?:16|32)) [^,]+, [^,]+, [^,]+, ([^\s/]+)/;

/** How many mixed multiply-adds with an addend of +0 each function has in the output of `llvm-objdump -d`; absent: none. */
export function zeroAddends(text: string): Map<string, number> {
  const found = new Map<string, number>();
  let current = '';
  for (const line of text.split('\n')) {
    current = HEADING.exec(line)?.[1] ?? current;
    if (MIXED.exec(line)?.[2] === '0') found.set(current, (found.get(current) ?? 0) + 1);
  }
  return found;
}
