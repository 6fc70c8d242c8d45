/** Calls of tools: one of several names with arguments that meet its schema. */
import { kinds } from '@x/core';
import { GrammarError } from './errors';
import { Grammar } from './grammar';
import { type Expression, Expressions } from './regular/expression';
import { Cases } from './schema/cases';
import { ROOT, SchemaDocument } from './schema/document';
import { EPSILON, either, type Node, type Rule, repeat, sequence, terminal } from './syntax/node';
import { type ArgumentNotation, argumentWriter } from './tool-values';
import { markBytes } from './vocabulary';

export interface ToolSyntax {
  /** What comes before the arguments of a tool, by its name, in one form or several; the arguments may have a space in front. */
  before(name: string): string | readonly string[];
  /** What comes behind the arguments. */
  behind: string;
  /** How the arguments are written. Default: as JSON. */
  notation?: ArgumentNotation;
  /** Texts that are tokens of their own in `marks` of the vocabulary: wherever the syntax has them, only those tokens are. */
  marks?: readonly string[];
  /** More than one call. Default: one call alone. */
  several?: CallRow;
}

/** How calls stand one after the other. */
export interface CallRow {
  /** One behind the other with one of these texts between, or as a list in brackets. */
  lists?: readonly string[];
  /** White space may stand before a call. */
  spaced?: boolean;
  /** What comes before the first call, behind white space. */
  lead?: string;
  /** Texts that begin one more call. */
  opens?: readonly string[];
  /** What ends the calls may follow: one of these texts, or nothing. */
  ends: readonly string[];
}

const TOOLS = kinds.kind(
  (value) => Array.isArray(value) && value.every((tool) => typeof tool?.name === 'string'),
  'give a list of tools, each { name, parameters }',
);
const SYNTAX = kinds.fields({ before: kinds.FUNCTION, behind: kinds.STRING });

/** One after the other; who calls more does not end. */
const MOST_CALLS = 127;

/**
 * The texts that call one of these tools. The arguments are objects that meet `parameters`, with white space as
 * programs write it and no properties but those that the schema names, unless it says otherwise.
 * @throws GrammarError as {@link compileSchema}, with the tool's name; BAD_SCHEMA where there are no tools; UNSATISFIABLE where none
 * of them takes an object
 */
export function compileToolCalls(tools: readonly { name: string; parameters: unknown }[], syntax: ToolSyntax): Grammar {
  kinds.check('compileToolCalls', 'tools', tools, TOOLS);
  kinds.check('compileToolCalls', 'syntax', syntax, SYNTAX);
  const { before, behind, notation = { kind: 'json' }, marks = [], several } = syntax;
  if (tools.length === 0)
    throw new GrammarError('BAD_SCHEMA', 'There are no tools to call; give one at least.', { option: 'tools' });
  const make = new Expressions();
  const rules: Rule[] = [];
  const space = make.repeat(make.literal(' '), 0, 1);
  const mark = (text: string) => markedText(make, text, marks);
  const calls = tools.map(({ name, parameters }) => {
    try {
      const cases = new Cases(make, new SchemaDocument(parameters));
      const { writer, node } = argumentWriter(make, cases, notation, name, mark);
      const object = cases.conditions.schema({ type: 'object' }, { pointer: '', base: ROOT });
      const given = node(cases.conditions.all(object, cases.root));
      rules.push(...writer.rules);
      const starts = [before(name)].flat().map(mark);
      const end = behind === '' ? make.epsilon : make.sequence(writer.marks.space, mark(behind));
      return sequence(terminal(make.sequence(make.either(...starts), space)), given, terminal(end));
    } catch (error) {
      if (!(error instanceof GrammarError)) throw error;
      throw new GrammarError(error.code, `The tool "${name}": ${error.message}`, { cause: error, option: 'tools' });
    }
  });
  const one = either(...calls);
  const grammar = (start: Node) => {
    try {
      return new Grammar(make, start, rules);
    } catch (error) {
      if (!(error instanceof GrammarError) || error.code !== 'UNSATISFIABLE') throw error;
      const names = tools.slice(0, 5).map(({ name }) => `"${name}"`);
      const which = tools.length === 1 ? `The tool ${names}` : `Each of the tools ${names.join(', ')}`;
      const message = `${which}: no object meets its parameters; give the schema of an object whose conditions can be met.`;
      throw new GrammarError('UNSATISFIABLE', message, { cause: error, option: 'tools' });
    }
  };
  if (!several) return grammar(one);
  const { lists, spaced = false, lead = '', opens = [], ends } = several;
  const text = (part: string) => terminal(mark(part));
  const white = terminal(make.repeat(make.either(...[' ', '\n', '\r', '\t'].map((one) => make.literal(one))), 0, 16));
  const next = (...between: string[]) => sequence(white, either(...between.map(text)), white, one);
  const row = lists ? sequence(one, repeat(next(...lists), 0, MOST_CALLS)) : one;
  const list = sequence(text('['), white, one, repeat(next(','), 0, MOST_CALLS), white, text(']'));
  const group = lists ? either(row, list) : row;
  const gap = spaced ? white : EPSILON;
  const first = lead === '' ? gap : sequence(white, text(lead));
  const more = repeat(sequence(white, either(...opens.map(text)), gap, group), 0, MOST_CALLS);
  const end = repeat(sequence(white, either(...ends.map(text))), 0, 1);
  return grammar(sequence(first, group, more, end));
}

/** A text in which marks are tokens of their own. */
function markedText(make: Expressions, text: string, marks: readonly string[]): Expression {
  const parts: Expression[] = [];
  let plain = '';
  const endPlain = () => {
    if (plain !== '') parts.push(make.literal(plain));
    plain = '';
  };
  for (let i = 0; i < text.length; ) {
    const [found] = marks.filter((mark) => text.startsWith(mark, i)).sort((a, b) => b.length - a.length);
    if (found) {
      endPlain();
      parts.push(make.literalBytes(markBytes(found)));
    } else plain += text[i];
    i += found?.length ?? 1;
  }
  endPlain();
  return make.sequence(...parts);
}
