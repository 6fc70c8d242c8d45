/**
 * Streams of a device beside its own, behind core's `StreamOps`: which of them work goes to, and what one stream knows of
 * the progress of another, by which the allocator decides when memory may change streams.
 *
 * Progress is told by stamps, numbers that only rise: everything that a stream was given before a stamp was drawn has
 * passed when an event has that was recorded in it afterwards. A device without further streams never asks.
 */
import { type BackendEvent, type BackendStream, DisposedError, type StreamOps } from '@x/core';
import { type HipDevice, HipError, type HipEvent, type HipStream } from '@x/hip';
import type { StreamOrder } from './allocator';

/** What a stream does to the rest of the device. */
export interface StreamOwner {
  /** In front of what a captured graph cannot hold. */
  refuseInCapture(op: string): void;
  /** Memory is allocated and freed for this stream from now on. */
  entered(stream: number): void;
  /** The stream is gone, and its work done. */
  closed(stream: number): void;
}

/** The device's own stream. */
const OWN = 0;

interface Mark {
  readonly event: HipEvent;
  /** Drawn when the event was recorded. */
  stamp: number;
  pending: boolean;
}

export class DeviceStreams implements StreamOps, StreamOrder {
  readonly own: DeviceStream;
  readonly #hip: HipDevice;
  readonly #owner: StreamOwner;
  readonly #streams = new Map<number, DeviceStream>();
  /** Up to which stamp a stream has passed, and has waited for another one. */
  readonly #passed = new Map<number, number>();
  readonly #waited = new Map<number, Map<number, number>>();
  readonly #marks = new Map<number, Mark>();
  #current: DeviceStream;
  #stamp = 0;
  #lastId = OWN;

  constructor(hip: HipDevice, owner: StreamOwner) {
    this.#hip = hip;
    this.#owner = owner;
    this.own = new DeviceStream(this, hip, OWN, hip.defaultStream);
    this.#current = this.own;
    this.#streams.set(OWN, this.own);
  }

  /** Whether there are streams beside the device's own. */
  get isShared(): boolean {
    return this.#streams.size > 1;
  }

  /** The stream that work goes to now. */
  get current(): number {
    return this.#current.id;
  }

  create(): DeviceStream {
    this.#owner.refuseInCapture('creating a stream');
    const stream = new DeviceStream(this, this.#hip, ++this.#lastId, this.#hip.createStream());
    this.#streams.set(stream.id, stream);
    try {
      // What was uploaded for all work is there, and memory that was freed so far may be had: no stamps tell of these.
      this.wait(stream.id, OWN);
    } catch (error) {
      this.close(stream);
      throw error;
    }
    this.#enter(this.#current);
    return stream;
  }

  /** @internal `stream.run`. */
  runOn<T>(stream: DeviceStream, fn: () => T): T {
    this.#owner.refuseInCapture('work on a stream');
    const outer = this.#current;
    this.#enter(stream);
    try {
      return fn();
    } finally {
      this.#enter(outer);
    }
  }

  /** @internal `stream.dispose`. */
  close(stream: DeviceStream): void {
    this.#owner.refuseInCapture('disposing a stream');
    try {
      // Waits for the stream.
      stream.hip.dispose();
    } catch (error) {
      // It is gone all the same; what its work failed with is for those who read the results.
      if (!(error instanceof HipError)) throw error;
    }
    this.#streams.delete(stream.id);
    this.#marks.get(stream.id)?.event.dispose();
    this.#marks.delete(stream.id);
    this.#waited.delete(stream.id);
    this.#passed.set(stream.id, Number.POSITIVE_INFINITY);
    this.#owner.closed(stream.id);
  }

  /** What all streams may rely on was enqueued on the current one: the others wait for it. */
  share(): void {
    if (!this.isShared) return;
    for (const { id } of this.#streams.values()) if (id !== this.current) this.wait(id, this.current);
  }

  /** What the streams are given next runs behind `event`. */
  waitAll(event: HipEvent): void {
    for (const { hip } of this.#streams.values()) hip.waitEvent(event);
  }

  nextStamp(): number {
    return ++this.#stamp;
  }

  get all(): Iterable<number> {
    return this.#streams.keys();
  }

  hasPassed(stream: number, stamp: number, forStream: number): boolean {
    if (stream === forStream) return true;
    if ((this.#waited.get(forStream)?.get(stream) ?? -1) >= stamp) return true;
    const known = this.#passed.get(stream) ?? -1;
    return known >= stamp || this.#poll(stream, stamp) >= stamp;
  }

  wait(waiter: number, stream: number): void {
    const [waits, passes] = [this.#streams.get(waiter), this.#streams.get(stream)];
    // Work of a stream that was disposed is done.
    if (waiter === stream || !waits || !passes) return;
    const event = this.#hip.createEvent();
    try {
      event.record(passes.hip);
      waits.hip.waitEvent(event);
    } finally {
      event.dispose();
    }
    this.noteWait(waiter, stream, this.nextStamp());
  }

  /** `waiter` waits for what `stream` was given before the stamp. */
  noteWait(waiter: number, stream: number, stamp: number): void {
    let waited = this.#waited.get(waiter);
    if (!waited) {
      waited = new Map();
      this.#waited.set(waiter, waited);
    }
    waited.set(stream, Math.max(stamp, waited.get(stream) ?? 0));
  }

  /** Looks how far a stream is, and has it marked for the next look. Never waits. */
  #poll(stream: number, stamp: number): number {
    let mark = this.#marks.get(stream);
    if (mark?.pending && mark.event.query()) {
      mark.pending = false;
      this.#passed.set(stream, mark.stamp);
    }
    const passed = this.#passed.get(stream) ?? -1;
    const on = this.#streams.get(stream);
    if (passed >= stamp || mark?.pending || !on) return passed;
    if (!mark) {
      mark = { event: this.#hip.createEvent(), stamp: 0, pending: false };
      this.#marks.set(stream, mark);
    }
    mark.event.record(on.hip);
    mark.stamp = this.nextStamp();
    mark.pending = true;
    return passed;
  }

  #enter(stream: DeviceStream): void {
    this.#current = stream;
    this.#hip.currentStream = stream.hip;
    this.#owner.entered(stream.id);
  }
}

/** A stream of a device: core's `BackendStream`. */
class DeviceStream implements BackendStream {
  /** Never given to another stream. */
  readonly id: number;
  readonly hip: HipStream;
  readonly #streams: DeviceStreams;
  readonly #device: HipDevice;

  /** @internal Use `streams.create()`. */
  constructor(streams: DeviceStreams, device: HipDevice, id: number, hip: HipStream) {
    this.#streams = streams;
    this.#device = device;
    this.id = id;
    this.hip = hip;
  }

  run<T>(fn: () => T): T {
    this.#check('run');
    return this.#streams.runOn(this, fn);
  }

  record(): StreamEvent {
    this.#check('record');
    const event = this.#device.createEvent();
    try {
      event.record(this.hip);
    } catch (error) {
      event.dispose();
      throw error;
    }
    return new StreamEvent(event, this.id, this.#streams.nextStamp());
  }

  wait(event: StreamEvent): void {
    this.#check('wait');
    this.hip.waitEvent(event.hip);
    this.#streams.noteWait(this.id, event.stream, event.stamp);
  }

  synchronize(): Promise<void> {
    this.#check('synchronize');
    return this.hip.synchronize();
  }

  dispose(): void {
    if (this.id !== OWN && !this.hip.isDisposed) this.#streams.close(this);
  }

  [Symbol.dispose](): void {
    this.dispose();
  }

  #check(op: string): void {
    if (this.hip.isDisposed)
      throw new DisposedError('DISPOSED', `${op}: the stream was disposed; create another one on the device.`);
  }
}

/** A place in a stream: core's `BackendEvent`. */
class StreamEvent implements BackendEvent {
  readonly hip: HipEvent;
  readonly stream: number;
  readonly stamp: number;

  constructor(hip: HipEvent, stream: number, stamp: number) {
    this.hip = hip;
    this.stream = stream;
    this.stamp = stamp;
  }

  get isDone(): boolean {
    return this.hip.query();
  }

  synchronize(): Promise<void> {
    return this.hip.synchronize();
  }

  dispose(): void {
    this.hip.dispose();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}
