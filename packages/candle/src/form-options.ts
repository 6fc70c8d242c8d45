/** Options that give a text a form: JSON of a schema, an expression, a grammar, or one of some texts. */
import { readFileSync } from 'node:fs';
import { readJsonFile } from '@x/core/files';
import { compileChoices, compileGbnf, compileRegex, compileSchema, type Grammar } from '@x/grammar';
import type { Command } from 'commander';
import { UsageError } from './output';

export interface FormFlags {
  schema?: string;
  regex?: string;
  grammar?: string;
  choices?: string[];
}

/** Adds the flags of {@link FormFlags}. */
export function addFormFlags(command: Command): Command {
  return command
    .option('--schema <file>', 'write JSON that meets the JSON Schema in this file')
    .option('--regex <pattern>', 'write a text that a JavaScript expression matches as a whole')
    .option('--grammar <file>', 'write a text of the grammar in this file, in GBNF')
    .option('--choices <a,b>', 'write one of these texts', (text: string) => text.split(','));
}

/** The form that the options ask for, compiled before the model is loaded. @throws UsageError, GrammarError */
export function grammarOf({ schema, regex, grammar, choices }: FormFlags): Grammar | undefined {
  const given = Object.entries({ schema, regex, grammar, choices }).filter(([, value]) => value !== undefined);
  if (given.length > 1)
    throw new UsageError(`${given.map(([name]) => `--${name}`).join(' and ')} are given together. Give one of them.`);
  if (schema !== undefined) return compileSchema(readJsonFile(schema));
  if (regex !== undefined) return compileRegex(regex);
  if (grammar !== undefined) return compileGbnf(textOfFile(grammar));
  return choices && compileChoices(choices);
}

function textOfFile(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    throw new UsageError(`${path} cannot be read (${(error as Error).message}). Give a file with a grammar.`);
  }
}
