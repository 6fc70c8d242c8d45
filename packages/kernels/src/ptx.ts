/**
 * The kernels of a PTX text one by one. The driver compiles all of a text when it is loaded, some hundred kernels of which a
 * program uses a few; a text with one of them, and the constants, shared memory and functions that it names, takes a
 * fraction of a second. Source: PTX ISA, "Module-scope directives".
 */

const DIRECTIVE = /^[ \t]*\.(?:version|target|address_size)\s[^\n]*/gm;
/** A kernel, or a function or its prototype. */
const CODE = /^[ \t]*(?:\.(?:visible|weak|extern)\s+)*\.(?:entry|func)\b/gm;
/** Memory without contents, which kernels would share: such a text stays whole. */
const SHARED = /^[ \t]*(?:\.(?:visible|weak|extern)\s+)*\.global\b[^;=]*;/m;
const NAME = /[A-Za-z_$%][\w$]*/g;
/** Constants that say something of the kernel whose name follows, which names none of them: kernels/include/x/early.h. */
const MARKS = ['x_early_'];

interface Declaration {
  name: string;
  text: string;
}

/** A PTX text taken apart once; {@link kernel} gives what the driver compiles for one of its kernels. */
export class PtxText {
  /** `.version`, `.target` and `.address_size`. */
  private readonly head: string;
  /** Constants, shared memory and prototypes, in their order. */
  private readonly declarations: readonly Declaration[];
  private readonly functions: readonly Declaration[];
  private readonly entries = new Map<string, string>();
  private readonly whole: string | undefined;

  constructor(text: string) {
    const outside: string[] = [];
    const functions: Declaration[] = [];
    let end = 0;
    CODE.lastIndex = 0;
    for (let found = CODE.exec(text); found; found = CODE.exec(text)) {
      outside.push(text.slice(end, found.index));
      const start = found.index;
      end = codeEnd(text, CODE.lastIndex);
      CODE.lastIndex = end;
      const code = text.slice(start, end);
      if (code.endsWith(';')) outside.push(code);
      else if (/\.entry\b/.test(found[0])) this.entries.set(/\.entry\s+([\w$]+)/.exec(code)![1]!, code);
      else functions.push({ name: functionName(code), text: code });
    }
    outside.push(text.slice(end));
    const scope = outside.join('').replace(/\/\/[^\n]*/g, '');
    this.whole = SHARED.test(scope) ? text : undefined;
    this.head = (scope.match(DIRECTIVE) ?? []).map((line) => line.trim()).join('\n');
    const declared = scope.replace(DIRECTIVE, '').split(';');
    this.declarations = declared.flatMap((statement) => {
      const text = statement.trim();
      if (text === '') return [];
      const name = /\.func\b/.test(text) ? functionName(text) : /([\w$]+)\s*(?:\[[^\]]*\]\s*)*(?:=|$)/.exec(text)?.[1];
      return name === undefined ? [] : [{ name, text: `${text};` }];
    });
    this.functions = functions;
  }

  /** A text with this kernel only, or the whole one where kernels share memory; undefined without such a kernel. */
  kernel(name: string): string | undefined {
    const entry = this.entries.get(name);
    if (entry === undefined || this.whole !== undefined) return entry && this.whole;
    const used = new Set<Declaration>();
    const named = new Set([...(entry.match(NAME) ?? []), ...MARKS.map((mark) => mark + name)]);
    for (let before = -1; before < used.size; ) {
      before = used.size;
      for (const declaration of [...this.declarations, ...this.functions]) {
        if (used.has(declaration) || !named.has(declaration.name)) continue;
        used.add(declaration);
        for (const word of declaration.text.match(NAME) ?? []) named.add(word);
      }
    }
    const kept = [...this.declarations, ...this.functions].filter((declaration) => used.has(declaration));
    return [this.head, ...kept.map(({ text }) => text), entry, ''].join('\n');
  }
}

/** `.func (.param .b64 result) name(...)` */
function functionName(code: string): string {
  return /\.func\s+(?:\([^)]*\)\s*)?([\w$]+)/.exec(code)?.[1] ?? '';
}

/** Behind a body, whose blocks and vectors are in braces of their own, or behind the semicolon where there is none. */
function codeEnd(text: string, from: number): number {
  const mark = /[{};]/g;
  mark.lastIndex = from;
  let depth = 0;
  for (let found = mark.exec(text); found; found = mark.exec(text)) {
    if (found[0] === ';') {
      if (depth === 0) return mark.lastIndex;
      // The next brace is far: statements are not looked at one by one.
      mark.lastIndex = nextBrace(text, mark.lastIndex);
      continue;
    }
    depth += found[0] === '{' ? 1 : -1;
    if (depth === 0) return mark.lastIndex;
  }
  return text.length;
}

function nextBrace(text: string, from: number): number {
  const brace = /[{}]/g;
  brace.lastIndex = from;
  return brace.exec(text)?.index ?? text.length;
}
