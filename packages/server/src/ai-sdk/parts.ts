/** Pieces of an answer as parts of the AI SDK's streams: each run of text or reasoning begins and ends. */
import type { LanguageModelV3FinishReason, LanguageModelV3StreamPart, LanguageModelV3Usage } from '@ai-sdk/provider';
import type { ChatGeneration } from '@x/engine';
import type { ChatPiece } from '@x/transformers';

type Open =
  | { kind: 'text' | 'reasoning'; id: string }
  | { kind: 'tool-input'; id: string; name: string; input: string };

export class ChatParts {
  /** What has begun and not ended. */
  private open: Open | undefined;
  private runs = 0;

  *add(piece: ChatPiece): Generator<LanguageModelV3StreamPart, void, void> {
    switch (piece.type) {
      case 'text':
      case 'reasoning': {
        if (piece.text === '' || ('ofCall' in piece && piece.ofCall !== undefined)) return;
        if (this.open?.kind !== piece.type) {
          yield* this.close();
          this.open = { kind: piece.type, id: String(this.runs++) };
          yield { type: `${piece.type}-start`, id: this.open.id };
        }
        yield { type: `${piece.type}-delta`, id: this.open!.id, delta: piece.text };
        return;
      }
      case 'tool-call-start':
        yield* this.close();
        this.open = { kind: 'tool-input', id: piece.id, name: piece.name, input: '' };
        yield { type: 'tool-input-start', id: piece.id, toolName: piece.name };
        return;
      case 'tool-call-arguments':
        if (this.open?.kind !== 'tool-input') return;
        this.open.input += piece.text;
        yield { type: 'tool-input-delta', id: this.open.id, delta: piece.text };
        return;
      case 'tool-call-end':
        if (this.open?.kind === 'tool-input') this.open.input = JSON.stringify(piece.call.arguments);
        yield* this.close();
    }
  }

  /** Ends what has begun. A call that broke off goes out as it is: the SDK says what it lacks, or has it mended. */
  *close(): Generator<LanguageModelV3StreamPart, void, void> {
    const { open } = this;
    this.open = undefined;
    if (!open) return;
    yield { type: `${open.kind}-end`, id: open.id };
    if (open.kind === 'tool-input')
      yield { type: 'tool-call', toolCallId: open.id, toolName: open.name, input: open.input };
  }

  end(generation: ChatGeneration): { usage: LanguageModelV3Usage; finishReason: LanguageModelV3FinishReason } {
    const { promptTokens, reusedTokens, tokens, reasoningTokens = 0 } = generation.stats;
    return {
      finishReason: { unified: unified(generation.finishReason), raw: generation.finishReason },
      usage: {
        inputTokens: {
          total: promptTokens,
          noCache: promptTokens - reusedTokens,
          cacheRead: reusedTokens,
          cacheWrite: undefined,
        },
        outputTokens: { total: tokens, text: tokens - reasoningTokens, reasoning: reasoningTokens },
      },
    };
  }
}

function unified(reason: ChatGeneration['finishReason']): LanguageModelV3FinishReason['unified'] {
  if (reason === 'tool-calls') return 'tool-calls';
  if (reason === 'length' || reason === 'context') return 'length';
  return reason === 'eos' || reason === 'stop' ? 'stop' : 'other';
}
