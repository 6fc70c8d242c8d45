/**
 * The syntax tree that `@huggingface/jinja` parses a template into: its node types are not exported. The parser is used as it
 * is; what nodes mean is decided in interpreter.ts, because the package's own runtime differs from Python's Jinja without a word
 * (equality of lists, `strip('\n')`, variables of a loop, output before `break`) and has no bounds.
 */
import { parse, tokenize } from '@huggingface/jinja';
import { templateError } from './budget';

export type Node =
  | { type: 'If'; test: Node; body: Node[]; alternate: Node[] }
  | { type: 'For'; loopvar: Node; iterable: Node; body: Node[]; defaultBlock: Node[] }
  | { type: 'Break' | 'Continue' | 'Comment' }
  | { type: 'Set'; assignee: Node; value: Node | null; body: Node[] }
  | { type: 'Macro'; name: Identifier; args: Parameter[]; body: Node[] }
  | { type: 'CallStatement'; call: CallNode; callerArgs: Parameter[] | null; body: Node[] }
  | { type: 'FilterStatement'; filter: Identifier | CallNode; body: Node[] }
  | { type: 'MemberExpression'; object: Node; property: Node; computed: boolean }
  | CallNode
  | Identifier
  | { type: 'IntegerLiteral' | 'FloatLiteral'; value: number }
  | { type: 'StringLiteral'; value: string }
  | { type: 'ArrayLiteral' | 'TupleLiteral'; value: Node[] }
  | { type: 'ObjectLiteral'; value: Map<Node, Node> }
  | { type: 'BinaryExpression'; operator: { value: string }; left: Node; right: Node }
  | { type: 'UnaryExpression'; operator: { value: string }; argument: Node }
  | { type: 'FilterExpression'; operand: Node; filter: Identifier | CallNode }
  | { type: 'TestExpression'; operand: Node; negate: boolean; test: Identifier }
  | { type: 'SelectExpression'; lhs: Node; test: Node }
  | { type: 'Ternary'; condition: Node; trueExpr: Node; falseExpr: Node }
  | { type: 'SliceExpression'; start?: Node; stop?: Node; step?: Node }
  | KeywordNode
  | { type: 'SpreadExpression' | 'KeywordSpreadExpression'; argument: Node };

export interface Identifier {
  type: 'Identifier';
  value: string;
}
export interface CallNode {
  type: 'CallExpression';
  callee: Node;
  args: Node[];
}
export interface KeywordNode {
  type: 'KeywordArgumentExpression';
  key: Identifier;
  value: Node;
}
export type Parameter = Identifier | KeywordNode;

/** Characters of a template; the longest of published models have some 20,000. */
const MOST_CHARACTERS = 2 ** 18;
/** White space in a row, whose square the parser's expressions take. */
const MOST_SPACE = 1000;

/** @throws TransformersError BAD_CHAT_TEMPLATE */
export function parseTemplate(source: string): Node[] {
  if (source.length > MOST_CHARACTERS)
    throw templateError(`it has ${source.length} characters, at most ${MOST_CHARACTERS} are read`);
  for (let i = 0, run = 0; i < source.length; i++) {
    run = source[i].trim() === '' ? run + 1 : 0;
    if (run > MOST_SPACE) throw templateError(`it has more than ${MOST_SPACE} characters of white space in a row`);
  }
  try {
    const tokens = tokenize(source.replace(/\r\n?/g, '\n'), { lstrip_blocks: true, trim_blocks: true });
    return parse(tokens).body as unknown as Node[];
  } catch (cause) {
    // The parser reads past the last token without looking.
    const isCut = cause instanceof TypeError;
    const why = cause instanceof RangeError ? 'it is nested too deeply' : isCut ? 'it ends too early' : undefined;
    throw templateError(`it cannot be parsed (${why ?? (cause as Error).message})`, cause);
  }
}
