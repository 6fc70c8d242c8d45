/** Options by their names: what is misspelt or of another type is an error that says which, instead of a default. */
import { kinds } from '@x/core';
import { TransformersError } from '@x/transformers';

/** @throws TransformersError INVALID_OPTION naming the first option that is unknown or not of its kind; undefined is a default */
export function checkOptions(op: string, options: unknown, known: Readonly<Record<string, kinds.Kind>>): void {
  kinds.checkOptions(
    op,
    options,
    known,
    (message, option) => new TransformersError('INVALID_OPTION', message, { option }),
  );
}
