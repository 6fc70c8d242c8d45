/**
 * What an encoder is to whoever runs it: weights, and a pass over packed sequences, in which every token sees its whole
 * sequence. Nothing is remembered between passes and nothing is padded.
 */
import type { Device, Tensor } from '@x/core';
import type { Segments } from '@x/nn';
import type { DecoderConfig } from '../config/decoder-config';
import type { ForwardPass } from '../models/causal-model';

/** Sequences one after the other. Everything lies on the model's device. */
export interface EncoderBatch {
  /** [tokens], u32 */
  tokens: Tensor;
  /** [tokens], u32: the place of each token in its sequence. */
  positions: Tensor;
  /** [tokens], u32: 0 in the first of a pair of texts, 1 in the second. Default: all are 0. */
  types?: Tensor;
  segments: Segments;
}

export interface EncoderModel {
  readonly config: DecoderConfig;
  readonly device: Device;
  /** Results of the classification head; 0 where the model has none. */
  readonly labels: number;
  /** Returns the last hidden states [tokens, hiddenSize], f32; the caller's to dispose. */
  pass(batch: EncoderBatch): ForwardPass;
  /**
   * What the classification head makes of the hidden states of a pass: [sequences, labels], f32.
   * @throws TransformersError UNSUPPORTED_MODEL for a model without such a head
   */
  classify(hidden: Tensor, segments: Segments): Tensor;
  /** Gives the weights back. Harmless when repeated. */
  dispose(): void;
}
