/** Captured graphs on one device: a replay gives what the function itself gives, on what its inputs then hold. */

import {
  type CapturedGraph,
  Device,
  type GraphOutputs,
  hostStep,
  keep,
  memoryStats,
  noGrad,
  scope,
  Tensor,
  Var,
} from '@x/core';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { makers } from './makers';

const code = (name: string) => expect.objectContaining({ code: name });
const UNSUPPORTED = code('CAPTURE_UNSUPPORTED');
const wave = (count: number, phase: number) => new Float32Array(count).map((_, i) => Math.sin(i * 0.7 + phase));

export function captureSuite(name: string, device: () => Device): void {
  const { from, zeros, counted } = makers(device);
  const floats = (shape: number[], phase = 0) =>
    Tensor.from(
      wave(
        shape.reduce((a, b) => a * b, 1),
        phase,
      ),
      { shape, device: device() },
    );

  /** A function of one input [4, 64], by what it stands for. */
  const operations: Record<string, () => (x: Tensor) => GraphOutputs> = {
    elementwise: () => (x) => x.exp().add(x).mul(3).relu(),
    'views and copies': () => (x) => [x.t().contiguous(), x.narrow(1, 3, 7).sqr(), x.t()],
    broadcasts: () => {
      const row = floats([64], 1);
      return (x) => x.broadcastAdd(row).broadcastMul(row);
    },
    matmul: () => {
      const w = floats([64, 48], 2);
      return (x) => x.matmul(w);
    },
    'matmul of f16': () => {
      const w = floats([64, 48], 2).toDtype('f16');
      return (x) => x.toDtype('f16').matmul(w);
    },
    reduce: () => (x) => ({ sum: x.sum(0), max: x.max(1), mean: x.meanAll(), at: x.argmax(1) }),
    softmax: () => (x) => x.softmaxLastDim(),
    rope: () => {
      const [cos, sin] = [floats([4, 8], 3), floats([4, 8], 4)];
      return (x) => x.reshape([1, 4, 4, 16]).rope(cos, sin);
    },
    'index select': () => {
      const ids = from([3, 0, 0, 2], 'u32');
      return (x) => x.indexSelect(ids, 0);
    },
    'values of the host': () => (x) => x.broadcastAdd(Tensor.from(wave(64, 9), { device: device() })),
    'values of the host behind memory that is free again': () => (x) => {
      const column = scope(() => x.mul(3).add(x.sqr()).sum(0));
      return x.broadcastAdd(column).add(Tensor.from(wave(256, 9), { shape: [4, 64], device: device() }));
    },
    sorting: () => (x) => x.sortLastDim(true),
    convolution: () => {
      const kernel = floats([2, 4, 3], 5);
      return (x) => x.unsqueeze(0).conv1d(kernel, { padding: 1 });
    },
    'no elements': () => (x) => x.narrow(0, 0, 0).exp(),
  };

  const all = (outputs: GraphOutputs): Tensor[] =>
    outputs === undefined
      ? []
      : outputs instanceof Tensor
        ? [outputs]
        : Object.values(outputs as Record<string, GraphOutputs>).flatMap(all);
  const values = (outputs: GraphOutputs) => all(outputs).map((tensor) => tensor.toArraySync());

  describe(`captured graphs on ${name}`, () => {
    afterEach(() => {
      delete process.env.X_GRAPHS;
    });

    test.each(Object.keys(operations))('%s: a replay is what the function gives', (operation) => {
      for (const graphs of ['1', '0']) {
        process.env.X_GRAPHS = graphs;
        scope(() => {
          const fn = operations[operation]();
          const x = floats([4, 64]);
          using graph = device().capture(() => fn(x));
          expect(values(graph.outputs)).toEqual(values(fn(x)));
          for (const phase of [1, 2, 3]) {
            x.write(wave(256, phase));
            const expected = values(fn(x));
            expect(graph.replay()).toBe(graph.outputs);
            expect(values(graph.outputs)).toEqual(expected);
          }
        });
      }
    });

    test('outputs stay where they are, in the shape in which they were returned', () => {
      const x = from([1, 2]);
      using graph = device().capture(() => ({ list: [x.add(1), x.mul(2)], x, none: undefined }));
      const [plus, times] = graph.outputs.list;
      expect(plus.toVecSync()).toEqual([2, 3]);
      x.write([5, 6]);
      graph.replay();
      expect([plus.toVecSync(), times.toVecSync(), graph.outputs.x.toVecSync()]).toEqual([
        [6, 7],
        [10, 12],
        [5, 6],
      ]);
      expect(graph.outputs.none).toBe(undefined);
      x.dispose();
    });

    test('the work is done once by capture and once by each replay', () => {
      const total = zeros([2]);
      const step = from([1, 10]);
      using graph = device().capture(() => total.copyFrom(scope(() => total.add(step))));
      expect(graph.outputs).toBe(undefined);
      expect(total.toVecSync()).toEqual([1, 10]);
      for (let i = 0; i < 3; i++) graph.replay();
      expect(total.toVecSync()).toEqual([4, 40]);
    });

    test('a read of an earlier replay keeps its values', async () => {
      const x = from([1, 2]);
      using graph = device().capture(() => x.sqr());
      const reads = [1, 2, 3].map((value) => {
        x.write([value, -value]);
        return graph.replay().toArray();
      });
      expect((await Promise.all(reads)).map((read) => [...read])).toEqual([
        [1, 1],
        [4, 4],
        [9, 9],
      ]);
    });

    test('what is allocated afterwards does not touch the memory of a graph', () => {
      scope(() => {
        const x = floats([64, 64]);
        const fn = () => x.matmul(x).softmaxLastDim().matmul(x).exp();
        using graph = device().capture(fn);
        const expected = values(fn());
        device().emptyCache();
        const others = Array.from({ length: 200 }, (_, i) => Tensor.full(i, [64, 64], 'f32', device()));
        graph.replay();
        expect(values(graph.outputs)).toEqual(expected);
        others.forEach((other, i) => {
          if (i % 40 === 0) expect(other.minAll().toScalarSync()).toBe(i);
        });
        expect(others[199].maxAll().toScalarSync()).toBe(199);
      });
    });

    test('many graphs, one on the results of another, in any order', () => {
      scope(() => {
        const x = from([1, 2, 3]);
        const graphs: CapturedGraph<Tensor>[] = [];
        for (let i = 0; i < 20; i++) {
          const input = i % 2 === 1 ? graphs[i - 1].outputs : x;
          graphs.push(device().capture(() => input.add(i).mul(2)));
        }
        x.write([10, 20, 30]);
        for (const graph of graphs) graph.replay();
        graphs.forEach((graph, i) => {
          const of = (v: number) => (i % 2 === 1 ? ((v + i - 1) * 2 + i) * 2 : (v + i) * 2);
          expect(graph.outputs.toVecSync()).toEqual([of(10), of(20), of(30)]);
        });
        for (const graph of graphs.reverse()) graph.dispose();
      });
    });

    test('disposal gives the memory back', () => {
      const x = floats([128, 128]);
      device()
        .capture(() => x.add(1))
        .dispose();
      const before = [device().memory().liveBytes, device().memory().graphBytes, memoryStats().liveTensors];
      const graph = device().capture(() =>
        x
          .exp()
          .log()
          .add(1)
          .sqr()
          .add(floats([128, 128], 1)),
      );
      graph.replay();
      graph.dispose();
      graph.dispose();
      expect([device().memory().liveBytes, device().memory().graphBytes, memoryStats().liveTensors]).toEqual(before);
      expect(graph.isDisposed).toBe(true);
      expect(() => graph.replay()).toThrow(code('DISPOSED'));
      x.dispose();
    });

    test('a view of an output outlives its graph', () => {
      const x = from([1, 2, 3]);
      const graph = device().capture(() => x.mul(2));
      const view = graph.outputs.narrow(0, 1, 2);
      graph.dispose();
      const others = Array.from({ length: 20 }, () => zeros([3]));
      expect(view.toVecSync()).toEqual([4, 6]);
      for (const tensor of [view, x, ...others]) tensor.dispose();
    });

    test('a scope around does not end a graph, and outputs have no history', () => {
      const v = Var.from([1, 2], { device: device() });
      const graph = scope(() => device().capture(() => v.mul(2)));
      expect(graph.outputs.trackOp).toBe(false);
      v.set(from([3, 4]));
      expect(graph.replay().toVecSync()).toEqual([6, 8]);
      graph.dispose();
    });

    test('what a replay writes in place, gradients see', () => {
      const w = Var.from([1, 2], { device: device() });
      const [k, news] = [from([3, 4]), from([7, 7])];
      using graph = device().capture(() => {
        k.copyFrom(news);
      });
      using variable = device().capture(() => noGrad(() => w.set(w.mul(10))));
      const [loss, square] = [w.mul(k).sumAll(), w.sqr().sumAll()];
      graph.replay();
      expect(() => loss.backward()).toThrow(code('CHANGED_IN_PLACE'));
      variable.replay();
      expect(() => square.backward()).toThrow(code('CHANGED_IN_PLACE'));
    });

    describe.each(['1', '0'])('steps of the host, X_GRAPHS=%s', (graphs) => {
      beforeEach(() => {
        process.env.X_GRAPHS = graphs;
      });

      test('are taken at each replay, between what is in front of them and what is behind', () => {
        const seen: number[][] = [];
        // Rows by the places of their largest values, which the host works out: memory is used again behind each step.
        const fn = (x: Tensor) => {
          let rows = x.mul(1);
          for (let i = 0; i < 3; i++) {
            const ids = Tensor.empty([4], 'u32', device());
            hostStep([rows.sum(1), ids], (sums, ids) => {
              const values = [...sums.toArraySync<Float32Array>()];
              seen.push(values.map((value) => Math.round(value)));
              ids.write(Uint32Array.from([0, 1, 2, 3].sort((a, b) => values[a] - values[b])));
            });
            rows = scope(() => rows.indexSelect(ids, 0).add(rows).mul(0.75));
          }
          return rows;
        };
        const x = floats([4, 64]);
        const graph = device().capture(() => fn(x));
        expect(seen.length).toBe(3);
        for (let phase = 0; phase < 3; phase++) {
          x.write(wave(256, phase));
          seen.length = 0;
          const replayed = scope(() => graph.replay().toArraySync());
          const own = seen.splice(0);
          expect(replayed).toEqual(scope(() => fn(x).toArraySync()));
          expect(own).toEqual(seen);
          expect(own.length).toBe(3);
        }
        if (graph.isCaptured) expect(graph.launches).toBeGreaterThan(9);
        const held = memoryStats().liveTensors;
        graph.dispose();
        // The output, and for each step what it reads and what it writes.
        expect(held - memoryStats().liveTensors).toBe(graph.isCaptured ? 7 : 1);
        x.dispose();
      });

      test('that fail end a replay, and the next one is right', () => {
        let isBroken = false;
        const [x, limit] = [from([1, 2]), zeros([1])];
        const graph = device().capture(() => {
          hostStep([x.sumAll(), limit], (sum, limit) => {
            if (isBroken) throw new Error('broken');
            limit.write([Number(sum.toScalarSync())]);
          });
          return x.broadcastAdd(limit);
        });
        isBroken = true;
        expect(() => graph.replay()).toThrow('broken');
        isBroken = false;
        x.write([5, 6]);
        expect(graph.replay().toVecSync()).toEqual([16, 17]);
        graph.dispose();
      });

      test('that dispose the graph end the replay', () => {
        const [x, limit] = [from([1, 2]), zeros([1])];
        let isLast = false;
        const graph: CapturedGraph<Tensor> = device().capture(() => {
          hostStep([limit], () => isLast && graph.dispose());
          return x.broadcastAdd(limit);
        });
        isLast = true;
        for (let i = 0; i < 2; i++) expect(() => graph.replay()).toThrow(code('DISPOSED'));
      });

      test('are synchronous, and are taken at once where nothing is captured', () => {
        const x = from([1, 2]);
        const later = async () => {
          await x.toArray();
        };
        expect(() => hostStep([x], later)).toThrow(UNSUPPORTED);
        expect(() =>
          device().capture(() => {
            hostStep([x], later);
            return x.add(1);
          }),
        ).toThrow(UNSUPPORTED);
        let sum = 0;
        hostStep([x], (x) => {
          sum = x.sumAll().toScalarSync();
        });
        expect(sum).toBe(3);
        expect(() => hostStep([1 as unknown as Tensor], () => {})).toThrow(code('INVALID_ARGUMENT'));
        expect(() => hostStep([x], undefined as unknown as () => void)).toThrow(code('INVALID_ARGUMENT'));
      });
    });

    test('a replay after an input was disposed is refused', () => {
      const x = from([1, 2]);
      const graph = device().capture(() => x.add(1));
      x.dispose();
      expect(() => graph.replay()).toThrow(code('DISPOSED'));
      graph.dispose();
    });

    test('a replay after an output was disposed is refused', () => {
      const x = from([1, 2]);
      using graph = device().capture(() => x.add(1));
      graph.outputs.dispose();
      expect(() => graph.replay()).toThrow(code('DISPOSED'));
    });

    const refused: Record<string, (x: Tensor) => unknown> = {
      'reading values': (x) => x.toArraySync(),
      'printing values': (x) => String(x),
      'reading one value': (x) => x.sumAll().toScalarSync(),
      'reading later': (x) => void x.toArray().catch(() => {}),
      'writing values of the host': (x) => x.write([1, 2]),
      waiting: () => device().synchronizeSync(),
      'waiting later': () =>
        void device()
          .synchronize()
          .catch(() => {}),
      'emptying the cache': () => device().emptyCache(),
      'disposing the device': () => device().dispose(),
      'random numbers': () => Tensor.rand(0, 1, [2], 'f32', device()),
      'normal numbers': (x) => x.randnLike(0, 1),
      'a seed': () => device().setSeed(1),
      'a capture inside': (x) => device().capture(() => x.add(1)).outputs,
      'an async function': async (x) => {
        await x.toArray();
      },
      'a result that is no tensor': () => 1,
      'a result with something else in it': (x) => [x, { n: 'text' }],
    };
    test.each(Object.keys(refused))('%s is refused, and the device goes on', (what) => {
      const x = from([1, 2]);
      const attempt = () => expect(() => device().capture(() => refused[what](x) as Tensor)).toThrow(UNSUPPORTED);
      // What a device caches for views stays there.
      attempt();
      const before = memoryStats().liveTensors;
      const { liveBytes, graphBytes } = device().memory();
      attempt();
      expect(memoryStats().liveTensors).toBe(before);
      expect([device().memory().liveBytes, device().memory().graphBytes]).toEqual([liveBytes, graphBytes]);
      expect(x.add(1).toVecSync()).toEqual([2, 3]);
      using graph = device().capture(() => x.add(2));
      expect(graph.replay().toVecSync()).toEqual([3, 4]);
      x.dispose();
    });

    test('a replay inside of a capture is refused', () => {
      const x = from([1, 2]);
      using graph = device().capture(() => x.add(1));
      expect(() => device().capture(() => graph.replay())).toThrow(UNSUPPORTED);
      expect(() => device().capture(() => graph.dispose())).toThrow(UNSUPPORTED);
      expect(graph.replay().toVecSync()).toEqual([2, 3]);
    });

    test('work on another device is refused', () => {
      const other = device().kind === 'js' ? Device.cpu() : Device.js();
      const x = from([1, 2]);
      const y = Tensor.from([1, 2], { device: other });
      for (const fn of [() => [y.add(1), x], () => y, () => y.zeroSet(), () => other.capture(() => y).outputs]) {
        expect(() => device().capture(fn as () => Tensor)).toThrow(UNSUPPORTED);
      }
      expect(y.toVecSync()).toEqual([1, 2]);
      for (const tensor of [x, y]) tensor.dispose();
    });

    test.each([1, 2])('an error of call %i of the function comes through', (at) => {
      const x = from([1, 2]);
      const before = device().memory().liveBytes;
      let calls = 0;
      const failing = () => {
        const y = x.add(1);
        if (++calls === at) throw new Error('mine');
        return y;
      };
      // Where there are no graphs the second call is that of a replay.
      const run = () => {
        using graph = device().capture(failing);
        graph.replay();
      };
      expect(run).toThrow('mine');
      expect(device().memory().liveBytes).toBe(before);
      expect(x.mul(2).toVecSync()).toEqual([2, 4]);
      x.dispose();
    });

    test('results of other shapes each time are refused', () => {
      const x = counted([6]);
      let n = 1;
      const capture = () => {
        using graph = device().capture(() => x.narrow(0, 0, n++).add(1));
        graph.replay();
      };
      expect(capture).toThrow(code('CAPTURE_FAILED'));
      let count = 1;
      const lists = () => {
        using graph = device().capture(() => Array.from({ length: count++ }, () => x.add(1)));
        graph.replay();
      };
      expect(lists).toThrow(code('CAPTURE_FAILED'));
      x.dispose();
    });

    test('only a function can be captured', () => {
      for (const fn of [undefined, null, 3, 'f', keep(zeros([1]))]) {
        expect(() => device().capture(fn as never)).toThrow(code('INVALID_ARGUMENT'));
      }
    });

    test('X_GRAPHS=0 calls the function by itself', () => {
      process.env.X_GRAPHS = '0';
      const x = from([1, 2]);
      let calls = 0;
      using graph = device().capture(() => {
        calls++;
        return x.add(1);
      });
      expect([graph.isCaptured, graph.launches, graph.launchNames]).toEqual([false, 0, []]);
      x.write([3, 4]);
      expect(graph.replay().toVecSync()).toEqual([4, 5]);
      expect(calls).toBe(2);
    });
  });
}
