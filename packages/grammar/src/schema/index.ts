/** JSON Schema as a grammar. */
import { kinds } from '@x/core';
import { GrammarError } from '../errors';
import { Grammar } from '../grammar';
import { Expressions } from '../regular/expression';
import { Cases } from './cases';
import { SchemaDocument } from './document';
import { WHITESPACES, type Whitespace, Writer } from './writer';

export type { Whitespace } from './writer';

export interface SchemaOptions {
  /** Between the parts of the text. Default `compact`: none. */
  whitespace?: Whitespace;
  /**
   * Objects whose schema names properties and says nothing of others have no others. Default false: others may follow, as JSON
   * Schema has it.
   */
  closed?: boolean;
}

/**
 * The JSON texts that a schema allows: JSON Schema draft 2020-12, and of older drafts what differs only in name. Every keyword is
 * enforced or an error.
 * @throws GrammarError BAD_SCHEMA, UNSUPPORTED_KEYWORD, BAD_PATTERN, TOO_LARGE, each with a JSON Pointer; UNSATISFIABLE
 */
export function compileSchema(schema: unknown, options: SchemaOptions = {}): Grammar {
  kinds.check('compileSchema', 'options', options, kinds.OBJECT);
  const { whitespace = 'compact', closed = false } = options;
  if (!WHITESPACES.includes(whitespace))
    throw new GrammarError(
      'BAD_SCHEMA',
      `whitespace is "${String(whitespace)}"; give one of ${WHITESPACES.join(', ')}.`,
    );
  const make = new Expressions();
  const cases = new Cases(make, new SchemaDocument(schema));
  const writer = new Writer(make, cases, { whitespace, closed });
  return new Grammar(make, writer.node(cases.root), writer.rules);
}
