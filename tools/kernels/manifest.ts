/** The manifests of built targets: reading them, and replacing one whole. */
import { createHash } from 'node:crypto';
import { existsSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Manifest } from '../../packages/kernels/src/types';

/** Of one part its hash, as manifests have it; of several a key. */
export function sha256Of(...parts: (string | Uint8Array)[]): string {
  const hash = createHash('sha256');
  if (parts.length === 1) return hash.update(parts[0]!).digest('hex');
  for (const part of parts) hash.update(part).update('\0');
  return hash.digest('hex');
}

export function writeWhole(path: string, text: string): void {
  if (existsSync(path) && readFileSync(path, 'utf8') === text) return;
  writeFileSync(`${path}.${process.pid}.tmp`, text);
  renameSync(`${path}.${process.pid}.tmp`, path);
}

/** Of a target's directory. */
export function readManifest(directory: string): Manifest | undefined {
  const path = join(directory, 'manifest.json');
  return existsSync(path) ? (JSON.parse(readFileSync(path, 'utf8')) as Manifest) : undefined;
}

/** Modules in name order. */
export function writeManifest(directory: string, manifest: Manifest): void {
  const modules = Object.fromEntries(Object.entries(manifest.modules).sort(([a], [b]) => (a < b ? -1 : 1)));
  writeWhole(join(directory, 'manifest.json'), `${JSON.stringify({ ...manifest, modules }, null, 1)}\n`);
}
