/** Disposal, scopes (sync and interleaved async), leak counting, and what the collector does for forgotten tensors. */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { describe, expect, test as plainTest } from 'vitest';
import { DisposedError, keep, type MemoryStats, memoryStats, scope, TENSORS, Tensor } from '../src';

let before: MemoryStats;
const grown = () => {
  const now = memoryStats();
  return { tensors: now.liveTensors - before.liveTensors, storages: now.liveStorages - before.liveStorages };
};
const made = (value = 1) => Tensor.full(value, [4]);
const tick = () => new Promise<void>((resolve) => setImmediate(resolve));

/** In a scope, so that no test leaves tensors to a collector that would disturb the counts of the next. */
const test = (name: string, body: () => void | Promise<void>) =>
  plainTest(name, () =>
    scope(() => {
      before = memoryStats();
      return body();
    }),
  );

describe('dispose', () => {
  test('a storage goes with its last view', () => {
    const t = Tensor.zeros([4, 4]);
    const view = t.t();
    expect(grown()).toEqual({ tensors: 2, storages: 1 });
    expect(memoryStats().liveBytes - before.liveBytes).toBe(64);
    t.dispose();
    expect(grown()).toEqual({ tensors: 1, storages: 1 });
    expect(view.sumAll().toScalarSync()).toBe(0);
    view.dispose();
    view.dispose();
    expect(t.isDisposed && view.isDisposed).toBe(true);
    expect(memoryStats().liveBytes - before.liveBytes).toBe(4);
  });

  test('stats name the device', () => {
    const t = made();
    expect(memoryStats().byDevice.cpu.liveBytes).toBeGreaterThanOrEqual(16);
    t.dispose();
  });

  test('use afterwards names the op and the shape', () => {
    const t = made();
    t.dispose();
    const uses: [string, () => unknown][] = [
      ['exp', () => t.exp()],
      ['add', () => made().add(t)],
      ['reshape', () => t.reshape([2, 2])],
      ['constSet', () => t.constSet(1)],
      ['matmul', () => t.unsqueeze(0)],
    ];
    for (const [, use] of uses) expect(use).toThrow(DisposedError);
    expect(() => t.exp()).toThrow(/^exp: a tensor of shape \[4\] and dtype f32 was disposed/);
  });

  test('reading afterwards rejects', async () => {
    const t = made();
    t.dispose();
    await expect(t.toArray()).rejects.toMatchObject({ code: 'DISPOSED' });
  });

  test('using disposes at the end of the block', () => {
    let seen: Tensor;
    {
      using t = made();
      seen = t;
      expect(t.isDisposed).toBe(false);
    }
    expect(seen.isDisposed).toBe(true);
    expect(grown()).toEqual({ tensors: 0, storages: 0 });
  });

  test('an op that fails leaves nothing behind', () => {
    const [a, b] = [Tensor.zeros([2, 3]), Tensor.zeros([2, 3])];
    expect(() => a.matmul(b)).toThrow();
    expect(() => a.scatter(Tensor.zeros([9], 'u32'), b, 0)).toThrow();
    expect(() => a.logSumExp(7)).toThrow();
    expect(grown()).toEqual({ tensors: 3, storages: 3 });
  });

  test('composed ops free their temporaries', () => {
    const t = Tensor.randn(0, 1, [3, 4], 'f16');
    const turned = t.t();
    const ids = Tensor.from([0, 2], { dtype: 'u32' });
    const run = [
      () => t.mean(0),
      () => t.varKeepdim(1),
      () => t.logSumExp(1),
      () => t.cumsum(0),
      () => t.norm(),
      () => t.flip([0, 1]),
      () => t.roll(1, 0),
      () => t.repeat([2, 1]),
      () => Tensor.stack([t, t], 0),
      () => t.clamp(0, 1),
      () => t.pow(t),
      () => t.roundTo(1),
      () => turned.softmaxLastDim(),
      () => t.padWithSame(0, 1, 1),
      () => t.embedding(ids),
      () => t.max([0, 1]),
      () => t.maxAll(),
      () => t.i(ids),
    ];
    const base = memoryStats();
    for (const op of run) {
      op().dispose();
      expect(memoryStats(), op.toString()).toEqual(base);
    }
  });
});

describe('scope', () => {
  test('disposes what is not returned', () => {
    const out = scope(() => {
      const a = made(2);
      return a.mul(3).add(a);
    });
    expect(out.toArraySync()).toEqual(Float32Array.of(8, 8, 8, 8));
    expect(grown()).toEqual({ tensors: 1, storages: 1 });
    out.dispose();
  });

  test('tensors in arrays, objects, Maps, Sets and objects with TENSORS survive', () => {
    class Layer {
      #weight = made();
      [TENSORS](): unknown[] {
        return [this.#weight];
      }
      get alive(): boolean {
        return !this.#weight.isDisposed;
      }
    }
    class Opaque {
      readonly inner = made();
    }
    const out = scope(() => {
      const cyclic: { list: unknown[]; self?: unknown } = { list: [made(), { deep: made() }] };
      cyclic.self = cyclic;
      return {
        cyclic,
        map: new Map([['a', made()]]),
        set: new Set([made()]),
        layer: new Layer(),
        opaque: new Opaque(),
        n: 1,
      };
    });
    expect(out.layer.alive).toBe(true);
    expect(out.map.get('a')?.isDisposed).toBe(false);
    expect(out.opaque.inner.isDisposed, 'fields of class instances are not searched').toBe(true);
    expect(grown().tensors).toBe(5);
  });

  test('nested scopes hand results outwards, and views keep what they need', () => {
    const view = scope(() => {
      const inner = scope(() => Tensor.arange(0, 6).reshape([2, 3]).t());
      expect(grown().tensors).toBe(1);
      return inner.narrow(0, 0, 1);
    });
    expect(view.toVecSync()).toEqual([[0, 3]]);
    expect(grown()).toEqual({ tensors: 1, storages: 1 });
  });

  test('an error disposes everything', () => {
    expect(() =>
      scope(() => {
        made();
        throw new Error('stop');
      }),
    ).toThrow('stop');
    expect(grown().tensors).toBe(0);
  });

  test('keep takes a tensor out of all scopes', () => {
    let kept: Tensor | undefined;
    scope(() => {
      scope(() => {
        kept = keep(made());
        made();
      });
    });
    expect(kept?.isDisposed).toBe(false);
    expect(grown().tensors).toBe(1);
  });

  test('tensors from outside are left alone', () => {
    const outer = made();
    scope(() => outer.exp().sumAll().toScalarSync());
    expect(outer.isDisposed).toBe(false);
    expect(grown().tensors).toBe(1);
  });
});

describe('async scope', () => {
  test('ends when the promise settles', async () => {
    const out = await scope(async () => {
      const a = made(1);
      await tick();
      const b = a.add(1);
      await b.toArray();
      expect(a.isDisposed).toBe(false);
      return { b };
    });
    expect(out.b.toArraySync()[0]).toBe(2);
    expect(grown()).toEqual({ tensors: 1, storages: 1 });
  });

  test('interleaved scopes do not touch each other’s tensors', async () => {
    const log: string[] = [];
    const worker = (name: string, steps: number) =>
      scope(async () => {
        let value = made(0);
        for (let i = 0; i < steps; i++) {
          await tick();
          log.push(name);
          value = value.add(1);
          scope(() => value.exp());
        }
        return value;
      });
    const slow = worker('slow', 6);
    const fast = worker('fast', 2);
    const quick = await fast;
    expect(log.slice(0, 4)).toEqual(['slow', 'fast', 'slow', 'fast']);
    expect(quick.toArraySync()[0]).toBe(2);
    const last = await slow;
    expect(last.toArraySync()[0]).toBe(6);
    expect(quick.isDisposed).toBe(false);
    expect(grown()).toEqual({ tensors: 2, storages: 2 });
  });

  test('a sync scope in between does not end an async one', async () => {
    const pending = scope(async () => {
      const a = made(5);
      await tick();
      return a.add(a);
    });
    scope(() => made().exp());
    expect((await pending).toArraySync()[0]).toBe(10);
  });

  test('a rejection disposes and passes on', async () => {
    const failing = scope(async () => {
      made();
      await tick();
      made();
      throw new Error('late');
    });
    await expect(failing).rejects.toThrow('late');
    expect(grown().tensors).toBe(0);
  });

  test('work that outlives its scope falls to the surrounding one', async () => {
    let late: Promise<Tensor> | undefined;
    await scope(async () => {
      await scope(async () => {
        late = (async () => {
          await tick();
          await tick();
          return made(3);
        })();
        await tick();
      });
      const tensor = await late;
      expect(tensor?.isDisposed).toBe(false);
    });
    expect((await late)?.isDisposed).toBe(true);
  });
});

describe('the collector', () => {
  test('releases forgotten tensors', async () => {
    setFlagsFromString('--expose-gc');
    const collect = runInNewContext('gc') as () => void;
    const makeGarbage = () => {
      for (let i = 0; i < 50; i++) Tensor.zeros([1000]).exp();
    };
    makeGarbage();
    expect(grown().tensors).toBeGreaterThan(0);
    for (let i = 0; i < 50 && grown().tensors > 0; i++) {
      collect();
      await tick();
    }
    expect(grown().tensors).toBeLessThanOrEqual(0);
  });
});

describe('what a scope cannot search', () => {
  class Broken {
    constructor(private readonly inside: () => unknown) {}
    [TENSORS](): unknown {
      return this.inside();
    }
  }
  const fails = () => {
    throw new Error('no way in');
  };

  test('is no obstacle to its end', async () => {
    const broken = [
      {
        get field() {
          return fails();
        },
      },
      new Broken(fails),
      new Broken(() => 5),
    ];
    for (const value of broken) {
      expect(() => scope(() => [made(), value])).toThrow(/no way in|not iterable/);
      await expect(scope(async () => [made(), value])).rejects.toThrow(/no way in|not iterable/);
    }
    expect(grown()).toEqual({ tensors: 0, storages: 0 });
  });

  test('is no question of how much there is', () => {
    const count = 300_000;
    const kept = scope(() => {
      const numbers = Array.from({ length: count }, (_, i) => i);
      return { numbers, set: new Set(numbers), tensor: made() };
    });
    expect([kept.numbers.length, kept.set.size]).toEqual([count, count]);
    expect(grown()).toEqual({ tensors: 1, storages: 1 });
    kept.tensor.dispose();
  });
});
