/**
 * One core a process: what every copy of this package shares, as the ES module and the CommonJS one, or two installed
 * copies. Devices, scopes, gradient mode and counters lie under a symbol on `globalThis`, and the classes have brands
 * (brand.ts), so that a tensor of one copy serves another and a backend registered in one is there in all.
 *
 * That holds for copies of one minor version, whose insides are alike. A copy of another one keeps to itself and refuses
 * work with an error that names both.
 */
import { version as builtVersion } from '../package.json';
import { CandleError } from './errors';
import { ifNode, stackLines } from './platform';

interface Copy {
  readonly version: string;
  /** Of the package's folder, or what is known of its place. */
  readonly path: string;
}

/** The copy that was loaded first, with what it shares. */
interface Core extends Copy {
  readonly state: Record<string, unknown>;
}

const CORE = Symbol.for('x.core');
const own: Copy = installed();
const everywhere = globalThis as { [CORE]?: Core };
everywhere[CORE] ??= { ...own, state: Object.create(null) };
const first: Core = everywhere[CORE];

/** The minor version: the brand of what copies may share. */
export const LINE: string = lineOf(own.version);
const alone = lineOf(first.version) !== LINE;
const state: Record<string, unknown> = alone ? Object.create(null) : first.state;

/** A value that all copies share; `make` runs in the one that asks first. */
export function shared<T>(name: string, make: () => T): T {
  state[name] ??= make();
  return state[name] as T;
}

/** @throws CandleError `CORE_MISMATCH` in a copy of another minor version than the first; nothing throws at import */
export function assertOneCore(): void {
  if (alone) throw mismatch(own);
}

/** The error for a value of a copy of another minor version, or a list with one; undefined for all other values. */
export function foreignCore(value: unknown): CandleError | undefined {
  if (typeof value !== 'object' || value === null) return undefined;
  if (Array.isArray(value)) {
    const item = value.find((each) => !Array.isArray(each) && foreignCore(each) !== undefined);
    return item && foreignCore(item);
  }
  for (const name of ['x.core.tensor', 'x.core.device']) {
    const line = (value as Record<symbol, unknown>)[Symbol.for(name)];
    if (typeof line === 'string' && line !== LINE)
      return alone ? mismatch(own) : mismatch({ version: `${line}.x`, path: 'another place' });
  }
  return undefined;
}

function mismatch(other: Copy): CandleError {
  return new CandleError(
    'CORE_MISMATCH',
    `Two versions of @x/core are loaded, ${first.version} from ${first.path} and ${other.version} from ${other.path}, and their tensors and devices do not mix; give all @x packages one version and remove the other copy: "npm ls @x/core" shows who asks for it, "npm dedupe" joins them.`,
  );
}

function lineOf(version: string): string {
  return version.split('.', 2).join('.');
}

/** This copy as it is installed; in a bundle, as it was built. */
function installed(): Copy {
  const file = ownFile();
  const fs = ifNode('fs');
  const path = ifNode('path');
  if (!file || !fs || !path) return { version: builtVersion, path: file ?? 'a place unknown' };
  for (let folder = path.dirname(file); ; folder = path.dirname(folder)) {
    try {
      const { name, version } = JSON.parse(fs.readFileSync(path.join(folder, 'package.json'), 'utf8'));
      return name === '@x/core' ? { version: String(version), path: folder } : { version: builtVersion, path: file };
    } catch {
      if (path.dirname(folder) === folder) return { version: builtVersion, path: file };
    }
  }
}

/** The file of this module, from a stack: CommonJS and scripts have no `import.meta`. */
function ownFile(): string | undefined {
  const line = stackLines(1)[0] ?? '';
  const place = /(?:\(|at (?:async )?|@)?((?:[a-z]+:\/\/|[A-Z]:[\\/]|\/)[^()]*?)(?:\?[^:]*)?:\d+:\d+\)?$/.exec(
    line,
  )?.[1];
  return place?.startsWith('file://') ? (ifNode('url')?.fileURLToPath(place) ?? place) : place;
}
