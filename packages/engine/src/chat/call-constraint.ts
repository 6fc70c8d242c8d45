/**
 * Calls that a model may make while it answers (`toolChoice: 'auto'`): text is free until a call begins, and from there on only
 * tokens are possible that call one of the tools with arguments that meet its schema, until the call is over.
 */
import type { Grammar, Matcher, Vocabulary } from '@x/grammar';
import type { Constraint } from '../constraint';
import type { CallForm } from './call-form';

/** Finds a mark that tokens write in parts. */
const MOST_TAIL = 256;
/** Behind it come the arguments of a call that no mark has begun. */
const BARE =
  /\{\s*(?:"type"\s*:\s*"function"\s*,\s*)?"name"\s*:\s*"([^"]*)"\s*,\s*"(?:parameters|arguments|args)"\s*:\s*/g;
/** What begins calls and may be a word of a text: the list of calls has to follow. */
const WORD = /^\w+$/;
/** The header of a harmony message, up to its recipient. */
const RECIPIENT =
  /<\|(?:start|end|call|channel)\|>\s*(?=to=|assistant|commentary|final|analysis|<\|(?:start|channel|constrain)\|>)(?:(?!<\|(?:message|end|call)\|>).)*?\bto=/s;

export class CallConstraint implements Constraint {
  private matcher: Matcher | undefined;
  /** The end of the free text; of an answer that may be a bare call all of it. */
  private text = '';
  private isBare: boolean;
  /** Whether the answer has begun: reasoning begins in front of it, not in it. */
  private hasText = false;
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
    // A harmony prompt ends within the header of a message.
    if (form.recipient) this.text = '<|start|>';
  }

  mask(): Uint32Array | undefined {
    return this.matcher?.mask();
  }

  accept(id: number): void {
    const { matcher, vocabulary } = this;
    if (!matcher) {
      const mark = this.marks.get(id);
      const bytes = mark === undefined ? vocabulary.text(id) : undefined;
      this.read(mark ?? (bytes ? this.decoder.decode(bytes, { stream: true }) : ''));
      return;
    }
    matcher.accept(id);
    if (matcher.isFinished) this.matcher = undefined;
  }

  fork(): CallConstraint {
    const { form, vocabulary, marks, inReasoning, matcher, text, isBare, hasText } = this;
    return Object.assign(new CallConstraint(form, vocabulary, marks, inReasoning), {
      matcher: matcher?.fork(),
      text,
      isBare,
      hasText,
    });
  }

  /** Free text, or a mark. */
  private read(part: string): void {
    const { form } = this;
    this.text += part;
    const open = this.hasText ? undefined : form.reasoning?.open.trim();
    const shown = this.text.trimStart();
    if (this.inReasoning) {
      this.inReasoning = !this.text.includes(form.reasoning!.close);
      if (!this.inReasoning) this.restart();
    } else if (open !== undefined && shown.startsWith(open)) {
      this.inReasoning = true;
      this.text = '';
    } else if (!this.beginsCalls()) {
      this.isBare &&= /^\s*([[{]|$)/.test(this.text);
      this.hasText ||= shown !== '' && open?.startsWith(shown) !== true;
    }
    if (!this.isBare && this.text.length > 2 * MOST_TAIL) this.text = this.text.slice(-MOST_TAIL);
  }

  /** Whether calls have begun, by a mark, in a header or as a bare call. */
  private beginsCalls(): boolean {
    const { form, text } = this;
    for (const [open, grammar] of form.calls) {
      const at = WORD.test(open) ? text.search(`${open}\\s*\\[`) : text.indexOf(open);
      if (at < 0) continue;
      this.begin(grammar, text.slice(at + open.length));
      return true;
    }
    const header = form.recipient && RECIPIENT.exec(text);
    if (header) {
      this.begin(form.recipient!, text.slice(header.index + header[0].length), '<|end|>');
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
