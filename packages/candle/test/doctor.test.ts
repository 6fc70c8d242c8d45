/** `candle doctor` on machines made of files: /sys, /dev, /proc and /etc in a directory, drivers' answers as they would come. */
import { spawnSync } from 'node:child_process';
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { installCommand, kernelPackageFor, resolveTarget } from '@x/kernels';
import { afterAll, describe, expect, test } from 'vitest';
import { describeFindings } from '../src/doctor/describe';
import { findings } from '../src/doctor/findings';
import { readMachine } from '../src/doctor/machine';
import type { PlatformProbe, Probes, ToolsProbe } from '../src/doctor/probe';
import { bundleCommand } from './command';

const work = mkdtempSync(join(tmpdir(), 'candle-doctor-'));
afterAll(() => rmSync(work, { recursive: true, force: true }));

interface Card {
  version: number;
  vram: number;
  gtt: number;
  discrete?: boolean;
}

interface Faked {
  kernel?: string;
  cards?: Card[];
  files?: Record<string, string | Buffer>;
  /** Device nodes with their modes. */
  nodes?: Record<string, number>;
}

const GIB = 2 ** 30;
const RX7900: Card = { version: 110000, vram: 24 * GIB, gtt: 32 * GIB, discrete: true };
const RX9070: Card = { version: 120001, vram: 16 * GIB, gtt: 32 * GIB, discrete: true };
const STRIX: Card = { version: 110501, vram: GIB / 2, gtt: 62 * GIB };
const OPEN = { 'dev/kfd': 0o666, 'dev/dri/renderD128': 0o666 };
const LOADED = { 'proc/modules': 'amdgpu 19000000 3 - Live\n' };

/** A directory that looks like the root of a machine with these cards; gids are this process's, named render. */
function machine({ kernel = '6.12.4', cards = [], files = {}, nodes = {} }: Faked): string {
  const root = mkdtempSync(join(work, 'root-'));
  const put = (path: string, contents: string | Buffer) => {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), contents);
  };
  put('proc/sys/kernel/osrelease', `${kernel}\n`);
  put('proc/meminfo', 'MemTotal:       131072000 kB\n');
  put('etc/os-release', 'PRETTY_NAME="Debian GNU/Linux 13 (trixie)"\n');
  put('etc/group', `render:x:${process.getgid!()}:\n`);
  cards.forEach(({ version, vram, gtt, discrete }, i) => {
    put(`sys/bus/pci/devices/0000:0${i + 3}:00.0/class`, '0x030000\n');
    put(`sys/bus/pci/devices/0000:0${i + 3}:00.0/vendor`, '0x1002\n');
    if (!('dev/kfd' in nodes)) return;
    const properties = `simd_count 96\ngfx_target_version ${version}\ndrm_render_minor ${128 + i}\n`;
    put(`sys/class/kfd/kfd/topology/nodes/${i + 1}/properties`, properties);
    const device = `sys/class/drm/renderD${128 + i}/device`;
    put(`${device}/mem_info_vram_total`, `${vram}\n`);
    put(`${device}/mem_info_gtt_total`, `${gtt}\n`);
    if (discrete) put(`${device}/board_info`, 'type : oam\n');
  });
  if ('dev/kfd' in nodes) put('sys/class/kfd/kfd/topology/nodes/0/properties', 'simd_count 0\ngfx_target_version 0\n');
  for (const [path, contents] of Object.entries(files)) put(path, contents);
  for (const [path, mode] of Object.entries(nodes)) {
    put(path, '');
    chmodSync(join(root, path), mode);
  }
  return root;
}

const none = (platform: 'rocm' | 'cuda', library?: string, version?: string): PlatformProbe => ({
  report: { platform, available: false, deviceCount: 0, searched: [], ...(library && { library, version }) },
  devices: [],
  refused: [],
});

function working(version: string, ...archs: string[]): PlatformProbe {
  const devices = archs.map((arch, i) => ({ device: `rocm:${i}`, name: 'AMD', arch, memoryBytes: GIB }));
  return {
    report: {
      platform: 'rocm',
      available: true,
      deviceCount: archs.length,
      searched: [],
      library: '/opt/rocm/lib/libamdhip64.so.7',
      version,
    },
    devices,
    refused: [],
  };
}

function probes(rocm: PlatformProbe): Probes {
  const host: PlatformProbe = {
    report: { platform: 'host' as const, available: true, deviceCount: 1, searched: [] },
    devices: [],
    refused: [],
  };
  return {
    rocm: { answer: rocm },
    cuda: { answer: none('cuda') },
    host: { answer: host },
    tools: { answer: { compilers: [], libraries: [] } },
  };
}

function text(
  faked: Faked,
  rocm: PlatformProbe,
  environment: Record<string, string> = {},
  targets: string[] = ['gfx11-generic', 'gfx12-generic'],
  others: Partial<Probes> = {},
): string {
  const facts = readMachine({ root: machine(faked), environment });
  const found = findings(
    facts,
    { ...probes(rocm), ...others },
    {
      targetFor: (arch) => resolveTarget(arch).find((target) => targets.includes(target)),
      installFor: (arch) =>
        kernelPackageFor(arch) && installCommand(kernelPackageFor(arch)!).replace(/\d+\.\d+\.\d+$/, 'VERSION'),
      refused: [],
    },
  );
  return `${describeFindings(found).join('\n').trim()}\n`;
}

const golden = (name: string) => join(import.meta.dirname, `doctor/${name}.txt`);

describe('what is found', () => {
  test('the kernel driver is not loaded', async () => {
    await expect(text({ cards: [RX7900] }, none('rocm'))).toMatchFileSnapshot(golden('no-driver'));
  });

  test('the user is not in the group', async () => {
    const nodes = { 'dev/kfd': 0o660, 'dev/dri/renderD128': 0o660 };
    await expect(text({ cards: [RX7900], files: LOADED, nodes }, none('rocm'))).toMatchFileSnapshot(
      golden('no-permission'),
    );
  });

  test('a container without the devices', async () => {
    const files = { ...LOADED, '.dockerenv': '' };
    await expect(text({ cards: [RX7900], files }, none('rocm'))).toMatchFileSnapshot(golden('container'));
  });

  test('a ROCm that does not know the card', async () => {
    const rocm = none('rocm', '/usr/lib/x86_64-linux-gnu/libamdhip64.so.5', '5.2.21153');
    await expect(text({ cards: [RX9070], files: LOADED, nodes: OPEN }, rocm)).toMatchFileSnapshot(golden('old-rocm'));
  });

  test('a ROCm that does not load code of families', () => {
    expect(text({ cards: [RX9070], files: LOADED, nodes: OPEN }, working('6.3.42131', 'gfx1201'))).toContain(
      'Install ROCm 6.4 or later',
    );
    expect(text({ cards: [RX9070], files: LOADED, nodes: OPEN }, working('6.4.0', 'gfx1201'))).toBe('\n');
  });

  test('an APU with a small carve-out', async () => {
    const faked = { cards: [STRIX], files: LOADED, nodes: OPEN };
    await expect(text(faked, working('7.1', 'gfx1151'))).toMatchFileSnapshot(golden('apu'));
    expect(text({ ...faked, kernel: '6.8.0-45-generic' }, working('7.1', 'gfx1151'))).toContain(
      'Take Linux 6.10 or later',
    );
  });

  test('HSA_OVERRIDE_GFX_VERSION', async () => {
    const faked = { cards: [RX9070], files: LOADED, nodes: OPEN };
    const other = text(faked, working('7.1', 'gfx1100'), { HSA_OVERRIDE_GFX_VERSION: '11.0.0' });
    await expect(other).toMatchFileSnapshot(golden('override'));
    expect(text(faked, working('7.1', 'gfx1201'), { HSA_OVERRIDE_GFX_VERSION: '12.0.1' })).toBe('\n');
    expect(text(faked, working('7.1', 'gfx1201'), { HSA_OVERRIDE_GFX_VERSION_2: '11.0.0' })).toBe('\n');
    expect(text(faked, working('7.1', 'gfx1201'), { HSA_OVERRIDE_GFX_VERSION: 'gfx1100' })).toContain(
      'is no version such as 11.0.0',
    );
  });

  test('two cards of different families', async () => {
    const nodes = { ...OPEN, 'dev/dri/renderD129': 0o666 };
    const rocm = working('7.1', 'gfx1201', 'gfx1100');
    await expect(text({ cards: [RX9070, RX7900], files: LOADED, nodes }, rocm)).toMatchFileSnapshot(
      golden('two-families'),
    );
  });

  test('WSL', async () => {
    const faked = { kernel: '6.6.87.2-microsoft-standard-WSL2', nodes: { 'dev/dxg': 0o666 } };
    await expect(text(faked, none('rocm', '/opt/rocm/lib/libamdhip64.so.7', '7.1'))).toMatchFileSnapshot(golden('wsl'));
  });

  test('kernels that are not installed', async () => {
    const faked = { cards: [RX7900], files: LOADED, nodes: OPEN };
    await expect(text(faked, working('7.1', 'gfx1100'), {}, [])).toMatchFileSnapshot(golden('no-kernels'));
  });

  test('kernels of two cards that come in one package', () => {
    const cards = [RX7900, { ...RX7900, version: 110001 }];
    const said = text({ cards, files: LOADED, nodes: OPEN }, working('7.1', 'gfx1100', 'gfx1101'), {}, []);
    expect(said.match(/There are no compiled kernels/g)).toHaveLength(2);
    expect(said.match(/npm install/g)).toHaveLength(1);
  });

  test('kernels that are not where X_KERNEL_DIR says', () => {
    const said = text(
      { cards: [RX7900], files: LOADED, nodes: OPEN },
      working('7.1', 'gfx1100'),
      { X_KERNEL_DIR: '/x' },
      [],
    );
    expect(said).toMatch(
      /KERNELS_MISSING: .*rocm:0 \(gfx1100\) in X_KERNEL_DIR=\/x, .*\n +Unset it: `unset X_KERNEL_DIR`/,
    );
    expect(said).not.toContain('npm install');
  });

  test('settings that are refused, or name what cannot be used', async () => {
    const rocm = {
      ...none('rocm'),
      refused: [{ variable: 'X_GEMM', message: 'X_GEMM=fast is none of auto, kernels' }],
    };
    const host = { ...none('cuda'), refused: rocm.refused };
    const lacks = 'X_OPENBLAS_LIBRARY names /b.so, which cannot be used (/b.so lacks one two three four five)';
    const reason = { code: 'SYMBOL_MISSING' as const, message: lacks, remedy: 'Point X_OPENBLAS_LIBRARY at another' };
    const shared = { available: false, searched: [] };
    const answer: ToolsProbe = {
      libraries: [{ name: 'openblas', platform: 'host', purpose: 'gemm', reason, ...shared }],
      compilers: [{ platform: 'host', reason: 'X_CLANG=/c cannot be used: it cannot be run (ENOENT)', ...shared }],
    };
    const said = text({}, rocm, {}, [], { host: { answer: host }, tools: { answer } });
    await expect(said).toMatchFileSnapshot(golden('settings'));
  });

  test('no addon: a problem where there is a card', () => {
    const reason = { code: 'ADDON_MISSING' as const, message: 'the binary is not there', remedy: 'Install it' };
    const host = { answer: { ...none('rocm'), report: { ...none('rocm').report, reason } } };
    expect(text({}, none('rocm'), {}, [], { host })).toMatch(/\.\. ADDON_MISSING: the binary is not there\./);
    expect(text({ cards: [RX7900] }, none('rocm'), {}, [], { host })).toMatch(/!! ADDON_MISSING: /);
  });

  test('Secure Boot', async () => {
    const files = {
      'sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c': Buffer.from([6, 0, 0, 0, 1]),
      'var/lib/dkms/amdgpu/version': '6.10',
    };
    await expect(text({ cards: [RX7900], files }, none('rocm'))).toMatchFileSnapshot(golden('secure-boot'));
  });

  test('nothing, where all is well or there is no card', () => {
    expect(text({ cards: [RX7900], files: LOADED, nodes: OPEN }, working('7.1', 'gfx1100'))).toBe('\n');
    expect(text({}, none('rocm'))).toBe('\n');
  });

  test('nothing is read from files that make no sense', () => {
    const files = {
      'sys/class/kfd/kfd/topology/nodes/9/properties': 'simd_count x\n\0\ngfx_target_version',
      'etc/group': ':::',
    };
    expect(readMachine({ root: machine({ files, nodes: OPEN }), environment: {} }).gpus).toEqual([]);
  });
});

describe('the command', () => {
  const command = bundleCommand();

  function doctor(args: string[], environment: Record<string, string> = {}, nodeArgs: string[] = []) {
    return spawnSync(process.execPath, [...nodeArgs, command, 'doctor', ...args], {
      encoding: 'utf8',
      env: { ...process.env, ...environment },
      timeout: 50_000,
    });
  }

  function compiled(name: string, code: string): string {
    const [source, library] = [join(work, `${name}.c`), join(work, `lib${name}.so`)];
    writeFileSync(source, code);
    expect(spawnSync('gcc', ['-shared', '-fPIC', source, '-o', library]).status).toBe(0);
    return library;
  }

  test('ends with 1 for a problem, with 0 for advice', () => {
    const { status, stdout } = doctor(['--json']);
    const problems = JSON.parse(stdout).findings.filter(({ level }: { level: string }) => level === 'problem');
    expect(status).toBe(problems.length > 0 ? 1 : 0);
    expect(doctor(['--help']).stdout).toContain('The exit status is 1 where');
  });

  test('names each setting that the library refuses, its value and what it may be', () => {
    const { status, stdout } = doctor([], {
      X_GEMM: 'fast',
      X_CONV: 'slow',
      X_QUANTIZED: 'dp5',
      X_HOST_ARCH: 'pentium',
      X_HOST_THREADS: '0',
      X_COLLECTIVES_ADDRESS: '300.1.1.1',
      X_HIP_LIBRARY: compiled('empty', 'int empty;\n'),
    });
    expect(status).toBe(1);
    for (const said of [
      /X_GEMM=fast is none of auto, library, kernels, /,
      /X_CONV=slow is none of auto, library, kernels, /,
      /X_QUANTIZED=dp5 is none of auto, dp4a, /,
      /X_HOST_ARCH=pentium is none that this CPU has \(/,
      /X_HOST_THREADS=0 is not a number from 1 to 1024/,
      /X_COLLECTIVES_ADDRESS is '300\.1\.1\.1', which is no IPv4 address/,
      /X_HIP_LIBRARY=\S+libempty\.so: \S+ lacks hipInit \w+ \w+ and \d+ more\.\n/,
    ])
      expect(stdout).toMatch(new RegExp(`!! SETTING: ${said.source}`));
    expect(stdout.match(/X_HOST_ARCH=pentium/g)).toHaveLength(1);
    expect(Math.max(...stdout.split('\n').map((line) => line.length))).toBeLessThan(400);
  });

  test('an empty X_KERNEL_DIR', () => {
    const { status, stdout } = doctor([], { X_KERNEL_DIR: work });
    expect([status, stdout]).toEqual([1, expect.stringContaining(`for cpu (`)]);
    expect(stdout).toContain(`in X_KERNEL_DIR=${work}, and no other place`);
  });

  test('says once what is wrong with the addon', () => {
    const { stdout } = doctor([], {}, ['--no-addons']);
    expect(stdout.match(/native addons are disabled/g)).toHaveLength(1);
    expect(stdout.match(/see ADDON_MISSING above/g)).toHaveLength(13);
  });

  test("says what it could not look at under Node's permission model", () => {
    const flag = ['--permission', '--experimental-permission'].find((name) =>
      process.allowedNodeEnvironmentFlags.has(name),
    )!;
    const { status, stdout } = doctor([], {}, [flag, '--allow-fs-read=*']);
    expect(status).toBe(1);
    expect(stdout).toMatch(/PROBE_FAILED: .* forbids looking at rocm, cuda, host, compilers, libraries\./);
    expect(stdout).toMatch(/Devices\n {2}not known/);
    const files = join(import.meta.dirname, '../../..');
    const hidden = doctor([], {}, [flag, `--allow-fs-read=${files}/*`, `--allow-fs-read=${dirname(command)}/*`]);
    expect(hidden.stdout).toMatch(/forbids looking at what the kernel says \(\/sys, \/dev, \/proc\), rocm/);
  });

  test('survives a driver that crashes, says so, and writes all of it to a file', () => {
    const library = compiled(
      'crash',
      '#include <stdlib.h>\n#include <stdio.h>\n__attribute__((constructor)) static void crash(void) { fputs("driver on fire\\n", stderr); abort(); }\n',
    );
    const file = join(work, 'report.json');
    const { status, stdout } = doctor(['--report', file], { X_HIP_LIBRARY: library });
    expect(status).toBe(1);
    expect(stdout).toMatch(/PROBE_FAILED: Asking rocm for its devices ended with SIGABRT.*driver on fire/s);
    expect(stdout).toMatch(/ok cpu: /);
    const report = JSON.parse(readFileSync(file, 'utf8'));
    expect(report.findings.map(({ code }: { code: string }) => code)).toContain('PROBE_FAILED');
    expect(report.machine.environment.X_HIP_LIBRARY).toBe(library);
    expect(report.text).toEqual(expect.arrayContaining([expect.stringContaining('Node ')]));
    expect(Object.keys(report.machine.environment)).not.toContain('PATH');
  });

  test('says where a report cannot be written', () => {
    const { status, stderr } = doctor(['--report', join(work, 'no/such/folder.json')]);
    expect(status).toBe(2);
    expect(stderr).toMatch(/error USAGE: the report cannot be written: ENOENT.*Name a file/);
  });
});
