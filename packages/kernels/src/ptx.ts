/**
 * The kernels of a PTX text one by one. The driver compiles all of a text when it is loaded, some hundred kernels of which a
 * program uses a few; a text with one of them, and the constants and shared memory that it names, takes a fraction of a
 * second. Source: PTX ISA, "Module-scope directives".
 */

const DIRECTIVE = /^[ \t]*\.(?:version|target|address_size)\s[^\n]*/gm;
const ENTRY = /^[^\n]*\.entry\s+([\w$]+)/;
/** Functions that kernels call, and memory that they would share: such a text stays whole. */
const SHARED = /^[ \t]*(?:\.visible |\.weak |\.extern )*(?:\.func\b|\.global(?![^;]*=))/m;

export class PtxText {
  /** `.version`, `.target` and `.address_size`. */
  private readonly head: string;
  /** Names of the module's scope, each with its declaration. */
  private readonly declarations: readonly (readonly [name: string, text: string])[];
  private readonly entries = new Map<string, string>();
  private readonly whole: string | undefined;

  constructor(text: string) {
    const outside: string[] = [];
    let end = 0;
    for (let at = text.indexOf('.entry '); at >= 0; at = text.indexOf('.entry ', end)) {
      const start = text.lastIndexOf('\n', at) + 1;
      outside.push(text.slice(end, start));
      const close = text.indexOf('\n}', at);
      end = close < 0 ? text.length : close + 2;
      const entry = text.slice(start, end);
      this.entries.set(ENTRY.exec(entry)![1]!, entry);
    }
    outside.push(text.slice(end));
    const scope = outside.join('').replace(/\/\/[^\n]*/g, '');
    this.whole = SHARED.test(scope) ? text : undefined;
    this.head = (scope.match(DIRECTIVE) ?? []).join('\n');
    const declared = scope.replace(DIRECTIVE, '').split(';');
    this.declarations = declared.flatMap((text) => {
      const name = /([\w$]+)\s*(?:\[[^\]]*\]\s*)*(?:=|$)/.exec(text.trim().split('=')[0]!.trim())?.[1];
      return name === undefined ? [] : [[name, `${text.trim()};`] as const];
    });
  }

  /** A text with this kernel only, or the whole one where kernels share more than constants; undefined without such a kernel. */
  kernel(name: string): string | undefined {
    const entry = this.entries.get(name);
    if (entry === undefined) return undefined;
    if (this.whole !== undefined) return this.whole;
    const named = new Set(entry.match(/[\w$]+/g));
    const used: string[] = [];
    // What comes later may name what came before it, so the last is looked at first.
    for (const [declared, text] of [...this.declarations].reverse()) {
      if (!named.has(declared)) continue;
      used.unshift(text);
      for (const word of text.match(/[A-Za-z_$][\w$]*/g) ?? []) named.add(word);
    }
    return [this.head, ...used, entry, ''].join('\n');
  }
}
