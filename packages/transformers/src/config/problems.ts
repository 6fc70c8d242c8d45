/** Errors of configurations, and how they show values. */
import { TransformersError } from '../errors';

/** @param what continues "config.json" */
export function badConfig(what: string): TransformersError {
  return new TransformersError('BAD_CONFIG', `config.json ${what}.`);
}

/** @param what continues "This model" */
export function unsupported(what: string): TransformersError {
  return new TransformersError(
    'UNSUPPORTED_MODEL',
    `This model ${what}; that is not supported. Use another model or conversion.`,
  );
}

/** A value of any kind for a message. */
export function shown(value: unknown): string {
  const text = JSON.stringify(value) ?? 'nothing';
  return text.length > 80 ? `${text.slice(0, 80)}...` : text;
}
