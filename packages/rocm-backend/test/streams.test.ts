/** Streams of a device beside its own: order is what events make, and memory is safe whichever stream frees it. */
import { scope, Tensor } from '@x/core';
import { kernelDevices } from '@x/testing/devices';
import { describe, expect, it } from 'vitest';
import type { RocmDevice } from '../src/index';

const SIZE = 1 << 16;

delete process.env.X_GRAPHS;

describe.each(kernelDevices())('streams of %s', (device) => {
  const backend = device.backend as RocmDevice;
  const { streams } = backend;
  const filled = (value: number, count = SIZE) => Tensor.full(value, [count], 'f32', device);
  /** Keeps a stream busy for some milliseconds. */
  const busy = () =>
    scope(() => void Tensor.full(0.5, [256, 256], 'f32', device).matmul(filled(1).reshape([256, 256])));
  const ends = (tensor: Tensor) => {
    const values = tensor.toArraySync();
    return [values[0], values[values.length >> 1], values[values.length - 1]];
  };

  it('an event orders one stream behind another', () => {
    scope(() => {
      using stream = streams.create();
      const x = filled(1);
      for (let i = 0; i < 20; i++) {
        using given = streams.own.record();
        const y = stream.run(() => {
          stream.wait(given);
          busy();
          return x.add(i);
        });
        using done = stream.record();
        streams.own.wait(done);
        expect(ends(y.mul(2))).toEqual([2 * (1 + i), 2 * (1 + i), 2 * (1 + i)]);
      }
    });
  });

  it('what a stream still reads is not handed out when it is freed on another one', () => {
    scope(() => {
      using stream = streams.create();
      const sums: Tensor[] = [];
      for (let i = 0; i < 40; i++) {
        const x = filled(i);
        using given = streams.own.record();
        const sum = stream.run(() => {
          stream.wait(given);
          for (let n = 0; n < 4; n++) busy();
          return x.mul(2);
        });
        sums.push(sum);
        // Freed here, while the other stream has hardly begun.
        x.dispose();
        for (let n = 0; n < 3; n++) scope(() => void filled(-1));
      }
      using done = stream.record();
      streams.own.wait(done);
      sums.forEach((sum, i) => {
        expect(ends(sum)).toEqual([2 * i, 2 * i, 2 * i]);
      });
    });
  });

  it('what a stream has freed is not handed to another one before the stream is through', () => {
    scope(() => {
      using stream = streams.create();
      const kept: Tensor[] = [];
      for (let i = 0; i < 40; i++) {
        stream.run(() =>
          scope(() => {
            for (let n = 0; n < 4; n++) busy();
            const x = filled(-1);
            for (let n = 0; n < 4; n++) x.constSet(-2);
          }),
        );
        kept.push(filled(i));
      }
      backend.synchronizeSync();
      kept.forEach((tensor, i) => {
        expect(ends(tensor)).toEqual([i, i, i]);
      });
    });
  });

  it('memory that a stream has freed is used again when the stream is through', async () => {
    const stream = streams.create();
    const count = 3_000_000;
    stream.run(() => filled(1, count).dispose());
    // The first look has the stream marked, a later one finds it passed.
    scope(() => void filled(2, count));
    await backend.synchronize();
    scope(() => {
      filled(3, count);
      filled(3, count);
    });
    const before = device.memory().driverBytes;
    await backend.synchronize();
    scope(() => {
      filled(3, count);
      filled(3, count);
    });
    expect(device.memory().driverBytes).toBe(before);
    stream.dispose();
    expect(device.memory().driverBytes).toBe(before);
  });

  it('layouts, products and uploads are there for every stream', () => {
    scope(() => {
      const all = [streams.create(), streams.create()];
      const x = Tensor.arange(0, 35, 'f32', device).reshape([5, 7]);
      const w = Tensor.arange(0, 35, 'f32', device).reshape([7, 5]);
      const expected = x.t().exp().log().matmul(w.t()).toArraySync();
      for (let i = 0; i < 10; i++) {
        for (const stream of all) {
          const cut = x.narrow(1, 0, 1 + ((i * 3) % 7));
          const y = stream.run(() => {
            using given = streams.own.record();
            stream.wait(given);
            return [x.t().exp().log().matmul(w.t()), cut.t().contiguous()];
          });
          using done = stream.record();
          streams.own.wait(done);
          expect(y[0].toArraySync()).toEqual(expected);
          expect(y[1].toVecSync()).toEqual(cut.t().toVecSync());
        }
      }
      for (const stream of all) stream.dispose();
    });
  });

  it('a stream that was disposed is refused, and its tensors live on', async () => {
    const stream = streams.create();
    const x = stream.run(() => filled(5));
    const event = stream.record();
    await event.synchronize();
    expect(event.isDone).toBe(true);
    event.dispose();
    await stream.synchronize();
    stream.dispose();
    stream.dispose();
    expect(ends(x)).toEqual([5, 5, 5]);
    x.dispose();
    for (const use of [() => stream.run(() => 1), () => stream.record(), () => stream.synchronize()]) {
      expect(use).toThrow(expect.objectContaining({ code: 'DISPOSED' }));
    }
    expect(ends(filled(6))).toEqual([6, 6, 6]);
  });

  it('an error in a stream leaves the device on its own', () => {
    using stream = streams.create();
    expect(() =>
      stream.run(() => {
        throw new Error('mine');
      }),
    ).toThrow('mine');
    expect(streams.current).toBe(streams.own.id);
  });

  it('graphs are of the own stream', () => {
    scope(() => {
      using stream = streams.create();
      const x = filled(1);
      const refused = expect.objectContaining({ code: 'CAPTURE_UNSUPPORTED' });
      expect(() => stream.run(() => device.capture(() => x.add(1)))).toThrow(refused);
      expect(() => device.capture(() => stream.run(() => x.add(1)))).toThrow(refused);
      expect(() => device.capture(() => void streams.create())).toThrow(refused);
      using graph = device.capture(() => x.add(1));
      expect(() => stream.run(() => graph.replay())).toThrow(refused);
      expect(ends(graph.replay())).toEqual([2, 2, 2]);
    });
  });
});
