/**
 * Calls that a model may make while it answers (`toolChoice: 'auto'`): text is free until a call begins, and from there on only
 * tokens are possible that call one of the tools with arguments that meet its schema, until the call is over.
 */
import { compileToolCalls, type Grammar, GrammarError, type Matcher, type Vocabulary } from '@x/grammar';
import type { ReplyFormat, ToolDefinition } from '@x/transformers';
import type { Constraint } from '../constraint';

/** Finds a mark that tokens write in parts. */
const MOST_TAIL = 256;
/** Behind it come the arguments of a call that no mark has begun. */
const BARE = /\{\s*"name"\s*:\s*"([^"]*)"\s*,\s*"(?:parameters|arguments|args)"\s*:\s*/g;

/** What calls look like in a family, and the grammars of its calls. */
export interface CallForm {
  open: readonly string[];
  close: readonly string[];
  reasoning: { open: string; close: string } | undefined;
  /** Behind a mark: calls, and what ends them. */
  calls: Grammar;
  /** Arguments by tool, where an answer that begins with a brace may be a call. */
  bare: ReadonlyMap<string, Grammar> | undefined;
}

/** In the order of their use. */
const forms = new Map<string, CallForm>();
const MOST_FORMS = 16;

/**
 * Undefined in families that do not write calls as JSON objects: their calls are as the model writes them.
 * @throws GrammarError with the tool's name, for a `strict` tool whose schema cannot be enforced
 */
export function callForm(format: ReplyFormat, tools: readonly ToolDefinition[]): CallForm | undefined {
  const { calls, force } = format;
  if (calls?.syntax !== 'json' || !force || tools.length === 0) return undefined;
  const key = JSON.stringify([format, force(''), tools]);
  const known = forms.get(key);
  forms.delete(key);
  const form = known ?? compile(format, tools);
  forms.set(key, form);
  for (const oldest of forms.keys()) {
    if (forms.size <= MOST_FORMS) break;
    forms.delete(oldest);
  }
  return form;
}

function compile({ calls, force, reasoning }: ReplyFormat, tools: readonly ToolDefinition[]): CallForm {
  const enforced = tools.map(enforceable);
  // A call as the family's templates show it, without what comes before its brace.
  const before = (name: string) => {
    const begun = force!(name);
    return begun.slice(begun.indexOf('{'));
  };
  const behind = '}';
  return {
    open: calls!.open,
    close: calls!.close,
    reasoning,
    calls: compileToolCalls(enforced, { before, behind, several: { ends: calls!.close } }),
    bare: calls!.bare
      ? new Map(enforced.map((tool) => [tool.name, compileToolCalls([tool], { before: () => '', behind: '' })]))
      : undefined,
  };
}

/** The tool, with any object as its arguments where its schema cannot be enforced and need not be. */
function enforceable(tool: ToolDefinition): ToolDefinition {
  try {
    compileToolCalls([tool], { before: () => '', behind: '' });
    return tool;
  } catch (error) {
    if (tool.strict || !(error instanceof GrammarError)) throw error;
    return { ...tool, parameters: { type: 'object', additionalProperties: true } };
  }
}

export class CallConstraint implements Constraint {
  private matcher: Matcher | undefined;
  /** The end of the free text; of an answer that may be a bare call all of it. */
  private text = '';
  private isBare: boolean;
  private readonly decoder = new TextDecoder();

  /**
   * @param marks ids of tokens that are marks, by their text
   * @param inReasoning whether the prompt has begun reasoning, in which no call is one
   */
  constructor(
    private readonly form: CallForm,
    private readonly vocabulary: Vocabulary,
    private readonly marks: ReadonlyMap<number, string>,
    private inReasoning = false,
  ) {
    this.isBare = form.bare !== undefined;
  }

  mask(): Uint32Array | undefined {
    const { matcher, marks } = this;
    if (!matcher) return undefined;
    const mask = matcher.mask();
    if (!matcher.canEnd) return mask;
    const wider = mask.slice();
    for (const [id, text] of marks) if (this.isOfCalls(text)) wider[id >>> 5] |= 1 << (id & 31);
    return wider;
  }

  accept(id: number): void {
    const { matcher, vocabulary } = this;
    const mark = this.marks.get(id);
    if (!matcher) {
      const bytes = vocabulary.text(id);
      this.read(mark ?? (bytes ? this.decoder.decode(bytes, { stream: true }) : ''));
    } else if (mark !== undefined && matcher.canEnd && this.isOfCalls(mark)) {
      this.matcher = undefined;
      this.text = '';
      if (this.form.open.includes(mark)) this.begin(this.form.calls, '');
    } else {
      matcher.accept(id);
      if (matcher.isFinished) this.matcher = undefined;
    }
  }

  fork(): CallConstraint {
    const { form, vocabulary, marks, inReasoning, matcher, text, isBare } = this;
    return Object.assign(new CallConstraint(form, vocabulary, marks, inReasoning), {
      matcher: matcher?.fork(),
      text,
      isBare,
    });
  }

  private isOfCalls(mark: string): boolean {
    return this.form.open.includes(mark) || this.form.close.includes(mark);
  }

  /** Free text, or a mark. */
  private read(part: string): void {
    const { form } = this;
    this.text += part;
    if (this.inReasoning) {
      this.inReasoning = !this.text.includes(form.reasoning!.close);
      if (!this.inReasoning) this.restart();
    } else if (form.reasoning && this.text.includes(form.reasoning.open.trim())) {
      this.inReasoning = true;
      this.text = '';
    } else if (!this.beginsCalls()) this.isBare &&= /^\s*([[{]|$)/.test(this.text);
    if (!this.isBare && this.text.length > 2 * MOST_TAIL) this.text = this.text.slice(-MOST_TAIL);
  }

  /** Whether calls have begun, by a mark or as a bare call. */
  private beginsCalls(): boolean {
    const { form, text } = this;
    for (const open of form.open) {
      const at = text.indexOf(open);
      if (at < 0) continue;
      this.begin(form.calls, text.slice(at + open.length));
      return true;
    }
    for (const found of this.isBare ? text.matchAll(BARE) : []) {
      const grammar = form.bare!.get(found[1]);
      if (!grammar) continue;
      this.begin(grammar, text.slice(found.index + found[0].length), '[');
      return true;
    }
    return false;
  }

  private restart(): void {
    this.text = '';
    this.isBare = this.form.bare !== undefined;
  }

  /**
   * Follows a grammar from here on. What a token held beyond the mark is its beginning; where that is none, this is no call.
   * @param text as if it came before what comes behind
   */
  private begin(grammar: Grammar, begun: string, text = ''): void {
    this.text = text;
    const matcher = grammar.matcher(this.vocabulary);
    if (matcher.acceptBytes(Buffer.from(begun, 'utf8'))) this.matcher = matcher;
  }
}
