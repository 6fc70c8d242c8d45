/**
 * Groups of schemas and instances in the form of the JSON-Schema-Test-Suite: that of draft 4 from the package
 * `json-schema-test-suite`, and ours for what later drafts brought (`later-drafts.ts`). `X_JSON_SCHEMA_SUITE` names a directory of the
 * suite instead, such as `tests/draft2020-12` of its repository.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js';
import AjvDraft4 from 'ajv-draft-04';
import addFormats from 'ajv-formats';
import { LATER_DRAFTS } from './later-drafts';

export interface Group {
  description: string;
  schema: unknown;
  tests: { description: string; data: unknown; valid: boolean }[];
}

export interface SuiteFile {
  name: string;
  /** Which rules its schemas were written for. */
  draft: 4 | 2020;
  groups: Group[];
}

export function suiteFiles(): SuiteFile[] {
  const given = process.env.X_JSON_SCHEMA_SUITE;
  if (given) return filesUnder(given, given.includes('draft4') ? 4 : 2020);
  const packaged = dirname(createRequire(import.meta.url).resolve('json-schema-test-suite'));
  const ours = Object.entries(LATER_DRAFTS).map(([name, groups]): SuiteFile => ({ name, draft: 2020, groups }));
  return [...filesUnder(join(packaged, 'tests/draft4'), 4), ...ours];
}

function filesUnder(directory: string, draft: SuiteFile['draft']): SuiteFile[] {
  return ['', 'optional', 'optional/format'].flatMap((folder) => {
    let names: string[];
    try {
      names = readdirSync(join(directory, folder));
    } catch {
      return [];
    }
    return (
      names
        // To JavaScript 1.0 and 1 are one value.
        .filter((name) => name.endsWith('.json') && name !== 'zeroTerminatedFloats.json')
        .map((name) => ({
          name: join(folder, name),
          draft,
          groups: JSON.parse(readFileSync(join(directory, folder, name), 'utf8')) as Group[],
        }))
    );
  });
}

/** What ajv makes of a schema; undefined where it does not take it, such as one that refers to another document. */
export function validator(schema: unknown, draft: SuiteFile['draft']): ValidateFunction | undefined {
  const options = { strict: false, validateFormats: true, multipleOfPrecision: 9, logger: false } as const;
  const ajv = draft === 4 ? new AjvDraft4(options) : new Ajv2020(options);
  addFormats(ajv);
  try {
    return ajv.compile(schema as object);
  } catch {
    return undefined;
  }
}
