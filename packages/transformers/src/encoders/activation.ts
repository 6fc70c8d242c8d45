/** Which activation an encoder's feed-forward layers have. */
import { type ActivationName, isActivation } from '@x/nn';
import type { ConfigSource } from '../config/config-source';
import type { DecoderConfig } from '../config/decoder-config';
import { shown, unsupported } from '../config/problems';

export interface ActivatedConfig extends DecoderConfig {
  activation: ActivationName;
}

/** Of config.json; GGUF files do not say it, and llama.cpp computes gelu for all. */
export function encoderActivation(source: ConfigSource): ActivationName {
  const keys = ['hidden_activation', 'hidden_act', 'activation_function'];
  const name = keys.map((key) => source.json(key)).find((value) => value != null) ?? 'gelu';
  if (typeof name === 'string' && isActivation(name) && name !== 'swiglu') return name;
  throw unsupported(`uses the activation ${shown(name)}`);
}
