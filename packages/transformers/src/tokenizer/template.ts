/**
 * What a tokenizer puts around one text and around a pair, read from its post-processor, so that texts can be cut to a length
 * before it is put there: the Rust library's `truncate_encodings` and `post_process`.
 */
import type { TokenizerJson } from './tokenizer';

/** A special token, or one of the texts. */
type Item = { id: number; type: number } | { text: 'A' | 'B'; type: number };

/** Token ids of one input of a model. */
export interface ModelInput {
  ids: number[];
  /** 0 or 1 for each id: which of a pair of texts it belongs to, as models such as BERT are told. */
  types: number[];
  /** Tokens of the texts that did not fit and were left out. */
  dropped: number;
}

export class Template {
  private constructor(
    private readonly single: readonly Item[],
    private readonly pair: readonly Item[],
  ) {}

  /** @param idOf the id of a token by its text */
  static of(json: TokenizerJson, idOf: (token: string) => number | undefined): Template {
    const steps = stepsOf(json.post_processor);
    const template = steps.find(({ type }) => type === 'TemplateProcessing') as TemplateJson | undefined;
    if (template) {
      const both = template.pair.length > 0 ? template.pair : [...template.single, SECOND];
      return new Template(itemsOf(template.single, idOf), itemsOf(both, idOf));
    }
    const marks = steps.find(({ type }) => type === 'BertProcessing' || type === 'RobertaProcessing') as
      | MarksJson
      | undefined;
    if (!marks) return new Template([A], [A, { text: 'B', type: 1 }]);
    const mark = ([, id]: [string, number], type = 0): Item => ({ id, type });
    const isBert = marks.type === 'BertProcessing';
    // RoBERTa has two marks between the texts, and one type for all.
    const between = isBert ? [mark(marks.sep)] : [mark(marks.sep), mark(marks.sep)];
    const second = isBert ? 1 : 0;
    return new Template(
      [mark(marks.cls), A, mark(marks.sep)],
      [mark(marks.cls), A, ...between, { text: 'B', type: second }, mark(marks.sep, second)],
    );
  }

  /** Special tokens around one text, or around and between two. */
  specials(isPair: boolean): number {
    return (isPair ? this.pair : this.single).filter((item) => 'id' in item).length;
  }

  /** @param most tokens of the whole; texts are cut at their ends, of a pair the longer one first */
  apply(a: readonly number[], b: readonly number[] | undefined, most: number): ModelInput {
    const room = Math.max(0, most - this.specials(b !== undefined));
    const [ofA, ofB] = b === undefined ? [Math.min(a.length, room), 0] : shares(a.length, b.length, room);
    const ids: number[] = [];
    const types: number[] = [];
    for (const item of b === undefined ? this.single : this.pair) {
      const part = 'id' in item ? [item.id] : item.text === 'A' ? a.slice(0, ofA) : b!.slice(0, ofB);
      for (const id of part) {
        ids.push(id);
        types.push(item.type);
      }
    }
    return { ids, types, dropped: a.length - ofA + (b === undefined ? 0 : b.length - ofB) };
  }
}

const A: Item = { text: 'A', type: 0 };
const SECOND = { Sequence: { id: 'B', type_id: 1 } };

/** How many tokens of each text stay, so that both together are no more than `room`. */
function shares(a: number, b: number, room: number): [number, number] {
  if (a + b <= room) return [a, b];
  const short = Math.min(a, b);
  const half = Math.floor(room / 2);
  // The shorter text is whole while it takes no more than half; of two equal ones the second keeps the odd token.
  if (short <= half) return a <= b ? [a, room - a] : [room - b, b];
  return a > b ? [room - half, half] : [half, room - half];
}

interface Step {
  type: string;
}

interface TemplateJson extends Step {
  single: ItemJson[];
  pair: ItemJson[];
}

interface MarksJson extends Step {
  cls: [string, number];
  sep: [string, number];
}

interface ItemJson {
  SpecialToken?: { id: string; type_id: number };
  Sequence?: { id: string; type_id: number };
}

function stepsOf(processor: unknown): Step[] {
  if (processor === null || processor === undefined) return [];
  const { type, processors } = processor as { type: string; processors?: unknown[] };
  return type === 'Sequence' ? (processors ?? []).flatMap(stepsOf) : [processor as Step];
}

function itemsOf(items: readonly ItemJson[], idOf: (token: string) => number | undefined): Item[] {
  return items.flatMap(({ SpecialToken: special, Sequence: text }): Item[] => {
    if (text) return [{ text: text.id === 'B' ? 'B' : 'A', type: text.type_id }];
    const id = special && idOf(special.id);
    return id === undefined ? [] : [{ id, type: special!.type_id }];
  });
}
