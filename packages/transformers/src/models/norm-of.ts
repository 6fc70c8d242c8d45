/** Norms of a model's width, of the kind that its architecture has. */
import type { Module } from '@x/nn';
import type { DecoderConfig } from '../config/decoder-config';
import type { Weights } from '../weights/weights';

/** A norm of either kind. */
export function normOf(source: Weights, kind: 'rms' | 'layer', name: string, config: DecoderConfig): Promise<Module> {
  const { hiddenSize, normEps } = config;
  return kind === 'layer' ? source.layerNorm(name, hiddenSize, normEps) : source.norm(name, hiddenSize, normEps);
}
