/**
 * What the kernel says of this machine's GPUs, read from /sys, /dev and /proc without any driver library: what
 * `candle doctor` explains failures with. Sources: amdkfd's topology (kfd_topology.c), amdgpu's sysfs files, systemd's and
 * the container runtimes' marks.
 */
import { accessSync, constants, readdirSync, readFileSync, statSync } from 'node:fs';
import { release, totalmem } from 'node:os';
import { join } from 'node:path';
import { gfxName } from '@x/kernels';

/** A device node, and whether this user may use it. */
export interface DeviceNode {
  path: string;
  usable: boolean;
  /** Name of its group, or its number where the group has no name here. */
  group: string;
  gid: number;
}

/** A GPU as AMD's kernel driver lists it. */
export interface KfdGpu {
  /** Its number in the topology, CPUs counted. */
  node: number;
  /** gfx1100: the chip itself, whatever HSA_OVERRIDE_GFX_VERSION says. */
  arch: string;
  vramBytes: number;
  /** Of the system's memory, what the GPU may map. */
  gttBytes: number;
  /** Shares the processor's memory. */
  integrated: boolean;
}

export interface Machine {
  /** Node's permission model hides all that is read from files, or some of it. */
  hidden: boolean;
  system: string;
  kernel: string;
  distribution: string;
  container: boolean;
  wsl: boolean;
  /** Undefined where the firmware does not say. */
  secureBoot: boolean | undefined;
  memoryBytes: number;
  /** Kernel modules that are loaded. */
  modules: { amdgpu: boolean; nvidia: boolean };
  /** amdgpu was built by DKMS, and so is not signed by the distribution. */
  dkms: boolean;
  /** PCI addresses of graphics and compute cards, by maker. */
  cards: { amd: string[]; nvidia: string[] };
  kfd: DeviceNode | undefined;
  render: DeviceNode[];
  gpus: KfdGpu[];
  /** Variables that decide what the drivers show. */
  environment: Record<string, string>;
}

export interface MachineOptions {
  /** Where /sys, /dev, /proc and /etc are looked for; for tests. */
  root?: string;
  environment?: NodeJS.ProcessEnv;
}

const VARIABLES =
  /^(HSA_|HIP_|ROCR_|ROCM_|CUDA_|GPU_DEVICE_ORDINAL$|NVIDIA_VISIBLE|LD_LIBRARY_PATH$|X_(HIP_LIBRARY|KERNEL_DIR|CACHE_DIR|HOST_))/;
const SECURE_BOOT = 'sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c';

export function readMachine({ root = '/', environment = process.env }: MachineOptions = {}): Machine {
  const at = (path: string) => join(root, path);
  const fake = root !== '/';
  const modules = new Set(
    text(at('proc/modules'))
      .split('\n')
      .map((line) => line.split(' ')[0]),
  );
  const osRelease = text(at('etc/os-release'));
  const node = (path: string) => deviceNode(at(path), `/${path}`, at('etc/group'), fake);
  const kernel = fake ? text(at('proc/sys/kernel/osrelease')).trim() : release();
  return {
    hidden: process.permission?.has('fs.read', root) === false,
    system: `${process.platform}-${process.arch}`,
    kernel,
    distribution: /^PRETTY_NAME="?([^"\n]*)/m.exec(osRelease)?.[1] ?? 'unknown',
    container:
      ['.dockerenv', 'run/.containerenv'].some((path) => isThere(at(path))) ||
      /docker|kubepods|containerd|lxc|podman/.test(text(at('proc/1/cgroup'))),
    wsl: isThere(at('dev/dxg')) || /microsoft/i.test(kernel),
    secureBoot: secureBoot(at(SECURE_BOOT)),
    memoryBytes: fake ? Number(/^MemTotal:\s+(\d+)/m.exec(text(at('proc/meminfo')))?.[1] ?? 0) * 1024 : totalmem(),
    modules: {
      amdgpu: modules.has('amdgpu') || isThere(at('sys/module/amdgpu')),
      nvidia: modules.has('nvidia') || isThere(at('sys/module/nvidia')),
    },
    dkms: isThere(at('var/lib/dkms/amdgpu')),
    cards: pciCards(at('sys/bus/pci/devices')),
    kfd: node('dev/kfd'),
    render: names(at('dev/dri'))
      .filter((name) => name.startsWith('renderD'))
      .flatMap((name) => node(`dev/dri/${name}`) ?? []),
    gpus: kfdGpus(at('sys/class/kfd/kfd/topology/nodes'), at('sys/class/drm')),
    environment: Object.fromEntries(
      Object.entries(environment).filter(
        (entry): entry is [string, string] => VARIABLES.test(entry[0]) && entry[1] !== undefined,
      ),
    ),
  };
}

/** Empty for what is not there or may not be read. */
function text(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}

function names(path: string): string[] {
  try {
    return readdirSync(path).sort();
  } catch {
    return [];
  }
}

function deviceNode(path: string, shown: string, groups: string, fake: boolean): DeviceNode | undefined {
  let mode: number;
  let gid: number;
  try {
    ({ mode, gid } = statSync(path));
  } catch {
    return undefined;
  }
  const line = text(groups)
    .split('\n')
    .map((entry) => entry.split(':'))
    .find(([, , number]) => Number(number) === gid);
  return {
    path: shown,
    usable: fake ? (mode & 0o006) === 0o006 : allows(path, constants.R_OK | constants.W_OK),
    group: line?.[0] ?? String(gid),
    gid,
  };
}

function isThere(path: string): boolean {
  return allows(path, constants.F_OK);
}

/** False too where Node's permission model hides the path. */
function allows(path: string, mode: number): boolean {
  try {
    accessSync(path, mode);
    return true;
  } catch {
    return false;
  }
}

/** Four bytes of attributes, then the value. */
function secureBoot(path: string): boolean | undefined {
  try {
    return readFileSync(path)[4] === 1;
  } catch {
    return undefined;
  }
}

/** Class 03 is a display controller, 12 a processing accelerator, as MI cards are. */
function pciCards(folder: string): Machine['cards'] {
  const cards: Machine['cards'] = { amd: [], nvidia: [] };
  for (const address of names(folder)) {
    if (!/^0x(03|12)/.test(text(join(folder, address, 'class')))) continue;
    const vendor = text(join(folder, address, 'vendor')).trim();
    if (vendor === '0x1002') cards.amd.push(address);
    if (vendor === '0x10de') cards.nvidia.push(address);
  }
  return cards;
}

function kfdGpus(nodes: string, drm: string): KfdGpu[] {
  return names(nodes).flatMap((name) => {
    const properties = numbers(text(join(nodes, name, 'properties')));
    if (!properties.simd_count || !properties.gfx_target_version) return [];
    const device = join(drm, `renderD${properties.drm_render_minor}`, 'device');
    const vramBytes = Number(text(join(device, 'mem_info_vram_total')));
    const gttBytes = Number(text(join(device, 'mem_info_gtt_total')));
    const discrete = ['mem_info_vram_vendor', 'board_info'].some((file) => isThere(join(device, file)));
    // What Ollama takes for an APU (discover/amd.go): little memory of its own beside much of the system's.
    const integrated = !discrete && vramBytes <= 4 * 2 ** 30 && gttBytes >= 8 * 2 ** 30 && gttBytes >= 4 * vramBytes;
    return [{ node: Number(name), arch: gfxName(properties.gfx_target_version), vramBytes, gttBytes, integrated }];
  });
}

function numbers(properties: string): Record<string, number> {
  return Object.fromEntries(
    properties
      .split('\n')
      .map((line) => line.trim().split(/\s+/))
      .filter((words) => words.length === 2)
      .map(([name, value]) => [name, Number(value)]),
  );
}
