/** What calls look like in a family of models, as grammars. */
import {
  type ArgumentNotation,
  type CallRow,
  compileToolCalls,
  type Grammar,
  GrammarError,
  type ToolSyntax,
} from '@x/grammar';
import { ArgumentTypes, type ReplyFormat, type ToolDefinition } from '@x/transformers';

export interface CallForm {
  /** What may come behind each text that begins calls, until they are over. */
  calls: ReadonlyMap<string, Grammar>;
  /** The same behind `to=` in the header of a message (harmony). */
  recipient: Grammar | undefined;
  /** Arguments and the end of a call by tool, where an answer that begins with a brace may be a call. */
  bare: ReadonlyMap<string, Grammar> | undefined;
  reasoning: { open: string; close: string } | undefined;
}

/** How a family writes calls, from the mark before them on. */
interface Family {
  notation: ArgumentNotation;
  /** Behind the arguments of each call, and what of it has to come before a generation of one call ends. */
  behind: string;
  last: string;
  /** By the texts that begin calls. */
  rows: Readonly<Record<string, CallRow>>;
}

const SEPARATE = { spaced: true, ends: [] };

function familyOf({ calls, force }: ReplyFormat, tools: readonly ToolDefinition[]): Family {
  const { syntax, open, close, quote = '' } = calls!;
  const json = { kind: 'json' } as const;
  const ends = close.filter((mark) => !open.includes(mark));
  const rows = (row: CallRow) => Object.fromEntries(open.map((mark) => [mark, row]));
  const types = new ArgumentTypes(tools);
  const read = (tool: string, argument: string) => types.reading(tool, argument);
  switch (syntax) {
    case 'json': {
      const between = ends.filter((mark) => mark === ';');
      const row = {
        lists: ['', ',', ...between],
        spaced: true,
        opens: open,
        ends: ends.filter((mark) => mark !== ';'),
      };
      return { notation: json, behind: '}', last: '}', rows: rows(row) };
    }
    case 'mistral': {
      const isNew = force!('f').includes('[ARGS]');
      const behind = isNew ? '' : '}';
      return {
        notation: json,
        behind,
        last: behind,
        rows: rows({ lists: isNew ? undefined : ['', ','], spaced: true, opens: open, ends }),
      };
    }
    case 'deepseek': {
      const [all, one] = open;
      const [, end, allEnd] = close;
      const row = { opens: [one], ends: [allEnd] };
      const isFenced = force!('f').includes('```');
      return {
        notation: json,
        behind: `${isFenced ? '\n```' : ''}${end}`,
        last: '',
        rows: { [all]: { ...row, lead: one }, [one]: row },
      };
    }
    case 'function-tags': {
      const [all, one] = open;
      const row = { opens: [one], ends: ['</tool_call>'] };
      return {
        notation: { kind: 'tags', open: '<parameter=', middle: '>\n', close: '\n</parameter>', read },
        behind: '</function>',
        last: '</function>',
        rows: { [all]: { ...row, lead: one }, [one]: row },
      };
    }
    case 'argument-tags':
      return {
        notation: { kind: 'tags', open: '<arg_key>', middle: '</arg_key>\n<arg_value>', close: '</arg_value>', read },
        behind: '</tool_call>',
        last: '</tool_call>',
        rows: rows(SEPARATE),
      };
    case 'gemma':
      return {
        notation: { kind: 'quotes', quote },
        behind: '',
        last: '',
        rows: rows({ spaced: true, opens: open, ends }),
      };
    case 'harmony':
      return { notation: json, behind: '', last: '', rows: { 'to=': { ends: ['<|call|>', '<|end|>'] } } };
  }
}

/** What comes before the arguments of a tool, behind all that begins calls: as the family's templates show it. */
function beforeArguments({ calls, force }: ReplyFormat): ToolSyntax['before'] {
  if (calls!.syntax === 'harmony') {
    return (name) =>
      [' <|constrain|>json', ' json', '<|constrain|>json', ''].flatMap((type) =>
        ['', '<|channel|>commentary', '<|channel|>analysis'].map(
          (channel) => `functions.${name}${channel}${type}<|message|>`,
        ),
      );
  }
  return (name) => {
    const begun = force!(name);
    const brace = begun.indexOf('{"name"');
    if (brace >= 0) return begun.slice(brace);
    // Of several marks before the first call the last.
    const last = calls!.open.reduce((at, mark) => Math.max(at, begun.lastIndexOf(mark) + mark.length), 0);
    const text = begun.slice(last);
    if (calls!.syntax === 'argument-tags') return text.trim();
    if (calls!.syntax === 'function-tags') return text.trimEnd();
    return text;
  };
}

/** In the order of their use. */
const forms = new Map<string, CallForm>();
const MOST_FORMS = 16;

/**
 * Undefined in families that write no calls.
 * @param marks texts that are tokens of their own
 * @throws GrammarError with the tool's name, for a `strict` tool whose schema cannot be enforced
 */
export function callForm(
  format: ReplyFormat,
  tools: readonly ToolDefinition[],
  marks: readonly string[] = [],
): CallForm | undefined {
  const { calls, force } = format;
  if (!calls || !force || tools.length === 0) return undefined;
  const key = JSON.stringify([format, force(''), tools, marks]);
  const known = forms.get(key);
  forms.delete(key);
  const form = known ?? compile(format, tools, marks);
  forms.set(key, form);
  for (const oldest of forms.keys()) {
    if (forms.size <= MOST_FORMS) break;
    forms.delete(oldest);
  }
  return form;
}

function compile(format: ReplyFormat, tools: readonly ToolDefinition[], marks: readonly string[]): CallForm {
  const { notation, behind, rows } = familyOf(format, tools);
  const enforced = tools.map((tool) => enforceable(tool, notation));
  const grammars = new Map(
    Object.entries(rows).map(([open, several]) => [
      open,
      compileToolCalls(enforced, { before: beforeArguments(format), behind, notation, marks, several }),
    ]),
  );
  const recipient = grammars.get('to=');
  const bare = (tool: ToolDefinition) => compileToolCalls([tool], { before: () => '', behind: '}' });
  return {
    calls: recipient ? new Map() : grammars,
    recipient,
    bare: format.calls!.bare ? new Map(enforced.map((tool) => [tool.name, bare(tool)])) : undefined,
    reasoning: format.reasoning,
  };
}

/** The tool, with any object as its arguments where its schema cannot be enforced and need not be. */
function enforceable(tool: ToolDefinition, notation: ArgumentNotation): ToolDefinition {
  try {
    compileToolCalls([tool], { before: () => '', behind: '', notation });
    return tool;
  } catch (error) {
    if (tool.strict || !(error instanceof GrammarError)) throw error;
    return { ...tool, parameters: { type: 'object', additionalProperties: true } };
  }
}

/**
 * What follows a call that the prompt has begun: a tool's name, where the prompt has none, and arguments that meet its schema.
 * Undefined in families that write no calls.
 * @throws GrammarError with the tool's name
 */
export function forcedCall(
  format: ReplyFormat,
  { name }: { name?: string },
  tools: readonly ToolDefinition[],
  marks: readonly string[] = [],
): Grammar | undefined {
  const { calls, force } = format;
  if (!calls || !force) return undefined;
  const { notation, last } = familyOf(format, tools);
  const begun = force(name).length;
  const callable = name === undefined ? tools : tools.filter((tool) => tool.name === name);
  return compileToolCalls(callable, { before: (tool) => force(tool).slice(begun), behind: last, notation, marks });
}
