/** Which activation an encoder's feed-forward layers have. */
import { type ActivationName, isActivation } from '@x/nn';
import type { ConfigSource } from '../config/config-source';
import type { DecoderConfig } from '../config/decoder-config';
import { shown, unsupported } from '../config/problems';

export interface ActivatedConfig extends DecoderConfig {
  activation: ActivationName;
}

/** Of config.json; GGUF files do not say it, and llama.cpp computes the usual one. */
export function encoderActivation(source: ConfigSource, usual: ActivationName = 'gelu'): ActivationName {
  const keys = ['hidden_activation', 'hidden_act', 'activation_function'];
  return activationOf(keys.map((key) => source.json(key)).find((value) => value != null) ?? usual);
}

/** @param name in config.json @throws TransformersError UNSUPPORTED_MODEL */
export function activationOf(name: unknown): ActivationName {
  if (typeof name === 'string' && isActivation(name) && name !== 'swiglu') return name;
  throw unsupported(`uses the activation ${shown(name)}`);
}
