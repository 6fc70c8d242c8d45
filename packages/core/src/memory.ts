/** What is alive: the numbers that leak tests and people look at. Per-device allocator numbers are `Device.memory()`. */

import { shared } from './one-core';

/** Buffers not yet disposed, and their bytes. */
export interface DeviceUsage {
  liveStorages: number;
  liveBytes: number;
}

export interface MemoryStats {
  /** Tensors neither disposed nor collected; views count. */
  liveTensors: number;
  /** Buffers behind them; views share one. */
  liveStorages: number;
  /** Bytes of those buffers. */
  liveBytes: number;
  /** The same by device name (`js`, `cpu`, `rocm:0`); devices that hold nothing are left out. */
  byDevice: Record<string, DeviceUsage>;
}

const counts = shared('memory', () => ({ liveTensors: 0, devices: new Map<string, DeviceUsage>() }));

export function countTensors(change: number): void {
  counts.liveTensors += change;
}

/** The counts of the devices of one name, for a device to keep: a name is looked up once a device, not once a storage. */
export function usageOf(device: string): DeviceUsage {
  let usage = counts.devices.get(device);
  if (!usage) {
    usage = { liveStorages: 0, liveBytes: 0 };
    counts.devices.set(device, usage);
  }
  return usage;
}

/** Tensors and buffers alive in this thread, over all devices. */
export function memoryStats(): MemoryStats {
  const { liveTensors, devices } = counts;
  const stats: MemoryStats = { liveTensors, liveStorages: 0, liveBytes: 0, byDevice: {} };
  for (const [device, usage] of devices) {
    if (usage.liveStorages === 0) continue;
    stats.byDevice[device] = { ...usage };
    stats.liveStorages += usage.liveStorages;
    stats.liveBytes += usage.liveBytes;
  }
  return stats;
}
