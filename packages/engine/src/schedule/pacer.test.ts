import { setTimeout as sleep } from 'node:timers/promises';
import type { Tensor } from '@x/core';
import type { ForwardPass } from '@x/transformers';
import { describe, expect, test } from 'vitest';
import { Pacer } from './pacer';

/** A device on which every step takes some time, behind as much of a tensor as the pacer uses. */
class SlowDevice {
  enqueued = 0;
  finished = 0;
  mostAhead = 0;
  passesLeft = 0;
  failure: Error | undefined;
  private queue: Promise<void> = Promise.resolve();

  constructor(readonly stepMs: number) {}

  *pass(steps: number, logits: boolean): ForwardPass {
    this.passesLeft++;
    const all = steps + (logits ? 1 : 0);
    try {
      for (let i = 1; i <= steps; i++) yield { output: this.step(), share: i / all };
      return logits ? this.step() : undefined;
    } finally {
      this.passesLeft--;
    }
  }

  private step(): Tensor {
    this.enqueued++;
    this.mostAhead = Math.max(this.mostAhead, this.enqueued - this.finished);
    this.queue = this.queue.then(async () => {
      await sleep(this.stepMs);
      this.finished++;
    });
    const at = this.queue;
    const tensor = {
      shape: [1],
      device: { backend: {} },
      handle: { release() {} },
      narrow: () => tensor,
      toBytes: async () => {
        await at;
        if (this.failure) throw this.failure;
      },
      dispose() {},
    };
    return tensor as unknown as Tensor;
  }
}

describe('pacer', () => {
  test.each([
    [20, 30],
    [2, 100],
  ])('steps of %i ms: little is ahead of the device, and what is reported is done', async (stepMs, steps) => {
    const device = new SlowDevice(stepMs);
    const pacer = new Pacer(() => {});
    const shares: number[] = [];
    for (const logits of [false, true]) {
      await pacer.run(device.pass(steps, logits), (share) => {
        shares.push(share);
        const before = shares.indexOf(1) >= 0 && share !== 1 ? steps : 0;
        expect(device.finished).toBeGreaterThanOrEqual(before + Math.floor(share * steps));
      });
      expect((device.enqueued - device.finished) * stepMs).toBeLessThanOrEqual(100);
    }
    await pacer.idle();
    expect(device.mostAhead * stepMs).toBeLessThanOrEqual(100);
    expect(shares).toContain(1);
    expect(shares.length).toBeGreaterThan(5);
  });

  test('little is ahead of the device where this thread is busy and passes differ', async () => {
    const stepMsOf = (size: number) => size;
    let end = 0;
    let most = 0;
    function* pass(size: number): ForwardPass {
      for (let i = 1; i <= 40; i++) {
        end = Math.max(end, performance.now()) + stepMsOf(size);
        most = Math.max(most, end - performance.now());
        const at = end;
        const toBytes = async () => sleep(Math.max(0, at - performance.now()));
        const tensor = {
          shape: [1],
          device: { backend: {} },
          handle: { release() {} },
          narrow: () => tensor,
          toBytes,
          dispose() {},
        };
        yield { output: tensor as unknown as Tensor, share: i / 40 };
      }
      return undefined;
    }
    const busy = setInterval(() => {
      const until = performance.now() + 35;
      while (performance.now() < until);
    }, 50);
    try {
      const pacer = new Pacer(() => {}, { others: () => ({ areWaiting: true, steps: 0, stepMs: 0 }) });
      for (const size of [1, 1, 4, 1, 4, 2]) await pacer.run(pass(size), () => {}, size);
      await pacer.idle();
    } finally {
      clearInterval(busy);
    }
    expect(most).toBeLessThanOrEqual(60);
  });

  test.each([
    [40, 1, 4],
    [4, 8, 40],
  ])('groups follow from what others wait for: %i ms', async (stepMs, least, most) => {
    const device = new SlowDevice(1);
    let steps = 0;
    let groups = 0;
    const pacer = new Pacer(() => {}, { others: () => ({ areWaiting: true, steps: steps++, stepMs }) });
    // How many it takes to get there is no matter.
    for (let i = 0; i < 4; i++) await pacer.run(device.pass(40, false));
    for (let i = 0; i < 4; i++) await pacer.run(device.pass(40, false), () => groups++);
    await pacer.idle();
    expect(160 / groups).toBeGreaterThanOrEqual(least);
    expect(160 / groups).toBeLessThanOrEqual(most);
  });

  test('fast steps go out together', async () => {
    const device = new SlowDevice(0);
    const pacer = new Pacer(() => {});
    let groups = 0;
    for (let i = 0; i < 10; i++) await pacer.run(device.pass(50, false), () => groups++);
    await pacer.idle();
    expect(device.finished).toBe(500);
    expect(groups).toBeLessThan(100);
  });

  test('stops between groups, ends the pass, and waits for what is under way', async () => {
    const device = new SlowDevice(10);
    let stopped = false;
    const pacer = new Pacer(() => {
      if (stopped) throw new Error('enough');
    });
    setTimeout(() => {
      stopped = true;
    }, 100);
    const started = performance.now();
    await expect(pacer.run(device.pass(1000, true))).rejects.toThrow('enough');
    await pacer.idle();
    expect(performance.now() - started).toBeLessThan(1000);
    expect(device.passesLeft).toBe(0);
    expect(device.finished).toBe(device.enqueued);
  });

  test('a failure of the device is thrown once, by the run', async () => {
    const device = new SlowDevice(5);
    const pacer = new Pacer(() => {});
    setTimeout(() => {
      device.failure = new Error('device lost');
    }, 50);
    await expect(pacer.run(device.pass(1000, true))).rejects.toThrow('device lost');
    await pacer.idle();
    expect(device.passesLeft).toBe(0);
  });
});
