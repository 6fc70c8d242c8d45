/** Where a command computes: on a device, on several of this machine, or as one of several processes that a launcher started. */
import { Device } from '@x/core';
import { followModel, type LoadModelOptions, type ProcessGroup, processGroup } from '@x/engine';
import { type Command, InvalidArgumentError, Option } from 'commander';
import { localModel } from './model-source';
import { wholeNumber } from './option-values';
import { paint, UsageError } from './output';

/** Where the experts of a mixture are. */
type ExpertFlags = Pick<LoadModelOptions, 'experts' | 'hotExperts'>;

export interface DeviceFlags extends ExpertFlags {
  device: string;
  devices?: string[];
  tensorParallel?: number | 'auto';
  pipeline?: boolean;
  /** False with `--no-graphs` and `--no-fused`. */
  graphs?: boolean;
  fused?: boolean;
}

export function addDeviceFlags(command: Command): Command {
  return withDevices(command, severalDevices())
    .option('--no-graphs', 'enqueue each step kernel by kernel: slower, and the same texts')
    .option('--no-fused', 'compute each operation by a kernel of its own: slower, and the same texts')
    .addOption(
      new Option('--experts <where>', 'weights of a mixture’s experts: all on the device, or in host memory').choices([
        'auto',
        'device',
        'host',
      ]),
    )
    .option('--hot-experts <count>', 'experts of a layer on the device, of those in host memory', wholeNumber(1));
}

/** For a command whose model has one device: the flags of several are known, and {@link oneDeviceOf} says so. */
export function addOneDeviceFlag(command: Command): Command {
  return withDevices(
    command,
    severalDevices().map((option) => option.hideHelp()),
  );
}

function withDevices(command: Command, several: readonly Option[]): Command {
  command.option('-d, --device <name>', 'auto, js, cpu, rocm:N or cuda:N', 'auto');
  for (const option of several) command.addOption(option);
  return command;
}

function severalDevices(): Option[] {
  return [
    new Option('--devices <names>', 'several that compute the model together, such as cuda:0,cuda:1').argParser(
      deviceNames,
    ),
    new Option('--tensor-parallel <count>', 'how many of its kind do, or auto for all').argParser(tensorParallel),
    new Option('--pipeline', 'give each device whole layers in place of a part of every layer'),
  ];
}

/** @throws UsageError for flags of several devices */
export async function oneDeviceOf({ device, devices, tensorParallel, pipeline }: DeviceFlags): Promise<Device> {
  const flag = Object.entries({ devices, 'tensor-parallel': tensorParallel, pipeline }).find(([, given]) => given)?.[0];
  if (flag !== undefined)
    throw new UsageError(
      `--${flag} is for models that make texts; a model of vectors is computed by one device. Give --device, and start a process a device for more texts a second.`,
    );
  return device === 'auto' ? Device.auto() : Device.parse(device);
}

/** cuda:0,cuda:1 */
function deviceNames(text: string): string[] {
  const names = text.split(',').map((name) => name.trim());
  if (names.every((name) => name !== '')) return names;
  throw new InvalidArgumentError('Give names of devices with commas between them, such as cuda:0,cuda:1.');
}

function tensorParallel(text: string): number | 'auto' {
  return text === 'auto' ? 'auto' : wholeNumber(1)(text);
}

/** What `loadModel` is told of it. */
export type Place = ExpertFlags &
  Pick<LoadModelOptions, 'device' | 'devices' | 'tensorParallel' | 'pipeline' | 'processes' | 'graphs' | 'fused'>;

/** @throws UsageError for flags that do not go together */
export async function placeOf(flags: DeviceFlags): Promise<Place> {
  const { experts, hotExperts } = flags;
  return { ...(await devicesOf(flags)), experts, hotExperts };
}

async function devicesOf({ device, devices, tensorParallel, pipeline, graphs, fused }: DeviceFlags): Promise<Place> {
  const processes = processGroup();
  if (processes) {
    if (devices !== undefined || tensorParallel !== undefined)
      throw new UsageError(
        `${inGroup(processes)}, each with one device; leave --devices and --tensor-parallel out, or unset WORLD_SIZE.`,
      );
    return { device: device === 'auto' ? undefined : device, processes, pipeline, graphs, fused };
  }
  if (devices !== undefined) {
    if (device !== 'auto')
      throw new UsageError('--device and --devices are two answers to one question. Give one of them.');
    return { devices, tensorParallel, pipeline, graphs, fused };
  }
  const own = device === 'auto' ? await Device.auto() : Device.parse(device);
  return { device: own, tensorParallel, pipeline, graphs, fused };
}

/**
 * In a process with a rank above 0: computes its part of the model until rank 0, which does what the command is for, ends.
 * @returns false in all other processes
 */
export async function followed(
  model: string,
  { device }: DeviceFlags,
  { json, signal }: { json?: boolean; signal: AbortSignal },
): Promise<boolean> {
  const group = processGroup();
  if (group === undefined || group.rank === 0) return false;
  const path = await localModel(model, { json, signal });
  process.stderr.write(
    `${paint('dim', `${inGroup(group)}; rank 0 is at ${group.host}:${group.port}`, process.stderr)}\n`,
  );
  const stop = new AbortController();
  let isLoaded = false;
  // Launchers tell all processes to end, and rank 0 may have requests under way: it ends the group.
  const onSignal = () => {
    if (!isLoaded) stop.abort(signal.reason);
    else process.stderr.write('waiting for rank 0 to end; Ctrl-C again ends this process at once\n');
  };
  if (signal.aborted) onSignal();
  signal.addEventListener('abort', onSignal, { once: true });
  const onLoaded = () => {
    isLoaded = true;
  };
  await followModel(path, group, { device: device === 'auto' ? undefined : device, signal: stop.signal, onLoaded });
  return true;
}

function inGroup({ rank, size }: ProcessGroup): string {
  return `this is process ${rank} of ${size} that compute one model together (RANK, WORLD_SIZE)`;
}
