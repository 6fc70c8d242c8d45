/** Which layers see a window of positions only: `layer_types` of config.json, an array of flags in GGUF files, or every so many. */
import type { ConfigSource } from './config-source';
import { checkRope } from './decoder-config';
import { shown, unsupported } from './problems';
import type { RopeConfig } from './rope';

/**
 * True for layers with a window.
 * @param pattern where the file does not say: all layers but each of so many, 0 for none
 */
export function windowedLayers(source: ConfigSource, numLayers: number, pattern: number): boolean[] {
  const types = source.json('layer_types') ?? undefined;
  const flags = source.flags('sliding_window_pattern');
  if (types !== undefined) {
    const known = ['sliding_attention', 'full_attention'];
    if (!Array.isArray(types) || types.length !== numLayers || !types.every((type) => known.includes(type))) {
      throw unsupported(`has layer_types ${shown(types)}; ${numLayers} of "${known.join('" or "')}" work`);
    }
    return types.map((type) => type === 'sliding_attention');
  }
  if (flags !== undefined) {
    if (flags.length === numLayers) return [...flags];
    throw unsupported(`says of ${flags.length} layers whether they have a window, but has ${numLayers}`);
  }
  if (source.format === 'gguf' && source.has('sliding_window_pattern')) {
    // In llama.cpp 0 is all of them.
    const every = source.number('sliding_window_pattern');
    return Array.from({ length: numLayers }, (_, i) => every === 0 || (i + 1) % every !== 0);
  }
  const every = source.jsonWhole('sliding_window_pattern', source.jsonWhole('_sliding_window_pattern', pattern));
  return Array.from({ length: numLayers }, (_, i) => every > 0 && (i + 1) % every !== 0);
}

/** The window of layers that have one; undefined where a GGUF file gives none, or 0: then no layer has. */
export function windowOfSome(source: ConfigSource): number | undefined {
  if (source.format === 'gguf' && source.number('sliding_window', 0) === 0) return undefined;
  return source.count('sliding_window');
}

/** Whether windows are in all layers but each of so many, which files that do not say it mean. */
export function isPattern(windowed: readonly boolean[], every: number): boolean {
  return windowed.every((flag, i) => flag === ((i + 1) % every !== 0));
}

/** The window of models that have one where `use_sliding_window` says so; undefined for none, as in all GGUF files. */
export function askedWindow(source: ConfigSource): number | undefined {
  const asked = source.jsonFlag('use_sliding_window', false) && source.json('sliding_window') != null;
  return asked ? source.count('sliding_window') : undefined;
}

/**
 * The window of each layer of Qwen's dense models: of those that `layer_types` names, else of those from `max_window_layers` on.
 * Undefined for layers that see everything.
 */
export function qwenWindows(source: ConfigSource, numLayers: number): (number | undefined)[] {
  const all = Array.from({ length: numLayers }, () => undefined);
  const window = askedWindow(source);
  if (window === undefined) return all;
  const named = source.json('layer_types') != null;
  const first = source.jsonWhole('max_window_layers', 28);
  const windowed = named ? windowedLayers(source, numLayers, 0) : all.map((_, i) => i >= first);
  return windowed.map((flag) => (flag ? window : undefined));
}

/** How layers with a window rotate where it is not as the others do: by a base of their own, unscaled unless it says so. */
export function windowedRope(
  source: ConfigSource,
  { rotaryDim, ropeTheta }: RopeConfig,
  theta = ropeTheta,
): RopeConfig {
  return checkRope({
    rotaryDim,
    ropeTheta: source.number('rope_local_base_freq', theta),
    ropeScaling: source.ropeScaling('sliding_attention'),
  });
}
