/**
 * Whether two loads are of the same model, without reading all of it: a hash over its configuration, the sizes of its files
 * and samples of their bytes.
 */
import { createHash } from 'node:crypto';
import { closeSync, openSync, readSync, statSync } from 'node:fs';
import { FileFormatError } from '@x/core';

/** Pieces of each file that are hashed, spread evenly over it; the last is its end. */
const SAMPLES = 512;
const SAMPLE_BYTES = 4096;

/**
 * Takes note of a model's files as they are. The function that it gives returns the hash, in hexadecimal digits, and computes
 * it once. @throws FileFormatError FILE_CHANGED by that function when a file is no longer what was loaded
 */
export function identityOf(paths: readonly string[], config: unknown): () => string {
  const loaded = paths.map(facts);
  let known: string | undefined;
  return () => {
    const changed = paths.find((path, i) => facts(path) !== loaded[i]);
    if (changed !== undefined) {
      throw new FileFormatError(
        'FILE_CHANGED',
        `${changed}: the file was changed since the model was loaded, so what was computed cannot be told to be this model's. Load it again.`,
        { path: changed },
      );
    }
    known ??= hashOf(paths, config);
    return known;
  };
}

function facts(path: string): string {
  const stats = statSync(path, { throwIfNoEntry: false });
  return stats === undefined ? '' : `${stats.size} ${stats.mtimeMs} ${stats.ino}`;
}

function hashOf(paths: readonly string[], config: unknown): string {
  const hash = createHash('sha256').update(JSON.stringify(config));
  const sample = Buffer.alloc(SAMPLE_BYTES);
  for (const path of paths) {
    const fd = openSync(path, 'r');
    try {
      const { size } = statSync(path);
      hash.update(`\n${size}\n`);
      const last = Math.max(0, size - SAMPLE_BYTES);
      for (let i = 0; i < SAMPLES; i++) {
        const read = readSync(fd, sample, 0, SAMPLE_BYTES, Math.floor((last * i) / (SAMPLES - 1)));
        hash.update(sample.subarray(0, read));
        if (last === 0) break;
      }
    } finally {
      closeSync(fd);
    }
  }
  return hash.digest('hex');
}
