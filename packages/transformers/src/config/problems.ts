/** Errors of configurations, and how they show values. */
import { kinds } from '@x/core';
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
export const shown: (value: unknown) => string = kinds.show;
