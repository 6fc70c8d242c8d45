/** What other libraries compute for the models in `models/`: `golden.json.gz` beside the weights. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';

const FILE = 'golden.json.gz';

/** The golden values of a model. @param folder its own */
export function readGolden<T>(folder: string): T {
  return JSON.parse(gunzipSync(readFileSync(join(folder, FILE))).toString('utf8')) as T;
}

/** The names of the folders in `models` that have golden values. */
export function goldenNames(models: string): string[] {
  return readdirSync(models).filter((name) => existsSync(join(models, name, FILE)));
}
