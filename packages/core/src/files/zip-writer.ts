/**
 * Writing zip archives in one pass, stored or deflated. Sizes and checksum of an entry are written over its header when they
 * are known, or behind the entry where the sink cannot go back. Entries and archives past the limits of 32 bits become zip64
 * by themselves.
 */
import { node } from '../platform';
import { crc32 } from './bytes';
import type { FileSink } from './write';

export interface ZipWriterOptions {
  /** Deflates entries. Default false: tensors hardly shrink. */
  deflate?: boolean;
  /** Writes zip64 fields also where 32 bits would do, as numpy does for entries. Default false. */
  zip64?: boolean;
}

interface Written {
  name: Uint8Array;
  method: number;
  /** Sizes and checksum follow the entry. */
  described: boolean;
  crc: number;
  packedSize: number;
  size: number;
  offset: number;
}

const MAX32 = 0xffffffff;
/** 1980-01-01, the first day of the format: archives of equal tensors are equal. */
const DATE = 0x21;

export class ZipWriter {
  readonly #sink: FileSink;
  readonly #deflate: boolean;
  readonly #zip64: boolean;
  readonly #entries: Written[] = [];
  #position = 0;

  /** @param sink at its beginning */
  constructor(sink: FileSink, options: ZipWriterOptions = {}) {
    this.#sink = sink;
    this.#deflate = options.deflate ?? false;
    this.#zip64 = options.zip64 ?? false;
  }

  /** Adds an entry with the bytes that `produce` hands to its argument; `size` is their number. */
  async add(
    name: string,
    size: number,
    produce: (write: (bytes: Uint8Array) => Promise<void>) => Promise<void>,
  ): Promise<void> {
    const entry: Written = {
      name: new TextEncoder().encode(name),
      method: this.#deflate ? 8 : 0,
      described: this.#sink.patch === undefined,
      crc: 0,
      packedSize: 0,
      size: 0,
      offset: this.#position,
    };
    // Deflate may add a few bytes to what it cannot shrink.
    const large = this.#zip64 || size > MAX32 - (size >> 10) - 1024;
    await this.#put(localHeader(entry, large));
    const emit = async (bytes: Uint8Array) => {
      entry.packedSize += bytes.byteLength;
      await this.#put(bytes);
    };
    const count = (bytes: Uint8Array) => {
      entry.crc = crc32(bytes, entry.crc);
      entry.size += bytes.byteLength;
    };
    if (this.#deflate) await deflated(produce, count, emit);
    else {
      await produce(async (bytes) => {
        count(bytes);
        await emit(bytes);
      });
    }
    if (this.#sink.patch) await this.#sink.patch(localHeader(entry, large), entry.offset);
    else await this.#put(descriptor(entry, large));
    this.#entries.push(entry);
  }

  /** Writes the directory. Nothing can be added afterwards. */
  async finish(): Promise<void> {
    const start = this.#position;
    for (const entry of this.#entries) await this.#put(centralHeader(entry, this.#zip64));
    const size = this.#position - start;
    const count = this.#entries.length;
    const large = this.#zip64 || count >= 0xffff || size >= MAX32 || start >= MAX32;
    if (large) await this.#put(endRecord64(count, size, start, this.#position));
    await this.#put(
      record(22, (view) => {
        view.setUint32(0, 0x06054b50, true);
        view.setUint16(8, large ? 0xffff : count, true);
        view.setUint16(10, large ? 0xffff : count, true);
        view.setUint32(12, large ? MAX32 : size, true);
        view.setUint32(16, large ? MAX32 : start, true);
      }),
    );
  }

  async #put(bytes: Uint8Array): Promise<void> {
    await this.#sink.write(bytes);
    this.#position += bytes.byteLength;
  }
}

/** Feeds what is produced through deflate; what comes out is written in order, one piece at a time. */
async function deflated(
  produce: (write: (bytes: Uint8Array) => Promise<void>) => Promise<void>,
  count: (bytes: Uint8Array) => void,
  emit: (bytes: Uint8Array) => Promise<void>,
): Promise<void> {
  const stream = node('zlib').createDeflateRaw();
  const drained = (async () => {
    for await (const piece of stream) await emit(piece as Uint8Array);
  })();
  // Awaited below; without a handler a failure before that would end the process.
  drained.catch(() => undefined);
  try {
    await produce(async (bytes) => {
      count(bytes);
      // A copy: the stream reads after the caller may have reused its buffer.
      const accepted = stream.write(Uint8Array.from(bytes));
      if (!accepted) await Promise.race([new Promise((resolve) => stream.once('drain', resolve)), drained]);
    });
    stream.end();
    await drained;
  } finally {
    stream.destroy();
  }
}

function record(length: number, fill: (view: DataView) => void): Uint8Array {
  const bytes = new Uint8Array(length);
  fill(new DataView(bytes.buffer));
  return bytes;
}

/** Version, flags (names are UTF-8, sizes are behind the entry), method, time, date, checksum: what both headers have, from `at` on. */
function common(view: DataView, at: number, entry: Written, large: boolean): void {
  view.setUint16(at, large ? 45 : 20, true);
  view.setUint16(at + 2, entry.described ? 0x808 : 0x800, true);
  view.setUint16(at + 4, entry.method, true);
  view.setUint16(at + 8, DATE, true);
  view.setUint32(at + 10, entry.crc, true);
  view.setUint32(at + 14, large ? MAX32 : entry.packedSize, true);
  view.setUint32(at + 18, large ? MAX32 : entry.size, true);
  view.setUint16(at + 22, entry.name.length, true);
}

function localHeader(entry: Written, large: boolean): Uint8Array {
  const { name } = entry;
  const header = record(30 + name.length + (large ? 20 : 0), (view) => {
    view.setUint32(0, 0x04034b50, true);
    common(view, 4, entry, large);
    view.setUint16(28, large ? 20 : 0, true);
    if (large) extra64(view, 30 + name.length, [entry.size, entry.packedSize]);
  });
  header.set(name, 30);
  return header;
}

/** Checksum and sizes behind an entry. */
function descriptor({ crc, packedSize, size }: Written, large: boolean): Uint8Array {
  return record(large ? 24 : 16, (view) => {
    view.setUint32(0, 0x08074b50, true);
    view.setUint32(4, crc, true);
    for (const [i, value] of [packedSize, size].entries()) {
      if (large) view.setBigUint64(8 + i * 8, BigInt(value), true);
      else view.setUint32(8 + i * 4, value, true);
    }
  });
}

function centralHeader(entry: Written, zip64: boolean): Uint8Array {
  const { name } = entry;
  const large = zip64 || [entry.size, entry.packedSize, entry.offset].some((value) => value >= MAX32);
  const header = record(46 + name.length + (large ? 28 : 0), (view) => {
    view.setUint32(0, 0x02014b50, true);
    view.setUint16(4, 45, true);
    common(view, 6, entry, large);
    view.setUint16(30, large ? 28 : 0, true);
    view.setUint32(42, large ? MAX32 : entry.offset, true);
    if (large) extra64(view, 46 + name.length, [entry.size, entry.packedSize, entry.offset]);
  });
  header.set(name, 46);
  return header;
}

function extra64(view: DataView, at: number, values: number[]): void {
  view.setUint16(at, 1, true);
  view.setUint16(at + 2, values.length * 8, true);
  values.forEach((value, i) => {
    view.setBigUint64(at + 4 + i * 8, BigInt(value), true);
  });
}

/** The zip64 end record and its locator. */
function endRecord64(count: number, size: number, start: number, at: number): Uint8Array {
  return record(76, (view) => {
    view.setUint32(0, 0x06064b50, true);
    view.setBigUint64(4, 44n, true);
    view.setUint16(12, 45, true);
    view.setUint16(14, 45, true);
    for (const field of [24, 32]) view.setBigUint64(field, BigInt(count), true);
    view.setBigUint64(40, BigInt(size), true);
    view.setBigUint64(48, BigInt(start), true);
    view.setUint32(56, 0x07064b50, true);
    view.setBigUint64(64, BigInt(at), true);
    view.setUint32(72, 1, true);
  });
}
