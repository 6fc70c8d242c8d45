/**
 * Unigram vocabularies of GGUF files (`tokenizer.ggml.model` = "t5"): SentencePiece's pieces with their scores, and its table of
 * characters. As transformers converts such models.
 */
import type { GgufMetadata } from '@x/quantized';
import { TransformersError } from '../errors';
import type { TokenizerJson } from './tokenizer';

/** @param scores of the tokens @param unknown the id of the unknown token */
export function unigram(
  metadata: GgufMetadata,
  tokens: readonly string[],
  scores: readonly number[],
  unknown: number | undefined,
): Omit<TokenizerJson, 'added_tokens' | 'post_processor'> {
  const bad = scores.findIndex((score) => !Number.isFinite(score));
  if (bad >= 0) {
    throw new TransformersError(
      'BAD_GGUF_METADATA',
      `The GGUF file's vocabulary has the score ${scores[bad]} for token ${bad}; convert the file again.`,
    );
  }
  const table = metadata.has('tokenizer.ggml.precompiled_charsmap')
    ? Uint8Array.from(metadata.numbers('tokenizer.ggml.precompiled_charsmap'), (byte) => byte & 255)
    : new Uint8Array();
  const normalizers: unknown[] = [];
  if (table.length > 0)
    normalizers.push({ type: 'Precompiled', precompiled_charsmap: Buffer.from(table).toString('base64') });
  if (metadata.bool('tokenizer.ggml.remove_extra_whitespaces', true)) {
    normalizers.push({ type: 'Strip', strip_left: false, strip_right: true });
    normalizers.push({ type: 'Replace', pattern: { Regex: ' {2,}' }, content: ' ' });
  }
  const prefix = metadata.bool('tokenizer.ggml.add_space_prefix', true);
  const metaspace = { type: 'Metaspace', replacement: '▁', prepend_scheme: prefix ? 'always' : 'never', split: true };
  return {
    normalizer: { type: 'Sequence', normalizers },
    pre_tokenizer: metaspace,
    decoder: metaspace,
    model: { type: 'Unigram', unk_id: unknown ?? null, vocab: tokens.map((token, id) => [token, scores[id]]) },
  };
}
