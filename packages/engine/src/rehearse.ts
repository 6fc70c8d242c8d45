/**
 * Kernels before their first use. The driver of an NVIDIA GPU compiles each kernel once a machine, for a tenth of a second and
 * more. Which ones a model has, the model says: it is built and run once on a device that computes nothing (`Device.rehearsal`),
 * which takes the host's time of a few passes. The driver compiles on other threads meanwhile, and while weights are read.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Device } from '@x/core';
import type { BuiltModel } from './build-model';
import { Runner } from './runner';
import { LogitsProcessor } from './sampling';

/** Kernels that a driver compiles ahead of their first use. */
export interface KernelProgress {
  /** How many of them need no more waiting. */
  ready: number;
  /** How many there are so far. */
  wanted: number;
  /** The device's description. */
  device: string;
}

export type KernelListener = (progress: KernelProgress) => void;

/** Tokens of prompts: of few rows and of many, whose products are different kernels. The first ones are compiled first. */
const PROMPTS = [32, 8, 512];
/** The first layers of a model have all kinds of layers and types of weights that there are in it, or nearly all. */
export const REHEARSED_LAYERS = 8;
const TURN_MS = 20;
/** Kernels that earlier processes have left in the driver's cache are there sooner, and nobody needs to hear of them. */
const QUIET_MS = 500;

/**
 * Has the kernels that a model will use made ready, and does not wait for them. Errors are ignored: a model that cannot be loaded or
 * run says so by itself, and a kernel that was not named is compiled at its first use.
 * @param build makes the model on the device that it is given
 */
export async function rehearse(
  device: Device,
  build: (on: Device) => Promise<Pick<BuiltModel, 'model' | 'maxContext' | 'cacheDtype'>>,
): Promise<void> {
  let on: Device | undefined;
  try {
    on = device.rehearsal();
    if (!on) return;
    const { model, maxContext, cacheDtype } = await build(on);
    try {
      const runner = new Runner(model, { maxContext, cache: { dtype: cacheDtype } });
      try {
        for (const length of PROMPTS) await run(runner, Math.min(length, maxContext - 1));
      } finally {
        runner.dispose();
      }
    } finally {
      model.dispose();
    }
  } catch {
    // The real model meets it again.
  } finally {
    on?.dispose();
  }
}

/** A prompt and the token behind it. */
async function run(runner: Runner, length: number): Promise<void> {
  const sampler = new LogitsProcessor({ temperature: 0 }).sampler([]);
  const cache = runner.cache();
  try {
    for (const ids of [Array.from({ length }, () => 0), [0]]) await runner.choose([{ cache, ids }], [sampler]).choices;
  } finally {
    cache.dispose();
  }
}

/** Waits for the kernels that rehearsals of a device have named, and tells of them meanwhile. {@link end} it. */
export class KernelWatch {
  private readonly since = performance.now();
  private readonly timer: NodeJS.Timeout | undefined;
  private told: string | undefined;

  /** @param listener is told when compiling takes longer than half a second, and once more when it is over */
  constructor(
    private readonly device: Device,
    private readonly listener: KernelListener | undefined,
  ) {
    if (listener && device.backend.preparation) this.timer = setInterval(() => this.look(), 2 * TURN_MS).unref();
  }

  /** @throws the signal's reason */
  async ready(signal: AbortSignal | undefined): Promise<void> {
    while (!this.device.isDisposed && !this.isReady()) {
      await sleep(TURN_MS);
      signal?.throwIfAborted();
    }
    this.look();
  }

  end(): void {
    clearInterval(this.timer);
  }

  private isReady(): boolean {
    const { ready, wanted } = this.progress();
    return ready >= wanted;
  }

  private progress(): { ready: number; wanted: number } {
    return this.device.backend.preparation?.progress() ?? { ready: 0, wanted: 0 };
  }

  private look(): void {
    if (!this.listener || this.device.isDisposed || performance.now() - this.since < QUIET_MS) return;
    const { ready, wanted } = this.progress();
    const text = `${ready} ${wanted}`;
    // Nobody who was told nothing hears that all is over.
    if (this.told === text || (this.told === undefined && ready >= wanted)) return;
    this.told = text;
    this.listener({ ready, wanted, device: this.device.description });
  }
}
