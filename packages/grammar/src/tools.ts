/** Calls of tools: one of several names with arguments that meet its schema. */
import { GrammarError } from './errors';
import { Grammar } from './grammar';
import { Expressions } from './regular/expression';
import { Cases } from './schema/cases';
import { SchemaDocument } from './schema/document';
import { Writer } from './schema/writer';
import { either, type Rule, sequence, terminal } from './syntax/node';

export interface ToolSyntax {
  /** What comes before the arguments of a tool, by its name; the arguments may have a space in front. */
  before(name: string): string;
  /** What comes behind the arguments. */
  behind: string;
}

/**
 * The texts that call one of these tools. The arguments are objects that meet `parameters`, with white space where the model
 * likes it and no properties but those that the schema names, unless it says otherwise.
 * @throws GrammarError as {@link compileSchema}, with the tool's name; BAD_SCHEMA where there are no tools
 */
export function compileToolCalls(
  tools: readonly { name: string; parameters: unknown }[],
  { before, behind }: ToolSyntax,
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
  return new Grammar(make, either(...calls), rules);
}
