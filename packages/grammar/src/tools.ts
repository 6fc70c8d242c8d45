/** Calls of tools: one of several names with arguments that meet its schema. */
import { GrammarError } from './errors';
import { Grammar } from './grammar';
import { Expressions } from './regular/expression';
import { Cases } from './schema/cases';
import { SchemaDocument } from './schema/document';
import { Writer } from './schema/writer';
import { either, type Rule, repeat, sequence, terminal } from './syntax/node';

export interface ToolSyntax {
  /** What comes before the arguments of a tool, by its name; the arguments may have a space in front. */
  before(name: string): string;
  /** What comes behind the arguments. */
  behind: string;
  /**
   * More than one call: one after the other, with nothing, a comma or a semicolon between, or a list in brackets, and white space
   * around. What ends them may follow: one of these texts, or nothing. Default: one call alone.
   */
  several?: { ends: readonly string[] };
}

/** One after the other; who calls more does not end. */
const MOST_CALLS = 127;

/**
 * The texts that call one of these tools. The arguments are objects that meet `parameters`, with white space where the model
 * likes it and no properties but those that the schema names, unless it says otherwise.
 * @throws GrammarError as {@link compileSchema}, with the tool's name; BAD_SCHEMA where there are no tools
 */
export function compileToolCalls(
  tools: readonly { name: string; parameters: unknown }[],
  { before, behind, several }: ToolSyntax,
): Grammar {
  if (tools.length === 0) throw new GrammarError('BAD_SCHEMA', 'There are no tools to call; give one at least.');
  const make = new Expressions();
  const rules: Rule[] = [];
  const space = make.repeat(make.literal(' '), 0, 1);
  const calls = tools.map(({ name, parameters }) => {
    try {
      const cases = new Cases(make, new SchemaDocument(parameters));
      const writer = new Writer(make, cases, { whitespace: 'any', closed: true });
      const object = cases.conditions.schema({ type: 'object' }, { pointer: '', base: 'schema://root/' });
      const given = writer.node(cases.conditions.all(object, cases.root));
      rules.push(...writer.rules);
      const end = make.sequence(writer.marks.space, make.literal(behind));
      return sequence(terminal(make.sequence(make.literal(before(name)), space)), given, terminal(end));
    } catch (error) {
      if (!(error instanceof GrammarError)) throw error;
      throw new GrammarError(error.code, `The tool "${name}": ${error.message}`, { cause: error });
    }
  });
  const one = either(...calls);
  if (!several) return new Grammar(make, one, rules);
  const byte = (text: string) => terminal(make.literal(text));
  const white = terminal(make.repeat(make.either(...[' ', '\n', '\r', '\t'].map((one) => make.literal(one))), 0, 16));
  const next = (...between: string[]) => sequence(white, either(...between.map(byte)), white, one);
  const row = sequence(one, repeat(next('', ',', ';'), 0, MOST_CALLS));
  const list = sequence(byte('['), white, one, repeat(next(','), 0, MOST_CALLS), white, byte(']'));
  const end = repeat(sequence(white, either(...several.ends.map(byte))), 0, 1);
  return new Grammar(make, sequence(white, either(row, list), end), rules);
}
