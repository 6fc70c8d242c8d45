/**
 * What a code object says about itself: HSACO (AMD), PTX (NVIDIA) and host shared objects. Kernels of this project carry
 * their parameter types in a character array `x_sig_<kernel>`; for other kernels (compiled at run time from a user's
 * source) the types come from AMD's metadata note or the PTX declaration, as far as these know them.
 */
import { checkBytes } from './arguments';
import { ElfFile, EM_AMDGPU, isElf } from './elf';
import { KernelError } from './errors';
import { decodeMsgPack, type MsgPack } from './msgpack';
import type { KernelInfo, KernelParamType, ParsedCodeObject } from './types';

const SIGNATURE_PREFIX = 'x_sig_';
const NT_AMDGPU_METADATA = 32;

/**
 * Kernels, typed parameters and resources of a HSACO, a PTX text or a host object.
 *
 * @throws KernelError KERNEL_OBJECT_INVALID when the bytes are none of these or are damaged; KERNEL_ARGUMENT_INVALID for what are no bytes
 */
export function parseCodeObject(bytes: Uint8Array): ParsedCodeObject {
  checkBytes('parseCodeObject: the code object', bytes);
  try {
    if (!isElf(bytes)) {
      const text = new TextDecoder().decode(bytes);
      if (!/^\s*\.version\s/m.test(text)) throw new RangeError('neither an ELF file nor PTX text');
      return parsePtx(text);
    }
    const elf = new ElfFile(bytes);
    return elf.machine === EM_AMDGPU ? parseHsaco(elf) : parseHost(elf);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    throw new KernelError(
      'KERNEL_OBJECT_INVALID',
      `code object of ${bytes.length} bytes cannot be read: ${error.message}. Give the whole file that a compiler wrote (HSACO, PTX or a host object).`,
      { cause: error },
    );
  }
}

function signatureParams(text: string): KernelParamType[] {
  return text === '' ? [] : (text.split(' ') as KernelParamType[]);
}

function elfSignatures(elf: ElfFile): Map<string, KernelParamType[]> {
  const signatures = new Map<string, KernelParamType[]>();
  for (const symbol of elf.dynamicSymbols()) {
    if (!symbol.name.startsWith(SIGNATURE_PREFIX)) continue;
    const text = new TextDecoder().decode(elf.contents(symbol)).replace(/\0.*$/s, '');
    signatures.set(symbol.name.slice(SIGNATURE_PREFIX.length), signatureParams(text));
  }
  return signatures;
}

const NO_RESOURCES = {
  vgprs: null,
  agprs: null,
  sgprs: null,
  ldsBytes: null,
  scratchBytes: null,
  vgprSpills: null,
  sgprSpills: null,
  maxThreads: null,
};

function byName(kernels: KernelInfo[]): Record<string, KernelInfo> {
  kernels.sort((a, b) => (a.name < b.name ? -1 : 1));
  return Object.fromEntries(kernels.map((kernel) => [kernel.name, kernel]));
}

function parseHost(elf: ElfFile): ParsedCodeObject {
  const kernels = [...elfSignatures(elf)].map(([name, params]) => ({ name, params, warpSize: 1, ...NO_RESOURCES }));
  return { format: 'host', arch: null, kernels: byName(kernels) };
}

type Fields = { [key: string]: MsgPack };

function fields(value: MsgPack | undefined): Fields {
  if (value === null || typeof value !== 'object' || Array.isArray(value) || value instanceof Uint8Array) {
    throw new RangeError('AMD metadata has no map where one is due');
  }
  return value;
}

function list(value: MsgPack | undefined): MsgPack[] {
  if (value === undefined) return [];
  if (!Array.isArray(value)) throw new RangeError('AMD metadata has no array where one is due');
  return value;
}

function numberOrNull(value: MsgPack | undefined): number | null {
  return typeof value === 'number' ? value : null;
}

function bitsOf(size: number): KernelParamType {
  return size === 1 || size === 2 || size === 4 || size === 8 ? (`b${size * 8}` as KernelParamType) : `bytes${size}`;
}

function metadataParams(args: MsgPack[]): KernelParamType[] {
  const params: KernelParamType[] = [];
  for (const argument of args.map(fields)) {
    const kind = argument['.value_kind'];
    if (kind === 'global_buffer') params.push('ptr');
    else if (kind === 'by_value') params.push(bitsOf(Number(argument['.size'])));
  }
  return params;
}

function parseHsaco(elf: ElfFile): ParsedCodeObject {
  const note = elf.notes().find(({ owner, type }) => owner === 'AMDGPU' && type === NT_AMDGPU_METADATA);
  if (note === undefined) throw new RangeError('AMD ELF file without a metadata note (code object version 3 or later)');
  const metadata = fields(decodeMsgPack(note.data));
  const signatures = elfSignatures(elf);
  const kernels = list(metadata['amdhsa.kernels']).map((entry): KernelInfo => {
    const kernel = fields(entry);
    const name = String(kernel['.name']);
    return {
      name,
      params: signatures.get(name) ?? metadataParams(list(kernel['.args'])),
      warpSize: Number(kernel['.wavefront_size']),
      vgprs: numberOrNull(kernel['.vgpr_count']),
      agprs: numberOrNull(kernel['.agpr_count']),
      sgprs: numberOrNull(kernel['.sgpr_count']),
      ldsBytes: numberOrNull(kernel['.group_segment_fixed_size']),
      scratchBytes: numberOrNull(kernel['.private_segment_fixed_size']),
      vgprSpills: numberOrNull(kernel['.vgpr_spill_count']),
      sgprSpills: numberOrNull(kernel['.sgpr_spill_count']),
      maxThreads: numberOrNull(kernel['.max_flat_workgroup_size']),
    };
  });
  const target = metadata['amdhsa.target'];
  const arch = typeof target === 'string' ? (/gfx[0-9a-z-]+/.exec(target)?.[0] ?? null) : null;
  return { format: 'hsaco', arch, kernels: byName(kernels) };
}

const PTX_SIGNATURE = /\.b8\s+x_sig_(\w+)\[\d+\](?:\s*=\s*\{([^}]*)\})?\s*;/g;
const PTX_ENTRY = /\.entry\s+([\w$]+)\s*(?:\(([^)]*)\))?([^{;]*)\{/g;

function ptxParam(declaration: string): KernelParamType {
  if (/\.ptr\b/.test(declaration)) return 'ptr';
  const array = /\[(\d+)\]/.exec(declaration);
  if (array !== null) return bitsOf(Number(array[1]));
  const type = /\.param\s+(?:\.align\s+\d+\s+)?\.([a-z])(\d+)/.exec(declaration);
  if (type === null) throw new RangeError(`PTX parameter "${declaration.trim()}" has no type`);
  if (type[1] === 'f') return type[2] === '64' ? 'f64' : 'f32';
  return `b${type[2]}` as KernelParamType;
}

function parsePtx(text: string): ParsedCodeObject {
  const signatures = new Map<string, KernelParamType[]>();
  for (const [, name, values] of text.matchAll(PTX_SIGNATURE)) {
    const codes = (values ?? '')
      .split(',')
      .map(Number)
      .filter((code) => code > 0);
    signatures.set(name!, signatureParams(String.fromCharCode(...codes)));
  }
  const kernels: KernelInfo[] = [];
  for (const [, name, declarations, directives] of text.matchAll(PTX_ENTRY)) {
    const declared = (declarations ?? '').split(',').filter((declaration) => declaration.includes('.param'));
    const bound = /\.maxntid\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?/.exec(directives!);
    kernels.push({
      name: name!,
      params: signatures.get(name!) ?? declared.map(ptxParam),
      warpSize: 32,
      ...NO_RESOURCES,
      maxThreads: bound === null ? null : Number(bound[1]) * Number(bound[2] ?? 1) * Number(bound[3] ?? 1),
    });
  }
  return { format: 'ptx', arch: /\.target\s+(sm_\w+)/.exec(text)?.[1] ?? null, kernels: byName(kernels) };
}
