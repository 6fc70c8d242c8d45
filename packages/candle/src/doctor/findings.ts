/**
 * What is wrong on a machine and what to do, from what its kernel says (machine.ts) and what its drivers answer (probe.ts).
 * Pure: the same facts give the same findings. Each cause is named once, the first in the order in which a program meets
 * them: the addon and settings, card, kernel driver, device nodes, runtime, code objects.
 */
import type { KfdGpu, Machine } from './machine';
import { DENIED, type PlatformProbe, type ProbedDevice, type Probes } from './probe';

export interface Finding {
  code:
    | 'ADDON_MISSING'
    | 'SETTING'
    | 'CONTAINER_DEVICES'
    | 'SECURE_BOOT'
    | 'DRIVER_MISSING'
    | 'NO_PERMISSION'
    | 'WSL'
    | 'ROCM_TOO_OLD'
    | 'OVERRIDE'
    | 'MEMORY_OF_APU'
    | 'DIFFERENT_CARDS'
    | 'KERNELS_MISSING'
    | 'KERNELS_REFUSED'
    | 'PROBE_FAILED';
  /** `problem`: something does not work. `advice`: it works, and could do better or surprise. */
  level: 'problem' | 'advice';
  message: string;
  remedy: string;
}

/** What is known of code objects, of which the caller looks them up (@x/kernels). */
export interface Kernels {
  /** The target that serves a device, of those that are here. */
  targetFor(arch: string): string | undefined;
  /** The command that installs a device's kernels; undefined where no package has them. */
  installFor(arch: string): string | undefined;
  /** Installed packages that cannot be used, with the reason. */
  refused: { name: string; reason: string }[];
}

export function findings(machine: Machine, probes: Probes, kernels: Kernels): Finding[] {
  const rocm = 'answer' in probes.rocm ? probes.rocm.answer : undefined;
  return [
    ...addon(machine, probes),
    ...settings(probes),
    ...kernelDriver(machine),
    ...permission(machine),
    ...subsystem(machine, rocm),
    ...runtime(machine, rocm),
    ...families(rocm, kernels),
    ...override(machine),
    ...integrated(machine),
    ...differentCards(machine, kernels),
    ...codeObjects(machine, probes, kernels),
    ...notLookedAt(machine, probes),
    ...failedProbes(probes),
  ];
}

function addon({ cards }: Machine, { host }: Probes): Finding[] {
  const reason = 'answer' in host ? host.answer.report.reason : undefined;
  if (reason?.code !== 'ADDON_MISSING') return [];
  const hasGpu = cards.amd.length + cards.nvidia.length > 0;
  return [
    {
      code: 'ADDON_MISSING',
      level: hasGpu ? 'problem' : 'advice',
      message: `${reason.message}. Without it no GPU can be used, and cpu computes in plain TypeScript.`,
      remedy: reason.remedy,
    },
  ];
}

/** Those that opening a device refuses, and those that name a library or compiler that is then not used. */
function settings({ rocm, cuda, host, tools }: Probes): Finding[] {
  const refused = [rocm, cuda, host].flatMap((probe) => ('answer' in probe ? probe.answer.refused : []));
  const { libraries, compilers } = 'answer' in tools ? tools.answer : { libraries: [], compilers: [] };
  for (const message of [...libraries.map(({ reason }) => reason?.message), ...compilers.map(({ reason }) => reason)]) {
    const variable = /^(X_\w+)(?:=| names )/.exec(message ?? '')?.[1];
    if (message !== undefined && variable !== undefined) refused.push({ variable, message });
  }
  return [...new Map(refused.map(({ variable, message }) => [variable, message]))].map(([variable, message]) => ({
    code: 'SETTING',
    level: 'problem',
    message: `${message.replace(/\.$/, '')}.`,
    remedy: `Correct it, or unset it: \`unset ${variable}\`.`,
  }));
}

const DEVICES = '--device /dev/kfd --device /dev/dri';

function kernelDriver(machine: Machine): Finding[] {
  const { cards, kfd, container, wsl, secureBoot, modules, dkms } = machine;
  if (kfd || wsl || cards.amd.length === 0) return [];
  const where = `${cards.amd.length === 1 ? 'an AMD card' : 'AMD cards'} at ${cards.amd.join(', ')}`;
  const there = `There ${cards.amd.length === 1 ? 'is' : 'are'} ${where}`;
  if (container && modules.amdgpu) {
    const groups = [...new Set(machine.render.map(({ gid }) => gid))].map((gid) => ` --group-add ${gid}`).join('');
    return [
      {
        code: 'CONTAINER_DEVICES',
        level: 'problem',
        message: `This is a container on a machine with ${where}, and /dev/kfd was not given to it.`,
        remedy: `Start it with ${DEVICES}${groups || ' --group-add followed by the number that `stat -c %g /dev/kfd` prints on the host'}.`,
      },
    ];
  }
  if (secureBoot && !modules.amdgpu) {
    return [
      {
        code: 'SECURE_BOOT',
        level: 'problem',
        message: `${there}, and the kernel driver amdgpu is not loaded. Secure Boot is on, which refuses modules without a trusted signature${dkms ? '; amdgpu was built by DKMS here' : ''}.`,
        remedy:
          'Look for "Key was rejected" or "Lockdown" in `sudo dmesg`. Enrol the key that signs DKMS modules (`sudo mokutil --import /var/lib/dkms/mok.pub`, restart, confirm), or switch Secure Boot off in the firmware.',
      },
    ];
  }
  return [
    {
      code: 'DRIVER_MISSING',
      level: 'problem',
      message: modules.amdgpu
        ? `${there}, and amdgpu is loaded without compute support: there is no /dev/kfd.`
        : `${there}, and the kernel driver amdgpu is not loaded.`,
      remedy: modules.amdgpu
        ? 'Take a kernel with CONFIG_HSA_AMD, as distributions have it; PCIe atomics must reach the slot: look for "kfd" in `sudo dmesg`.'
        : 'Load it: `sudo modprobe amdgpu`. If that fails, `sudo dmesg | grep amdgpu` says why: often firmware (Debian: firmware-amd-graphics) or an old kernel.',
    },
  ];
}

function permission({ kfd, render, container }: Machine): Finding[] {
  const closed = [kfd, ...render].filter((node) => node !== undefined).filter((node) => !node.usable);
  if (closed.length === 0) return [];
  const groups = [...new Set(closed.map(({ group }) => group))];
  const gids = [...new Set(closed.map(({ gid }) => gid))];
  return [
    {
      code: 'NO_PERMISSION',
      level: 'problem',
      message: `This user may not open ${closed.map(({ path }) => path).join(', ')}, which ${closed.length === 1 ? 'belongs' : 'belong'} to the group ${groups.join(' and ')}.`,
      remedy: container
        ? `Start the container with ${gids.map((gid) => `--group-add ${gid}`).join(' ')} beside ${DEVICES}.`
        : `Join: \`sudo usermod -aG ${groups.join(',')} $USER\`, then log out and in again.`,
    },
  ];
}

function subsystem({ wsl, environment }: Machine, rocm: PlatformProbe | undefined): Finding[] {
  if (!wsl || rocm?.report.available) return [];
  return [
    {
      code: 'WSL',
      level: 'problem',
      message: `This is WSL, where AMD GPUs are reached through /dev/dxg, not /dev/kfd${rocm?.report.library ? '' : ', and no HIP runtime was found'}.`,
      remedy: `Install ROCm for WSL with librocdxg, and a driver in Windows that supports WSL${environment.HSA_ENABLE_DXG_DETECTION ? '' : '; up to ROCm 7.12 also set HSA_ENABLE_DXG_DETECTION=1'}. Switch an integrated GPU off in Windows if there is one.`,
    },
  ];
}

/** The first ROCm that supports a chip, where that is known. */
const FIRST_ROCM: [arch: RegExp, version: string][] = [
  [/^gfx110[0-3]$/, '5.5'],
  [/^gfx94[0-2]$/, '6.0'],
  [/^gfx115[0-3]$/, '6.4'],
  [/^gfx120[01]$/, '6.4'],
  [/^gfx950$/, '7.0'],
];

function runtime({ gpus, kfd, environment }: Machine, rocm: PlatformProbe | undefined): Finding[] {
  // A GPU that another cause hides is not ROCm's to find.
  if (!kfd?.usable || gpus.length === 0 || !rocm?.report.library || rocm.report.available) return [];
  const hidden = ['ROCR_VISIBLE_DEVICES', 'HIP_VISIBLE_DEVICES', 'CUDA_VISIBLE_DEVICES'].filter(
    (name) => name in environment,
  );
  const version = rocm.report.version;
  const first = gpus
    .map(({ arch }) => FIRST_ROCM.find(([known]) => known.test(arch))?.[1])
    .filter(Boolean)
    .sort()
    .at(-1);
  const hides = hidden.map((name) => `${name}=${environment[name]}`).join(', ');
  return [
    {
      code: 'ROCM_TOO_OLD',
      level: 'problem',
      message: `The kernel driver lists ${archs(gpus)}, and HIP${version ? ` ${version}` : ''} (${rocm.report.library}) finds no device${hides ? ` with ${hides}` : ''}.`,
      remedy: `${hides ? 'Unset these variables, or have them name a GPU. Otherwise install' : 'Install'} a ROCm that supports ${archs(gpus)}${first ? `: ${first} or later` : ''}; X_HIP_LIBRARY names the libamdhip64 to take where there are several.`,
    },
  ];
}

/** HIP loads code of a whole family since 6.4 (code object version 6). */
function families(rocm: PlatformProbe | undefined, kernels: Kernels): Finding[] {
  const version = rocm?.report.version;
  if (!version || isAtLeast(version, 6, 4)) return [];
  const concerned = rocm.devices.filter(({ arch }) => kernels.targetFor(arch)?.endsWith('-generic'));
  if (concerned.length === 0) return [];
  return [
    {
      code: 'ROCM_TOO_OLD',
      level: 'problem',
      message: `HIP ${version} does not load code of a whole family, and there is none for ${[...new Set(concerned.map(({ arch }) => arch))].join(', ')} alone.`,
      remedy: 'Install ROCm 6.4 or later.',
    },
  ];
}

/** 11.0.0, whose last part is hexadecimal in a target's name. */
function overridden(value: string): string | undefined {
  const parts = /^(\d{1,2})\.(\d{1,2})\.(\d{1,2})$/.exec(value)?.slice(1).map(Number);
  return parts && `gfx${parts[0]}${parts[1]!.toString(16)}${parts[2]!.toString(16)}`;
}

function override({ environment, gpus }: Machine): Finding[] {
  return Object.entries(environment).flatMap(([name, value]): Finding[] => {
    const node = /^HSA_OVERRIDE_GFX_VERSION(?:_(\d+))?$/.exec(name);
    if (!node) return [];
    const concerned = node[1] === undefined ? gpus : gpus.filter((gpu) => gpu.node === Number(node[1]));
    const arch = overridden(value);
    if (!arch) {
      return [
        {
          code: 'OVERRIDE',
          level: 'problem',
          message: `${name}=${value} is no version such as 11.0.0; ROCm does not start with it.`,
          remedy: `Unset it: \`unset ${name}\`. These packages have kernels for whole families, and do not need it.`,
        },
      ];
    }
    const others = concerned.filter((gpu) => gpu.arch !== arch);
    if (others.length === 0) return [];
    const wrong = others.some((gpu) => gpu.arch.slice(0, -2) !== arch.slice(0, -2));
    return [
      {
        code: 'OVERRIDE',
        level: wrong ? 'problem' : 'advice',
        message: `${name}=${value} has ROCm take ${archs(others)} for ${arch}${wrong ? ', another family: kernels may fault or give wrong numbers' : ''}.`,
        remedy: `Unset it: \`unset ${name}\`. These packages have kernels for whole families, and do not need it.`,
      },
    ];
  });
}

function integrated({ gpus, memoryBytes, kernel }: Machine): Finding[] {
  return gpus
    .filter(({ integrated }) => integrated)
    .map(({ arch, vramBytes, gttBytes }) => {
      const pages = Math.floor((memoryBytes * 0.75) / 4096);
      const old = !isAtLeast(kernel, 6, 10);
      return {
        code: 'MEMORY_OF_APU',
        level: 'advice',
        message: `${arch} shares the processor's memory: ${gib(vramBytes)} are set aside for it, and it may map ${gib(gttBytes)} of ${gib(memoryBytes)}.${old ? ` Linux ${kernel} gives programs the part set aside only.` : ''}`,
        remedy: `${old ? 'Take Linux 6.10 or later; leave' : 'Leave'} the part set aside small in the firmware, and for larger models raise what may be mapped with the kernel parameter ttm.pages_limit=${pages} (${gib(pages * 4096)}).`,
      };
    });
}

function isAtLeast(version: string, major: number, minor: number): boolean {
  const [a = 0, b = 0] = version.split('.').map((part) => Number.parseInt(part, 10) || 0);
  return a > major || (a === major && b >= minor);
}

function differentCards({ gpus }: Machine, kernels: Kernels): Finding[] {
  const families = new Map(gpus.map(({ arch }) => [kernels.installFor(arch) ?? arch, arch]));
  if (families.size < 2) return [];
  const strongest = [...gpus].sort((a, b) => b.vramBytes - a.vramBytes)[0]!;
  return [
    {
      code: 'DIFFERENT_CARDS',
      level: 'advice',
      message: `The GPUs are of different families: ${gpus.map(({ arch, vramBytes }) => `${arch} with ${gib(vramBytes)}`).join(', ')}. Each needs its own kernels.`,
      remedy: `To use the one with most memory alone: ROCR_VISIBLE_DEVICES=${gpus.indexOf(strongest)}.`,
    },
  ];
}

function codeObjects(machine: Machine, probes: Probes, kernels: Kernels): Finding[] {
  const probed = [probes.rocm, probes.cuda, probes.host].flatMap((result) =>
    'answer' in result ? result.answer.devices : [],
  );
  const refused = kernels.refused.map(
    ({ name, reason }): Finding => ({
      code: 'KERNELS_REFUSED',
      level: 'problem',
      message: `The installed package ${name} cannot be used.`,
      remedy: reason,
    }),
  );
  // Before the driver answers, the kernel's list says what will be needed.
  const unseen = 'answer' in probes.rocm && probes.rocm.answer.report.available ? [] : machine.gpus;
  const devices = [
    ...probed,
    ...unseen.map((gpu): Pick<ProbedDevice, 'device' | 'arch'> => ({ device: 'the GPU', arch: gpu.arch })),
  ];
  const missing = new Map(
    devices.filter(({ arch }) => !kernels.targetFor(arch)).map((device) => [device.arch, device]),
  );
  return [
    ...refused,
    ...[...missing.values()].map(({ device, arch }): Finding => {
      const directory = machine.environment.X_KERNEL_DIR;
      if (directory) {
        return {
          code: 'KERNELS_MISSING',
          level: 'problem',
          message: `There are no compiled kernels for ${device} (${arch}) in X_KERNEL_DIR=${directory}, and no other place is looked at.`,
          remedy:
            'Unset it: `unset X_KERNEL_DIR`. Or have it name a directory with `objects/` and `sources/` of this version.',
        };
      }
      const command = kernels.installFor(arch);
      return {
        code: 'KERNELS_MISSING',
        level: 'problem',
        message: `There are no compiled kernels for ${device} (${arch}).`,
        remedy: command
          ? `Install them: \`${command}\`. In a checkout of the project: \`pnpm kernels --targets native\`.`
          : 'No package has them: they are compiled on first use if the run-time compiler is there, and kept.',
      };
    }),
  ];
}

function failuresOf(probes: Probes) {
  return Object.entries(probes).flatMap(([name, result]) => ('failure' in result ? [{ name, ...result.failure }] : []));
}

function notLookedAt({ hidden }: Machine, probes: Probes): Finding[] {
  const denied = failuresOf(probes).filter(({ how }) => how === DENIED);
  const what = [
    ...(hidden ? ['what the kernel says (/sys, /dev, /proc)'] : []),
    ...denied.map(({ name }) => (name === 'tools' ? 'compilers, libraries' : name)),
  ];
  if (what.length === 0) return [];
  return [
    {
      code: 'PROBE_FAILED',
      level: 'problem',
      message: `Node's permission model forbids looking at ${what.join(', ')}.${denied.length > 0 ? ' Drivers are asked in processes of their own, and none may be started.' : ''}`,
      remedy:
        'Start Node with --allow-fs-read=*, --allow-child-process and --allow-addons beside --permission, or without it.',
    },
  ];
}

function failedProbes(probes: Probes): Finding[] {
  return failuresOf(probes)
    .filter(({ how }) => how !== DENIED)
    .map(({ name, how, output }): Finding => {
      const what = name === 'tools' ? 'Looking for compilers and libraries' : `Asking ${name} for its devices`;
      return {
        code: 'PROBE_FAILED',
        level: 'problem',
        message: `${what} ended with ${how}; it was done in a process of its own.${output ? ` Its last words: ${output}` : ''}`,
        remedy: `A driver or library on this machine crashes when it is used: update it, or hide the GPU (ROCR_VISIBLE_DEVICES, CUDA_VISIBLE_DEVICES). \`candle doctor --report FILE\` writes what to send with a report.`,
      };
    });
}

function archs(gpus: readonly KfdGpu[]): string {
  return [...new Set(gpus.map(({ arch }) => arch))].join(', ');
}

function gib(bytes: number): string {
  return `${(bytes / 2 ** 30).toFixed(1)} GiB`;
}
