/**
 * What an answer may be: calls that meet the schemas of their tools, a text with the form that the caller wants, or either, behind the
 * reasoning that the prompt has begun.
 */
import {
  type ChatPrompt,
  standsAlone,
  stopIds,
  type ToolDefinition,
  TransformersError,
  thoughtOf,
} from '@x/transformers';
import type { Constraint } from '../constraint';
import type { GenerateOptions } from '../generate-options';
import type { GenerationHost } from '../generation';
import { structureOf, vocabularyOf } from '../structured';
import { CallConstraint } from './call-constraint';
import { callForm, forcedCall } from './call-form';
import { CallOrForm } from './call-or-form';
import { FormedAnswer } from './formed-answer';

/** Options that give the answer's text a form. */
const STRUCTURES = ['schema', 'regex', 'grammar', 'choices'] as const;

/** Whether the answer's text is to have a form. */
export function isFormed(options: GenerateOptions): boolean {
  return STRUCTURES.some((form) => options[form] !== undefined);
}

/**
 * The options with one constraint in the place of all that asks for one. A `constraint` of the caller's is for all that the model writes.
 * @param force the call that the prompt has begun
 * @param marks ids of marks, by their text
 * @throws GrammarError with the tool's name; TransformersError INVALID_OPTION for what cannot be had together
 */
export function constrained(
  host: GenerationHost,
  prompt: ChatPrompt,
  tools: readonly ToolDefinition[],
  force: { name?: string } | undefined,
  marks: ReadonlyMap<number, string>,
  { schema, schemaOptions, regex, grammar, choices, constraint, ...options }: GenerateOptions,
): GenerateOptions {
  const { tokenizer, scheduler } = host;
  const { format, inReasoning } = prompt;
  const { vocabSize } = scheduler.runner.model.config;
  const endIds = stopIds(tokenizer, format);
  const asked = { schema, schemaOptions, regex, grammar, choices, constraint };
  const [given] = [...STRUCTURES, 'constraint' as const].filter((form) => asked[form] !== undefined);
  if (force && given) throw invalid(`toolChoice demands a call and ${given} another text; give one`, 'toolChoice');
  const structure = structureOf(asked, tokenizer, vocabSize, endIds);
  if (constraint) return { ...options, constraint };

  const tokens = new Map([...marks].filter(([, mark]) => standsAlone(mark)));
  const texts = [...tokens.values()];
  const vocabulary = () => vocabularyOf(tokenizer, vocabSize, endIds, tokens);
  if (force) return { ...options, constraint: forcedCall(format, force, tools, texts)?.matcher(vocabulary()) };
  const form = callForm(format, tools, texts);
  const isEnforced = form !== undefined && (canSpell(tokenizer) || tools.some(({ strict }) => strict));
  if (!structure) {
    const calls = isEnforced ? new CallConstraint(form, vocabulary(), tokens, inReasoning) : undefined;
    return { ...options, constraint: calls };
  }
  let answer = structure;
  if (form) {
    const open = [...tokens].filter(([, mark]) => form.calls.has(mark)).map(([id]) => id);
    if (open.length === 0)
      throw invalid(
        `tools are given with ${given}, and calls of this model do not begin with a token of their own, so that it could make none; ` +
          'leave one of them out, or demand a call with toolChoice',
        'tools',
      );
    answer = new CallOrForm({ open, endIds, vocabSize }, new CallConstraint(form, vocabulary(), tokens), structure);
  }
  return { ...options, constraint: inReasoning ? behindReasoning(host, prompt, marks, answer) : answer };
}

function behindReasoning(
  { tokenizer, scheduler }: GenerationHost,
  { format }: ChatPrompt,
  marks: ReadonlyMap<number, string>,
  answer: Constraint,
): Constraint {
  const { close, answer: begin } = thoughtOf(format)!;
  const free = new Uint32Array(Math.ceil(scheduler.runner.model.config.vocabSize / 32)).fill(2 ** 32 - 1);
  for (const id of stopIds(tokenizer, format)) free[id >>> 5] &= ~(1 << (id & 31));
  const reasoning = {
    close,
    between: begin === '' ? [] : tokenizer.encode(begin, { addSpecialTokens: false }),
    free,
    textOf: (id: number) => marks.get(id) ?? tokenizer.decode([id]),
  };
  return new FormedAnswer(reasoning, answer);
}

/** Whether the bytes of single tokens are known, which grammars need. */
function canSpell(tokenizer: GenerationHost['tokenizer']): boolean {
  try {
    tokenizer.tokenBytes();
    return true;
  } catch {
    return false;
  }
}

function invalid(what: string, option: string): TransformersError {
  return new TransformersError('INVALID_OPTION', `chat: ${what}.`, { option });
}
