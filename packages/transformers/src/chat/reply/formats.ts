/**
 * How models of a family write what is not plain text: reasoning and tool calls. Known by what their templates contain, since
 * a template shows earlier calls in the form in which the model writes them.
 */

/** How the calls between `open` and `close` are written. */
export type CallSyntax =
  /** `{"name": ..., "arguments" or "parameters": {...}}`, one, several in a list, or one after the other. */
  | 'json'
  /** Mistral: a list as `json`, or `name[ARGS]{...}`. */
  | 'mistral'
  /** DeepSeek: `name<｜tool▁sep｜>{...}`, in V3 with a kind before and a fence around. */
  | 'deepseek'
  /** Qwen3-Coder: `<function=name><parameter=key>value</parameter></function>`. */
  | 'function-tags'
  /** GLM 4.5: `name<arg_key>key</arg_key><arg_value>value</arg_value>`. */
  | 'argument-tags'
  /** Gemma: `call:name{key:value}` with its own quotes around strings. */
  | 'gemma'
  /** gpt-oss: `to=functions.name` in the header of a message, its content the JSON. */
  | 'harmony';

export interface ReplyFormat {
  family:
    | 'plain'
    | 'llama3'
    | 'hermes'
    | 'qwen-coder'
    | 'glm'
    | 'mistral'
    | 'deepseek'
    | 'granite'
    | 'harmony'
    | 'gemma'
    | 'phi4-mini';
  /** Tags around reasoning; undefined where the model writes none. */
  reasoning?: { open: string; close: string };
  /** Tags around the answer behind reasoning, which are left out. */
  around?: readonly string[];
  calls?: {
    syntax: CallSyntax;
    /** Texts that begin calls. */
    open: readonly string[];
    /** Texts that end them, or stand between and around them; skipped. */
    close: readonly string[];
    /** An answer that begins with `{` or `[` may be a call, too: of a tool that was given. */
    bare?: boolean;
    /** Quotes of strings in `gemma`. */
    quote?: string;
  };
  /** Begins a call in the prompt itself, of one tool or of any: what `toolChoice` needs. */
  force?(name: string | undefined): string;
}

const forcedJson =
  (open: string, key = 'arguments') =>
  (name: string | undefined) =>
    `${open}{"name":${name === undefined ? '' : ` ${JSON.stringify(name)}, "${key}":`}`;

const THINK = { open: '<think>', close: '</think>' };

/** Whether a mark stands in no text by chance; others, such as a semicolon between calls, are written as all texts are. */
export function standsAlone(mark: string): boolean {
  return /^[<[].*[>\]]$/s.test(mark);
}

/** Reasoning that a prompt may begin, what ends it, and what begins the answer behind it; undefined in families without any. */
export function thoughtOf({
  family,
  reasoning,
}: ReplyFormat): { open: string; close: string; answer: string } | undefined {
  if (family === 'harmony') {
    return {
      open: '<|channel|>analysis<|message|>',
      close: '<|end|>',
      answer: '<|start|>assistant<|channel|>final<|message|>',
    };
  }
  return (
    reasoning && {
      open: reasoning.open === THINK.open ? `${THINK.open}\n` : reasoning.open,
      close: reasoning.close,
      answer: '',
    }
  );
}

/** The format of a template's text. */
export function replyFormatOf(source: string): ReplyFormat {
  const format = familyOf(source);
  // Granite 3.2 and 3.3 are told to write them.
  return format.reasoning && source.includes('<response>')
    ? { ...format, around: ['<response>', '</response>'] }
    : format;
}

/** Distinctive marks come first. */
function familyOf(source: string): ReplyFormat {
  const has = (text: string) => source.includes(text);
  const reasoning = has('[THINK]')
    ? { open: '[THINK]', close: '[/THINK]' }
    : has('</think>') || has('<think>')
      ? THINK
      : undefined;

  if (has('<|channel|>') && has('<|message|>')) {
    return {
      family: 'harmony',
      calls: { syntax: 'harmony', open: [], close: [] },
      force: (name) =>
        `<|channel|>commentary to=functions.${name === undefined ? '' : `${name} <|constrain|>json<|message|>`}`,
    };
  }
  if (has('<|tool_call>') || has('<start_function_call>')) {
    const isFour = has('<|tool_call>');
    return {
      family: 'gemma',
      reasoning: isFour ? { open: '<|channel>thought\n', close: '<channel|>' } : undefined,
      calls: {
        syntax: 'gemma',
        open: [isFour ? '<|tool_call>' : '<start_function_call>'],
        close: [isFour ? '<tool_call|>' : '<end_function_call>'],
        quote: isFour ? '<|"|>' : '<escape>',
      },
      force: (name) => `${isFour ? '<|tool_call>' : '<start_function_call>'}call:${name ?? ''}`,
    };
  }
  if (has('<｜tool▁calls▁begin｜>')) {
    return {
      family: 'deepseek',
      reasoning: THINK,
      calls: {
        syntax: 'deepseek',
        open: ['<｜tool▁calls▁begin｜>', '<｜tool▁call▁begin｜>'],
        close: ['<｜tool▁call▁begin｜>', '<｜tool▁call▁end｜>', '<｜tool▁calls▁end｜>'],
      },
      force: (name) => {
        const kind = has("'<｜tool▁sep｜>' + tool['function']['name']") ? 'function<｜tool▁sep｜>' : '';
        return `<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>${kind}${name === undefined ? '' : kind ? `${name}\n\`\`\`json\n` : `${name}<｜tool▁sep｜>`}`;
      },
    };
  }
  if (has('[TOOL_CALLS]')) {
    const isNew = has('[ARGS]');
    return {
      family: 'mistral',
      reasoning,
      calls: { syntax: 'mistral', open: ['[TOOL_CALLS]'], close: ['[TOOL_CALLS]'] },
      force: isNew
        ? (name) => `[TOOL_CALLS]${name === undefined ? '' : `${name}[ARGS]`}`
        : forcedJson('[TOOL_CALLS] ['),
    };
  }
  if (has('<arg_key>')) {
    return {
      family: 'glm',
      reasoning: THINK,
      calls: { syntax: 'argument-tags', open: ['<tool_call>'], close: ['</tool_call>', '<tool_call>'] },
      force: (name) => `<tool_call>${name === undefined ? '' : `${name}\n`}`,
    };
  }
  if (has('<function=') && has('<tool_call>')) {
    return {
      family: 'qwen-coder',
      reasoning,
      calls: { syntax: 'function-tags', open: ['<tool_call>', '<function='], close: ['</tool_call>', '<tool_call>'] },
      force: (name) => `<tool_call>\n<function=${name === undefined ? '' : `${name}>\n`}`,
    };
  }
  if (has('<|tool_call|>') || (has('granite') && has('<tool_call>'))) {
    const isPhi = has('<|tool|>');
    const open = has('<|tool_call|>') ? '<|tool_call|>' : '<tool_call>';
    return {
      family: isPhi ? 'phi4-mini' : 'granite',
      reasoning,
      calls: {
        syntax: 'json',
        open: isPhi ? ['<|tool_call|>', 'functools'] : ['<|tool_call|>', '<tool_call>'],
        close: isPhi ? ['<|/tool_call|>'] : ['</tool_call>', '<tool_call>', '<|tool_call|>'],
      },
      force: forcedJson(isPhi ? 'functools[' : has('<|tool_call|>') ? `${open}[` : `${open}\n`),
    };
  }
  if (has('<|tool|>') && has('<|end|>')) {
    return {
      family: 'phi4-mini',
      calls: { syntax: 'json', open: ['functools', '<|tool_call|>'], close: ['<|/tool_call|>'] },
      force: forcedJson('functools['),
    };
  }
  if (has('<tool_call>')) {
    return {
      family: 'hermes',
      reasoning,
      calls: { syntax: 'json', open: ['<tool_call>'], close: ['</tool_call>', '<tool_call>'] },
      force: forcedJson('<tool_call>\n'),
    };
  }
  if (has('<|python_tag|>') || (has('ipython') && has('<|eot_id|>'))) {
    return {
      family: 'llama3',
      reasoning,
      calls: { syntax: 'json', open: ['<|python_tag|>'], close: [';'], bare: true },
      force: forcedJson('', 'parameters'),
    };
  }
  return { family: 'plain', reasoning };
}
