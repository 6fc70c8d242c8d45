/**
 * Which kernels of a module differ between two targets before anything is optimised: by the text of clang's intermediate code for
 * each, with all that it calls or reads. What the rest of the compiler makes of equal text differs only by the target itself.
 */
import { createHash } from 'node:crypto';

/** A module of LLVM's intermediate code as text, by what stands at its outermost level. */
interface Module {
  /** What is in the text beside definitions: lines by what they define, in order. */
  parts: { name: string | undefined; text: string; isKernel: boolean }[];
  byName: Map<string, string>;
  attributes: Map<string, string>;
  metadata: Map<string, string>;
}

const NAME = /^(?:define [^@]*)?([@%$](?:"[^"]*"|[\w.$-]+))/;
const REFERENCES = /[@%](?:"[^"]*"|[A-Za-z_.$-][\w.$-]*)/g;
/** What any two targets differ in. */
const TARGET = / "target-(?:cpu|features)"="[^"]*"/g;

function parse(text: string): Module {
  const module: Module = { parts: [], byName: new Map(), attributes: new Map(), metadata: new Map() };
  const lines = text.split('\n');
  for (let i = 0; i < lines.length; i++) {
    const first = lines[i]!;
    const begin = i;
    if (first.startsWith('define ')) while (lines[i] !== '}') i++;
    const part = lines.slice(begin, i + 1).join('\n');
    const attributes = /^attributes (#\d+) = (.*)$/.exec(first);
    const metadata = /^(!\d+) = (.*)$/.exec(first);
    if (attributes) module.attributes.set(attributes[1]!, attributes[2]!.replace(TARGET, ''));
    if (metadata) module.metadata.set(metadata[1]!, metadata[2]!);
    const name = attributes || metadata || first.startsWith('$') ? undefined : NAME.exec(first)?.[1];
    if (name !== undefined) module.byName.set(name, part);
    module.parts.push({ name, text: part, isKernel: /^define [^@]*\bamdgpu_kernel\b/.test(first) });
  }
  return module;
}

function referencesOf({ byName }: Module, name: string): string[] {
  return (byName.get(name)!.match(REFERENCES) ?? []).filter((other) => other !== name && byName.has(other));
}

/** The names that are needed for some, these included. */
function closureOf(names: readonly string[], references: (name: string) => string[]): Set<string> {
  const found = new Set(names);
  for (const name of found) for (const other of references(name)) found.add(other);
  return found;
}

/** A text in which the numbers of attributes and metadata, which say nothing by themselves, are what they stand for. */
function spelledOut(module: Module): (name: string) => string {
  const known = new Map<string, string>();
  const spell = (node: string): string => {
    const found = known.get(node);
    if (found !== undefined) return found;
    // A loop's own node leads back to itself.
    known.set(node, '!');
    const content = (module.metadata.get(node) ?? '').replace(/!\d+/g, spell);
    const hash = createHash('sha256').update(content).digest('base64');
    known.set(node, hash);
    return hash;
  };
  return (name) =>
    module.byName
      .get(name)!
      .replace(/#\d+/g, (group) => module.attributes.get(group) ?? group)
      .replace(/!\d+/g, spell);
}

function hashesOf(module: Module): Map<string, string> {
  const references = memoized((name) => referencesOf(module, name));
  const hash = memoized((name: string) => createHash('sha256').update(spelled(name)).digest('base64'));
  const spelled = spelledOut(module);
  return new Map(
    module.parts.flatMap(({ name, isKernel }) => {
      if (!isKernel || name === undefined) return [];
      const all = [...closureOf([name], references)].sort();
      return [[name, all.map((part) => `${part} ${hash(part)}`).join('\n')] as const];
    }),
  );
}

function memoized<T>(make: (name: string) => T): (name: string) => T {
  const known = new Map<string, T>();
  return (name) => {
    if (!known.has(name)) known.set(name, make(name));
    return known.get(name)!;
  };
}

/**
 * The kernels of a module that are not the same in another target's, and the module with these alone.
 * @param text of `clang -S -emit-llvm -Xclang -disable-llvm-passes`, as `other` for another target
 */
export function differingKernels(text: string, other: string): { kernels: string[]; text: string } {
  const module = parse(text);
  const others = hashesOf(parse(other));
  const differing = [...hashesOf(module)].flatMap(([name, hash]) => (others.get(name) === hash ? [] : [name]));
  const roots = [...differing, '@llvm.used', '@llvm.compiler.used'].filter((name) => module.byName.has(name));
  const kept = closureOf(roots, (name) => referencesOf(module, name));
  const isLeft = ({ name, text: part }: Module['parts'][number]) =>
    name === undefined || kept.has(name) || name.startsWith('%') || part.startsWith('declare');
  return {
    kernels: differing.map((name) => name.slice(1)),
    text: module.parts
      .filter(isLeft)
      .map((part) => part.text)
      .join('\n'),
  };
}
