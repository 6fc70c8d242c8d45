/** Drawing from logits on their device: candle-nn's `sampling` (sampling.rs). */
import { scope, type Tensor } from '@x/core';
import { checkDim, checkNumbers, checkTensors } from './check';

/**
 * Indices drawn from softmax(logits / temperature) along `dim`, as u32, by the Gumbel trick: the largest of the logits with
 * noise added. Nothing is copied back. A temperature of 0 or less takes the largest logit. Numbers come from the device's
 * stream: see `Device.setSeed`.
 */
export function gumbelSoftmax(logits: Tensor, temperature: number, dim: number): Tensor {
  checkTensors('gumbelSoftmax', { logits });
  checkNumbers('gumbelSoftmax', { temperature });
  checkDim('gumbelSoftmax', dim);
  if (!(temperature > 0)) return logits.argmax(dim);
  return scope(() => {
    // bf16 and f16 have too few values for the noise.
    const wide = logits.toDtype('f32');
    const minusNoise = wide.randLike(1e-7, 0.999).log().neg().log();
    return wide.sub(minusNoise.affine(temperature, 0)).argmax(dim);
  });
}
