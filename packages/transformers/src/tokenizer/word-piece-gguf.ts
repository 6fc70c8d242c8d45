/**
 * WordPiece vocabularies of GGUF files (`tokenizer.ggml.model` = "bert"): llama.cpp's converter takes `##` from the pieces
 * that continue a word and puts `▁` in front of those that begin one.
 */
import type { GgufMetadata } from '@x/quantized';
import type { TokenizerJson } from './tokenizer';

const PREFIX = '##';

/** @param isControl whether a token is no piece of text, such as `[CLS]`; these are stored as they are */
export function wordPiece(
  metadata: GgufMetadata,
  tokens: readonly string[],
  isControl: (id: number) => boolean,
  unknown: string,
): { json: Omit<TokenizerJson, 'added_tokens' | 'post_processor'> } {
  const pieces = tokens.map((token, id) => {
    if (isControl(id) || /^\[.+\]$/.test(token)) return token;
    return token.startsWith('▁') ? token.slice(1) : `${PREFIX}${token}`;
  });
  const lowercase = metadata.bool('tokenizer.ggml.normalizer.lowercase', true);
  return {
    json: {
      normalizer: {
        type: 'BertNormalizer',
        clean_text: true,
        handle_chinese_chars: true,
        strip_accents: null,
        lowercase,
      },
      pre_tokenizer: { type: 'BertPreTokenizer' },
      decoder: { type: 'WordPiece', prefix: PREFIX, cleanup: false },
      model: {
        type: 'WordPiece',
        unk_token: unknown,
        continuing_subword_prefix: PREFIX,
        max_input_chars_per_word: 100,
        vocab: Object.fromEntries(pieces.map((token, id) => [token, id])),
      },
    },
  };
}
