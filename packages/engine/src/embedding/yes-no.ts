/**
 * Rerankers that are language models: asked whether a document answers a query, they score it by how much more the next token is
 * "yes" than "no". Qwen3-Reranker's template and instruction, from its model card.
 */
import { keep, scope, Tensor } from '@x/core';
import { Linear } from '@x/nn';
import { type DecoderConfig, type Tokenizer, TransformersError, type Weights } from '@x/transformers';
import type { Input } from './inputs';

const BEFORE =
  '<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. ' +
  'Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n';
const BEHIND = '<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n';
const INSTRUCTION = 'Given a web search query, retrieve relevant passages that answer the query';
const ANSWERS = ['yes', 'no'] as const;

/** Whether a model of this name is such a reranker; nothing else in its files says so. */
export function isYesNo(name: string): boolean {
  return /qwen3[-_. ]?reranker/i.test(name);
}

/** What is asked of a pair, as ids. */
export class YesNoPairs {
  private readonly before: number[];
  private readonly behind: number[];

  constructor(private readonly tokenizer: Tokenizer) {
    [this.before, this.behind] = [BEFORE, BEHIND].map((text) => tokenizer.encode(text, { addSpecialTokens: false }));
  }

  /** What does not fit is cut from the document's end, never from the question. @throws TransformersError INVALID_OPTION */
  encode(query: string, document: string, maxTokens: number, instruction = INSTRUCTION): Input {
    const room = maxTokens - this.before.length - this.behind.length;
    if (room < 1) {
      throw new TransformersError(
        'INVALID_OPTION',
        `rerank: maxTokens is ${maxTokens}; the question around a pair takes ${maxTokens - room}, give more than that.`,
      );
    }
    const text = `<Instruct>: ${instruction}\n<Query>: ${query}\n<Document>: ${document}`;
    const middle = this.plain(text);
    const kept = middle.slice(0, room);
    return { ids: [...this.before, ...kept, ...this.behind], dropped: middle.length - kept.length };
  }

  /** Ids of a text of strangers: what it spells of control tokens stays text. */
  private plain(text: string): number[] {
    let code = 0xe000;
    while (text.includes(String.fromCharCode(code))) code++;
    const breaker = String.fromCharCode(code);
    let broken = text;
    for (const control of this.tokenizer.controlTexts) {
      if (control.length > 1) broken = broken.replaceAll(control, control[0] + breaker + control.slice(1));
    }
    return this.tokenizer.encode(broken, { addSpecialTokens: false, breaker });
  }
}

/**
 * The head's rows of "yes" and "no" as one layer, whose result is by how much the first logit is larger: [1, hidden], f32.
 * @throws TransformersError UNSUPPORTED_MODEL for a vocabulary without these tokens
 */
export async function yesNoHead(
  weights: Weights,
  { vocabSize, hiddenSize }: DecoderConfig,
  tokenizer: Tokenizer,
): Promise<Linear> {
  const ids = ANSWERS.map((answer) => {
    const id = tokenizer.tokenToId(answer);
    if (id !== undefined && id < vocabSize) return id;
    throw new TransformersError(
      'UNSUPPORTED_MODEL',
      `The model is loaded as a reranker that answers yes or no, and its vocabulary has no token "${answer}". Leave reranker out, or use another model.`,
    );
  });
  const table = await weights.embedding(weights.has('output') ? 'output' : 'token_embd', vocabSize, hiddenSize);
  try {
    return scope(() => {
      const rows = table.lookup.forward(Tensor.from(Uint32Array.from(ids), { device: weights.device }));
      return new Linear(keep(rows.narrow(0, 0, 1).sub(rows.narrow(0, 1, 1))));
    });
  } finally {
    table.lookup.dispose();
  }
}
