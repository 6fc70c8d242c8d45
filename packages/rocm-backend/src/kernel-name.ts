/**
 * Names of kernels from their parts. A name is put together once and is the same string from then on: a fresh one would
 * have to be hashed before its kernel is found, which takes longer than the rest of the look-up.
 */
const names = new Map<string, Map<string, string>>();

/** `{base}_{part}`. Both are literals, entries of tables, dtypes or what this function gave, so there are few of them. */
export function kernelName(base: string, part: string): string {
  let ofBase = names.get(base);
  if (!ofBase) {
    ofBase = new Map();
    names.set(base, ofBase);
  }
  let name = ofBase.get(part);
  if (name === undefined) {
    name = `${base}_${part}`;
    ofBase.set(part, name);
  }
  return name;
}
