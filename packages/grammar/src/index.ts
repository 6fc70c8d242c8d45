/** JSON Schema, regular expressions, grammars and choices as masks over the tokens of a model. */
export { GrammarError, type GrammarErrorCode } from './errors';
export { Grammar } from './grammar';
export { Matcher } from './matcher';
export { compileSchema, type SchemaOptions, type Whitespace } from './schema';
export { compileChoices, compileGbnf, compileRegex } from './text';
export type { ArgumentNotation } from './tool-values';
export { type CallRow, compileToolCalls, type ToolSyntax } from './tools';
export { Vocabulary, type VocabularyParts } from './vocabulary';
