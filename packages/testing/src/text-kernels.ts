/** PTX without code, for tests on a stand-in for libcuda: every kernel that any target here has, whatever was built. */
import { createHash } from 'node:crypto';
import { mkdirSync, mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ALL_MODULES, type KernelInfo, listTargets, type Manifest, readManifest } from '@x/kernels';

/** A directory for X_KERNEL_DIR with the target nvptx64. The caller's to remove. */
export function textKernels(): string {
  const place = mkdtempSync(join(tmpdir(), 'x-text-kernels-'));
  const directory = join(place, 'objects/nvptx64');
  mkdirSync(directory, { recursive: true });
  const manifests = listTargets().flatMap((target) => readManifest(target) ?? []);
  const modules: Manifest['modules'] = {};
  for (const { id } of ALL_MODULES) {
    const all = manifests.flatMap((manifest) => manifest.modules[id]?.kernels ?? []);
    const kernels = [
      ...new Map(all.map((kernel): [string, KernelInfo] => [kernel.name, { ...kernel, warpSize: 32 }])).values(),
    ];
    const entries = kernels.map(({ name }) => `.visible .entry ${name}(.param .u64 a) { ret; }`);
    const text = ['.version 8.0', '.target sm_80', '.address_size 64', ...entries, ''].join('\n');
    const file = `${id}.ptx`;
    writeFileSync(join(directory, file), text);
    const sha256 = createHash('sha256').update(text).digest('hex');
    modules[id] = { file, size: Buffer.byteLength(text), sha256, key: '', kernels };
  }
  const manifest: Manifest = { version: 1, target: 'nvptx64', compiler: 'none', codeObjectVersion: null, modules };
  writeFileSync(join(directory, 'manifest.json'), JSON.stringify(manifest));
  return place;
}
