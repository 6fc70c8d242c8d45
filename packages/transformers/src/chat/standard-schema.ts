/** Schemas of libraries that follow Standard Schema (standardschema.dev), such as zod, as JSON Schema and as checks of values. */
import { TransformersError } from '../errors';

/** A schema of a library that follows Standard Schema (standardschema.dev), such as zod 4.2 and later. */
export interface StandardSchema<T = unknown> {
  readonly '~standard': {
    readonly version: number;
    readonly vendor: string;
    readonly validate: (value: unknown) => StandardResult<T> | Promise<StandardResult<T>>;
    readonly types?: { readonly input: unknown; readonly output: T } | undefined;
    readonly jsonSchema?: { readonly input: (options: { target: 'draft-2020-12' }) => Record<string, unknown> };
  };
}

export type StandardResult<T> =
  | { readonly value: T; readonly issues?: undefined }
  | { readonly issues: readonly { readonly message: string; readonly path?: readonly unknown[] | undefined }[] };

/** Whether a value has the `validate` of Standard Schema. Some libraries' schemas are functions. */
export function isStandardSchema(value: unknown): value is StandardSchema {
  const holder = (typeof value === 'object' || typeof value === 'function') && value !== null ? value : {};
  return '~standard' in holder && typeof (holder as StandardSchema)['~standard']?.validate === 'function';
}

/** Of schemas that were asked before; libraries make a new object each time. */
const known = new WeakMap<StandardSchema, Record<string, unknown>>();

/**
 * The JSON Schema (2020-12) of the values that a schema takes, before it transforms them.
 * @param fail makes the error for a schema that has none, of a sentence that says why and what to do
 */
export function jsonSchemaOf(schema: StandardSchema, fail: (why: string) => Error): Record<string, unknown> {
  const before = known.get(schema);
  if (before) return before;
  const { jsonSchema, vendor } = schema['~standard'];
  const { toJSONSchema } = schema as { toJSONSchema?: (options: object) => unknown };
  let given: unknown;
  try {
    if (jsonSchema) given = jsonSchema.input({ target: 'draft-2020-12' });
    else if (typeof toJSONSchema === 'function') given = toJSONSchema.call(schema, { io: 'input' });
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw fail(`the ${vendor} schema has no JSON Schema (${why}); describe only what JSON can hold`);
  }
  if (typeof given !== 'object' || given === null)
    throw fail(`the ${vendor} schema does not tell its JSON Schema; give that instead, such as z.toJSONSchema(schema)`);
  const found = given as Record<string, unknown>;
  known.set(schema, found);
  return found;
}

/**
 * What a schema makes of a value.
 * @param refused how an error begins, such as "The schema refuses the value that the model wrote"
 * @throws TransformersError INVALID_VALUE
 */
export async function standardValue<T>(schema: StandardSchema<T>, value: unknown, refused: string): Promise<T> {
  const result = await schema['~standard'].validate(value);
  if (result.issues === undefined) return result.value;
  const issues = result.issues.map(({ message, path }) => `${path?.map(pathStep).join('.') ?? ''}: ${message}`);
  throw new TransformersError(
    'INVALID_VALUE',
    `${refused} (${issues.join('; ').slice(0, 500)}); what it checks beyond its JSON Schema has to be tried again.`,
  );
}

/** A step is a key, or an object with one. */
function pathStep(step: unknown): string {
  return String(typeof step === 'object' && step !== null && 'key' in step ? step.key : step);
}
