/**
 * Texts of a given form: what `generate` is told of it becomes a matcher of `@x/grammar`. Grammars and the tree of a
 * tokenizer's tokens are made once and shared by all sequences.
 */
import { kinds } from '@x/core';
import {
  compileChoices,
  compileGbnf,
  compileRegex,
  compileSchema,
  Grammar,
  type Matcher,
  type SchemaOptions,
  Vocabulary,
} from '@x/grammar';
import {
  isStandardSchema,
  jsonSchemaOf,
  type StandardSchema,
  standardValue,
  type Tokenizer,
  TransformersError,
} from '@x/transformers';
import type { Constraint } from './constraint';

/** A JSON Schema: an object, `true` or `false`. */
export type JsonSchema = object | boolean;

/** The form of a text; one of them at most. */
export interface StructureOptions<T = unknown> {
  /**
   * The text is JSON that meets this schema, and `Generation.value()` gives its value. A schema of a Standard Schema library
   * also checks and transforms the value; objects then have no properties but those that it names.
   */
  schema?: StandardSchema<T> | JsonSchema;
  /** How JSON of a `schema` is written. */
  schemaOptions?: SchemaOptions;
  /** The whole text matches this expression. Of a `RegExp` the flags `i` and `s` count. */
  regex?: string | RegExp;
  /** The text belongs to this grammar: GBNF, or one that `compileSchema` and others of `@x/grammar` made. */
  grammar?: string | Grammar;
  /** The text is one of these. */
  choices?: readonly string[];
}

export const STRUCTURE_OPTIONS: Record<keyof StructureOptions, kinds.Kind> = {
  schema: kinds.kind(
    (value) => typeof value === 'boolean' || isStandardSchema(value) || kinds.isObject(value),
    'give a JSON Schema, or a schema of a library that follows Standard Schema',
  ),
  schemaOptions: kinds.kind(kinds.isObject, 'give an object, such as { whitespace: "spaced" }'),
  regex: kinds.kind((value) => typeof value === 'string' || value instanceof RegExp, 'give a string or a RegExp'),
  grammar: kinds.kind(
    (value) => typeof value === 'string' || value instanceof Grammar,
    'give a grammar in GBNF, or a Grammar',
  ),
  choices: kinds.kind(
    (value) => Array.isArray(value) && value.length > 0 && value.every((text) => typeof text === 'string'),
    'give a list of strings, of one at least',
  ),
};

/**
 * The constraint that the options ask for, if any.
 * @throws GrammarError; TransformersError INVALID_OPTION, UNSUPPORTED_TOKENIZER
 */
export function structureOf(
  options: StructureOptions & { constraint?: Constraint },
  tokenizer: Tokenizer,
  vocabSize: number,
  endIds: readonly number[],
): Constraint | undefined {
  const names = (['schema', 'regex', 'grammar', 'choices', 'constraint'] as const).filter(
    (name) => options[name] !== undefined,
  );
  if (names.length > 1) throw invalid(`${names.join(' and ')} are given together; give one of them`, names[0]);
  if (options.schemaOptions && options.schema === undefined)
    throw invalid('schemaOptions is given without schema', 'schemaOptions');
  if (options.constraint || names.length === 0) return options.constraint;
  const matcher: Matcher = grammarOf(options).matcher(vocabularyOf(tokenizer, vocabSize, endIds));
  return matcher;
}

/**
 * The value of a text that was written for a schema.
 * @throws TransformersError INVALID_VALUE where a Standard Schema library does not take it
 */
export async function parsedValue<T>(schema: StandardSchema<T> | JsonSchema, text: string): Promise<T> {
  const value: unknown = JSON.parse(text);
  if (!isStandardSchema(schema)) return value as T;
  return standardValue(schema as StandardSchema<T>, value, 'The schema refuses the value that the model wrote');
}

/** Grammars in the order of their use, by what they were made from. */
const grammars = new Map<string, Grammar>();
const MOST_GRAMMARS = 16;

function grammarOf({ schema, schemaOptions, regex, grammar, choices }: StructureOptions): Grammar {
  if (grammar instanceof Grammar) return grammar;
  if (grammar !== undefined) return remembered(`g${grammar}`, () => compileGbnf(grammar));
  if (choices) return remembered(`c${JSON.stringify(choices)}`, () => compileChoices(choices));
  if (regex !== undefined) {
    const [source, flags] = typeof regex === 'string' ? [regex, ''] : [regex.source, regex.flags];
    return remembered(`r${flags}/${source}`, () => compileRegex(source, flags));
  }
  const json = isStandardSchema(schema) ? jsonSchemaOf(schema, (why) => invalid(why, 'schema')) : schema;
  const options = { closed: isStandardSchema(schema), ...schemaOptions };
  let key: string | undefined;
  try {
    key = `s${options.whitespace} ${options.closed} ${JSON.stringify(json)}`;
  } catch {
    // Something that is no JSON, which compileSchema says.
  }
  return remembered(key, () => compileSchema(json, options));
}

function remembered(key: string | undefined, compile: () => Grammar): Grammar {
  const known = key === undefined ? undefined : grammars.get(key);
  const grammar = known ?? compile();
  if (key === undefined) return grammar;
  grammars.delete(key);
  grammars.set(key, grammar);
  for (const oldest of grammars.keys()) {
    if (grammars.size <= MOST_GRAMMARS) break;
    grammars.delete(oldest);
  }
  return grammar;
}

/** Of each tokenizer by the width of the logits, the tokens that end a text, which chats may add to, and those of marks. */
const vocabularies = new WeakMap<Tokenizer, Map<string, Vocabulary>>();

/** @param marks texts of tokens that stand for nothing else */
export function vocabularyOf(
  tokenizer: Tokenizer,
  size: number,
  endIds: readonly number[],
  marks: ReadonlyMap<number, string> = new Map(),
): Vocabulary {
  const ends = endIds.filter((id) => id < size);
  const known = vocabularies.get(tokenizer) ?? new Map<string, Vocabulary>();
  vocabularies.set(tokenizer, known);
  const key = JSON.stringify([size, ends, [...marks]]);
  const vocabulary = known.get(key) ?? new Vocabulary({ size, bytes: tokenizer.tokenBytes(), endIds: ends, marks });
  known.set(key, vocabulary);
  return vocabulary;
}

function invalid(what: string, option: string): TransformersError {
  return new TransformersError('INVALID_OPTION', `generate: ${what}.`, { option });
}
