/** Regular expressions, GBNF and choices as grammars. */
import { kinds } from '@x/core';
import { GrammarError } from '../errors';
import { Grammar } from '../grammar';
import { Expressions } from '../regular/expression';
import { either, terminal } from '../syntax/node';
import { readGbnf } from './gbnf';
import { wholeMatch } from './pattern';

const MOST_CHOICES = 100_000;

/**
 * The texts that an expression matches as a whole.
 * @param source of a JavaScript RegExp; no backreferences, lookbehind and word boundaries
 * @param flags of it: `i` and `s` count, and `d`, `g`, `u`, `v` and `y` mean nothing here
 * @throws GrammarError BAD_PATTERN, TOO_LARGE, UNSATISFIABLE
 */
export function compileRegex(source: string, flags = ''): Grammar {
  kinds.check('compileRegex', 'flags', flags, kinds.STRING);
  const make = new Expressions();
  const expression = wholeMatch(make, source, flags);
  return new Grammar(make, make.isProductive(expression) ? terminal(expression) : either(), []);
}

/**
 * A grammar in llama.cpp's GBNF, with the texts of its rule `root`.
 * @throws GrammarError BAD_GRAMMAR with the line, TOO_LARGE, UNSATISFIABLE
 */
export function compileGbnf(source: string): Grammar {
  kinds.check('compileGbnf', 'source', source, kinds.STRING);
  const make = new Expressions();
  const { root, rules } = readGbnf(make, source);
  return new Grammar(make, root, rules);
}

/** Any of these texts. @throws GrammarError BAD_GRAMMAR for none, and for what are no texts; TOO_LARGE */
export function compileChoices(choices: readonly string[]): Grammar {
  const isText = (choice: unknown) => typeof choice === 'string' && !/\p{Surrogate}/u.test(choice);
  if (!Array.isArray(choices) || choices.length === 0 || !choices.every(isText))
    throw new GrammarError(
      'BAD_GRAMMAR',
      'The choices are no list of texts; give strings of whole characters, one at least.',
    );
  if (choices.length > MOST_CHOICES)
    throw new GrammarError('TOO_LARGE', `There are ${choices.length} choices; give at most ${MOST_CHOICES}.`);
  const make = new Expressions();
  return new Grammar(make, terminal(make.literals(choices)), []);
}
