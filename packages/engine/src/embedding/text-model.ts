/** Encoders, and decoders of which only the hidden states are wanted, as one thing: ids of several texts in, vectors out. */
import { type Device, scope, Tensor } from '@x/core';
import { type Module, Segments } from '@x/nn';
import {
  type CausalModel,
  type DecoderConfig,
  type EncoderModel,
  type ForwardPass,
  PackedKv,
  poolRows,
} from '@x/transformers';

/** Ids of one text, or of a pair. */
export interface TextIds {
  ids: ArrayLike<number>;
  /** As `ModelInput.types`; without it all are 0. */
  types?: ArrayLike<number>;
}

/** One batch on the device. */
export interface PackedTexts {
  segments: Segments;
  tokens: Tensor;
  positions: Tensor;
  types?: Tensor;
  dispose(): void;
}

export interface TextModel {
  readonly config: DecoderConfig;
  readonly device: Device;
  readonly isEncoder: boolean;
  /** Results of the classification head; 0 where the model has none. */
  readonly labels: number;
  /** Returns hidden states [tokens, hiddenSize]. */
  pass(batch: PackedTexts): ForwardPass;
  /** Of hidden states: [texts, labels], f32. */
  classify(hidden: Tensor, segments: Segments): Tensor;
  dispose(): void;
}

/** Puts texts one behind the other; none is empty. */
export function packTexts(texts: readonly TextIds[], device: Device): PackedTexts {
  const segments = new Segments(
    texts.map(({ ids }) => ids.length),
    device,
  );
  const tokens = new Uint32Array(segments.tokens);
  const positions = new Uint32Array(segments.tokens);
  const kinds = new Uint32Array(segments.tokens);
  texts.forEach(({ ids, types }, i) => {
    const start = segments.starts[i];
    tokens.set(ids, start);
    if (types) kinds.set(types, start);
    for (let at = 0; at < ids.length; at++) positions[start + at] = at;
  });
  const parts = [tokens, positions, ...(kinds.some((kind) => kind !== 0) ? [kinds] : [])];
  const made = parts.map((part) => Tensor.from(part, { device }));
  return {
    segments,
    tokens: made[0],
    positions: made[1],
    types: made[2],
    dispose: () => {
      for (const thing of [...made, segments]) thing.dispose();
    },
  };
}

export function encoderTexts(model: EncoderModel): TextModel {
  const { config, device, labels } = model;
  return {
    config,
    device,
    isEncoder: true,
    labels,
    pass: (batch) => model.pass(batch),
    classify: (hidden, segments) => model.classify(hidden, segments),
    dispose: () => model.dispose(),
  };
}

/** @param causal whether a token sees those in front of it only @param head of the last token's hidden state */
export function decoderTexts(model: CausalModel, causal: boolean, head?: { layer: Module; labels: number }): TextModel {
  const { config, device } = model;
  return {
    config,
    device,
    isEncoder: false,
    labels: head?.labels ?? 0,
    pass: ({ tokens, positions, segments }) =>
      model.pass({ tokens, positions, outputs: 'hidden' }, new PackedKv(segments, causal)),
    classify: (hidden, segments) => scope(() => head!.layer.forward(poolRows(hidden, segments, 'last'))),
    dispose: () => {
      head?.layer.dispose();
      model.dispose();
    },
  };
}
