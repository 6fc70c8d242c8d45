/** Pieces of an answer as parts of the AI SDK's streams: each run of text or reasoning begins and ends. */
import type { LanguageModelV3FinishReason, LanguageModelV3StreamPart, LanguageModelV3Usage } from '@ai-sdk/provider';
import type { ChatGeneration } from '@x/engine';
import type { ChatPiece } from '@x/transformers';

export class ChatParts {
  /** What has begun and not ended. */
  private open: { kind: 'text' | 'reasoning' | 'tool-input'; id: string } | undefined;
  private runs = 0;

  *add(piece: ChatPiece): Generator<LanguageModelV3StreamPart, void, void> {
    switch (piece.type) {
      case 'text':
      case 'reasoning': {
        if (piece.text === '') return;
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
        this.open = { kind: 'tool-input', id: piece.id };
        yield { type: 'tool-input-start', id: piece.id, toolName: piece.name };
        return;
      case 'tool-call-arguments':
        if (this.open) yield { type: 'tool-input-delta', id: this.open.id, delta: piece.text };
        return;
      case 'tool-call-end': {
        yield* this.close();
        const { id, name, arguments: values } = piece.call;
        yield { type: 'tool-call', toolCallId: id, toolName: name, input: JSON.stringify(values) };
      }
    }
  }

  /** Ends what has begun. */
  *close(): Generator<LanguageModelV3StreamPart, void, void> {
    if (this.open) yield { type: `${this.open.kind}-end`, id: this.open.id };
    this.open = undefined;
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
