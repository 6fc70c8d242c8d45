/**
 * The packages of compiled code, from the tables of what they hold: packages/hip/scripts/targets.mjs (addons) and
 * packages/kernels/src/packages.ts (kernels). Their manifests and READMEs are in git, in prebuilt/; what they hold is put
 * beside them when they are packed (stage.ts).
 *
 *   tsx tools/release/prebuilt.ts          writes the folders
 *   tsx tools/release/prebuilt.ts --check  fails where one differs from the tables
 */
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type AddonTarget, TARGETS } from '../../packages/hip/scripts/targets.mjs';
import { KERNEL_PACKAGES, type KernelPackage } from '../../packages/kernels/src/packages';

export const ROOT = fileURLToPath(new URL('../..', import.meta.url));
export const PREBUILT = join(ROOT, 'prebuilt');

export type PrebuiltPackage = { name: string; folder: string } & (
  | { kind: 'addon'; target: AddonTarget }
  | { kind: 'kernels'; kernels: KernelPackage }
);

/** Every package of compiled code, in name order. */
export function prebuiltPackages(): PrebuiltPackage[] {
  const addons = Object.entries(TARGETS).map(([target, description]) => ({
    name: `@x/hip-${target}`,
    kind: 'addon' as const,
    target: description,
  }));
  const kernels = Object.entries(KERNEL_PACKAGES).map(([name, description]) => ({
    name,
    kind: 'kernels' as const,
    kernels: description,
  }));
  return [...addons, ...kernels]
    .sort((a, b) => (a.name < b.name ? -1 : 1))
    .map((entry) => ({ ...entry, folder: join(PREBUILT, entry.name.slice('@x/'.length)) }));
}

/** The files of a folder in git, by name. */
export function filesOf(entry: PrebuiltPackage, version: string): Record<string, string> {
  const manifest = { ...common(entry.name, version), ...(entry.kind === 'addon' ? addon(entry) : kernels(entry)) };
  return { 'package.json': `${JSON.stringify(manifest, null, 2)}\n`, 'README.md': readme(entry) };
}

function common(name: string, version: string): object {
  return { name, version, license: 'Apache-2.0' };
}

const PUBLISH = { engines: { node: '>=20.19' }, publishConfig: { access: 'public', provenance: true } };

function addon({ name, target }: { name: string; target: AddonTarget }): object {
  return {
    description: `The native addon of @x/hip for ${name.slice('@x/hip-'.length)}`,
    keywords: ['rocm', 'hip', 'cuda', 'gpu', 'native'],
    main: './hip.node',
    exports: { '.': './hip.node', './hip.node': './hip.node', './package.json': './package.json' },
    files: ['hip.node'],
    preferUnplugged: true,
    os: ['linux'],
    cpu: [target.machine],
    libc: [target.libc === 'gnu' ? 'glibc' : 'musl'],
    ...PUBLISH,
  };
}

function kernels({ kernels }: { kernels: KernelPackage }): object {
  return {
    description: `Compiled kernels of @x/kernels for ${kernels.hardware}`,
    keywords: ['rocm', 'hip', 'gpu', 'kernels', ...kernels.targets],
    exports: { './index.json': './index.json', './package.json': './package.json' },
    files: ['index.json', 'objects'],
    preferUnplugged: true,
    ...(kernels.os && { os: [kernels.os] }),
    ...(kernels.cpu && { cpu: [kernels.cpu] }),
    ...PUBLISH,
  };
}

function readme(entry: PrebuiltPackage): string {
  if (entry.kind === 'addon') {
    const target = entry.name.slice('@x/hip-'.length);
    const libc = entry.target.libc === 'gnu' ? 'glibc 2.28 or later' : 'musl (Alpine)';
    return `# ${entry.name}

The native addon of [@x/hip](https://www.npmjs.com/package/@x/hip) for ${target}: Linux with ${libc}. It is an optional
dependency of @x/hip; install that. It needs no C++ library, and links neither ROCm nor CUDA.

Apache-2.0
`;
  }
  const { targets, hardware } = entry.kernels;
  return `# ${entry.name}

Compiled kernels for ${hardware}: data that
[@x/kernels](https://www.npmjs.com/package/@x/kernels) finds and reads, without unpacking it to disk. Targets:
${targets.map((target) => `\`${target}\``).join(', ')}.

\`\`\`sh
npm install ${entry.name}
\`\`\`

Its version must be that of @x/kernels. \`candle doctor\` says which package a machine needs.

Apache-2.0
`;
}

/** Lines that say which files in git differ from the tables. */
export function differences(): string[] {
  const found: string[] = [];
  const known = new Set(prebuiltPackages().map(({ folder }) => folder));
  for (const name of existsSync(PREBUILT) ? readdirSync(PREBUILT) : [])
    if (!known.has(join(PREBUILT, name))) found.push(`prebuilt/${name} is in no table`);
  for (const entry of prebuiltPackages()) {
    for (const [file, text] of Object.entries(filesOf(entry, version()))) {
      const path = join(entry.folder, file);
      if (!existsSync(path) || readFileSync(path, 'utf8') !== text) found.push(`${path} is not what the tables say`);
    }
  }
  return found;
}

/** All packages have one version; that of the kernels is taken for it. */
export function version(): string {
  return JSON.parse(readFileSync(join(ROOT, 'packages/kernels/package.json'), 'utf8')).version;
}

function write(): void {
  const known = new Set(prebuiltPackages().map(({ folder }) => folder));
  for (const name of existsSync(PREBUILT) ? readdirSync(PREBUILT) : [])
    if (!known.has(join(PREBUILT, name))) rmSync(join(PREBUILT, name), { recursive: true });
  for (const entry of prebuiltPackages()) {
    mkdirSync(entry.folder, { recursive: true });
    for (const [file, text] of Object.entries(filesOf(entry, version()))) writeFileSync(join(entry.folder, file), text);
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  if (!process.argv.includes('--check')) write();
  const found = differences();
  for (const line of found) console.error(line);
  if (found.length > 0) console.error('Run: tsx tools/release/prebuilt.ts');
  process.exitCode = found.length === 0 ? 0 : 1;
}
