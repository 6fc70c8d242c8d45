/**
 * Reading zip archives, which npz and pth files are: entries stored or deflated, zip64 sizes, no encryption, one disk. Only
 * the central directory at the end is believed, after checks that keep a hostile archive from costing more than its size:
 * entries may not overlap each other or the directory, a deflated entry may not claim more than deflate can give.
 */
import { FileFormatError, UnsupportedError } from '../errors';
import { crc32 } from './bytes';
import { type ByteSource, partOf, readBlockSync } from './source';
import { InflatedEntry } from './zip-inflate';

/** Longest directory that is read: about a million entries. */
const MAX_DIRECTORY_BYTES = 128 * 1024 * 1024;
/** Deflate makes at most 1032 bytes of one. */
const MAX_RATIO = 1032;
const END = 0x06054b50;
const END64 = 0x06064b50;
const LOCATOR64 = 0x07064b50;
const CENTRAL = 0x02014b50;
const LOCAL = 0x04034b50;

export interface ZipEntry {
  readonly name: string;
  /** Deflated, or stored as it is. */
  readonly deflated: boolean;
  readonly crc32: number;
  /** Bytes in the archive. */
  readonly packedSize: number;
  readonly size: number;
  /** Where its local header is. */
  readonly headerOffset: number;
}

interface Directory {
  offset: number;
  size: number;
  count: number;
}

export class ZipArchive {
  readonly source: ByteSource;
  /** By name, in the order of the directory. */
  readonly entries: ReadonlyMap<string, ZipEntry>;

  /** @throws FileFormatError `FILE_TRUNCATED`, `FILE_INVALID`; UnsupportedError for encryption and other compressions */
  constructor(source: ByteSource) {
    this.source = source;
    const directory = findDirectory(source);
    this.entries = readDirectory(source, directory);
    checkOverlap(source, [...this.entries.values()], directory.offset);
  }

  /** The contents of an entry, of which nothing is read yet. Those of a deflated one are best read in order, and closed. */
  open(entry: ZipEntry): ByteSource {
    const start = this.#dataStart(entry);
    const label = `${this.source.path}: ${entry.name}`;
    return entry.deflated
      ? new InflatedEntry(partOf(this.source, start, entry.packedSize, label), entry.size, (error) =>
          this.#damaged(entry, error),
        )
      : partOf(this.source, start, entry.size, label);
  }

  /** A checksum to feed an entry's bytes to; `finish` throws when they were others than those that were packed. */
  checksum(entry: ZipEntry): { update(bytes: Uint8Array): void; finish(): void } {
    let value = 0;
    return {
      update: (bytes) => {
        value = crc32(bytes, value);
      },
      finish: () => {
        if (value !== entry.crc32) throw this.#damaged(entry);
      },
    };
  }

  #dataStart(entry: ZipEntry): number {
    const view = viewOf(readBlockSync(this.source, entry.headerOffset, 30));
    if (view.getUint32(0, true) !== LOCAL) throw this.#damaged(entry);
    const start = entry.headerOffset + 30 + view.getUint16(26, true) + view.getUint16(28, true);
    if (start + entry.packedSize > this.source.size) throw truncated(this.source, start);
    return start;
  }

  #damaged(entry: ZipEntry, cause?: Error): FileFormatError {
    const why = cause ? ` (${cause.message})` : '';
    return invalid(this.source, entry.headerOffset, `entry "${entry.name}" is damaged${why}; get the file again`);
  }
}

/** The end record is in the last 64 KiB, before a comment of any contents, so the last one that fits is it. */
function findDirectory(source: ByteSource): Directory {
  const length = Math.min(source.size, 22 + 0xffff);
  const tailStart = source.size - length;
  const tail = viewOf(readBlockSync(source, tailStart, length));
  let at = length - 22;
  while (at >= 0 && !(tail.getUint32(at, true) === END && at + 22 + tail.getUint16(at + 20, true) === length)) at--;
  if (at < 0)
    throw invalid(
      source,
      source.size,
      'there is no zip directory at its end; this is no zip file, or it was cut short',
    );
  const end = tailStart + at;
  let found: Directory = {
    count: tail.getUint16(at + 10, true),
    size: tail.getUint32(at + 12, true),
    offset: tail.getUint32(at + 16, true),
  };
  let limitAt = end;
  const disks = [tail.getUint16(at + 4, true), tail.getUint16(at + 6, true)];
  if (found.count === 0xffff || found.size === 0xffffffff || found.offset === 0xffffffff) {
    if (end < 20) throw invalid(source, end, 'the zip64 directory is missing; get the file again');
    const locator = viewOf(readBlockSync(source, end - 20, 20));
    if (locator.getUint32(0, true) === LOCATOR64) {
      limitAt = wide(source, locator, 8);
      const record = viewOf(readBlockSync(source, Math.min(limitAt, source.size), 56));
      if (record.getUint32(0, true) !== END64)
        throw invalid(source, limitAt, 'its zip64 directory is damaged; get the file again');
      found = { count: wide(source, record, 32), size: wide(source, record, 40), offset: wide(source, record, 48) };
    }
  }
  if (disks.some((disk) => disk !== 0 && disk !== 0xffff))
    throw new UnsupportedError(
      'UNSUPPORTED',
      `${source.path}: the archive is split over several files; join them first.`,
    );
  if (found.size > MAX_DIRECTORY_BYTES || found.count * 46 > found.size || found.offset + found.size > limitAt) {
    throw invalid(
      source,
      end,
      `its directory of ${found.count} entries and ${found.size} bytes at ${found.offset} does not fit the file; get the file again`,
    );
  }
  return found;
}

function readDirectory(source: ByteSource, { offset, size, count }: Directory): Map<string, ZipEntry> {
  const bytes = readBlockSync(source, offset, size);
  const view = viewOf(bytes);
  const entries = new Map<string, ZipEntry>();
  let at = 0;
  for (let i = 0; i < count; i++) {
    if (at + 46 > size || view.getUint32(at, true) !== CENTRAL)
      throw invalid(source, offset + at, `entry ${i} of its directory is damaged; get the file again`);
    const nameEnd = at + 46 + view.getUint16(at + 28, true);
    const extraEnd = nameEnd + view.getUint16(at + 30, true);
    const next = extraEnd + view.getUint16(at + 32, true);
    if (next > size) throw invalid(source, offset + at, `entry ${i} of its directory is cut short; get the file again`);
    const name = new TextDecoder().decode(bytes.subarray(at + 46, nameEnd));
    const entry = readEntry(source, name, view, at, nameEnd, extraEnd);
    if (entries.has(name)) throw invalid(source, offset + at, `it has two entries named "${name}"; write it again`);
    entries.set(name, entry);
    at = next;
  }
  return entries;
}

function readEntry(
  source: ByteSource,
  name: string,
  view: DataView,
  at: number,
  extra: number,
  extraEnd: number,
): ZipEntry {
  const method = view.getUint16(at + 10, true);
  if ((view.getUint16(at + 8, true) & 1) !== 0 || (method !== 0 && method !== 8)) {
    const what = method === 0 || method === 8 ? 'encrypted' : `compressed by method ${method}`;
    throw new UnsupportedError('UNSUPPORTED', `${source.path}: entry "${name}" is ${what}; store or deflate it.`);
  }
  const sizes = [24, 20, 42].map((field) => view.getUint32(at + field, true));
  // A size of all ones stands in the zip64 field, in this order and only those that do not fit.
  for (let field = extra; field + 4 <= extraEnd; ) {
    const end = field + 4 + view.getUint16(field + 2, true);
    if (view.getUint16(field, true) === 1) {
      let value = field + 4;
      sizes.forEach((given, i) => {
        if (given !== 0xffffffff || value + 8 > Math.min(end, extraEnd)) return;
        sizes[i] = wide(source, view, value);
        value += 8;
      });
    }
    field = end;
  }
  const [size, packedSize, headerOffset] = sizes;
  const deflated = method === 8;
  if (deflated ? size > packedSize * MAX_RATIO + 64 : size !== packedSize) {
    throw invalid(source, headerOffset, `entry "${name}" claims ${size} bytes in ${packedSize}; get the file again`);
  }
  return { name, deflated, crc32: view.getUint32(at + 16, true), packedSize, size, headerOffset };
}

function checkOverlap(source: ByteSource, entries: ZipEntry[], directory: number): void {
  let free = 0;
  for (const { name, headerOffset, packedSize } of entries.sort((a, b) => a.headerOffset - b.headerOffset)) {
    if (headerOffset < free)
      throw invalid(source, headerOffset, `entry "${name}" overlaps the one before it; get the file again`);
    free = headerOffset + 30 + packedSize;
    if (free > directory)
      throw invalid(
        source,
        headerOffset,
        `entry "${name}" of ${packedSize} bytes goes past the directory; get the file again`,
      );
  }
}

function viewOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/** A 64-bit size; a file has none above 2^53. */
function wide(source: ByteSource, view: DataView, at: number): number {
  const value = view.getBigUint64(at, true);
  if (value <= BigInt(Number.MAX_SAFE_INTEGER)) return Number(value);
  throw invalid(source, 0, `a size in its directory is ${value}; get the file again`);
}

function truncated(source: ByteSource, offset: number): FileFormatError {
  const message = `${source.path}: an entry goes past the end of the file at byte ${source.size}; get the file again.`;
  return new FileFormatError('FILE_TRUNCATED', message, { path: source.path, offset });
}

function invalid(source: ByteSource, offset: number, what: string): FileFormatError {
  return new FileFormatError('FILE_INVALID', `${source.path}: ${what}.`, { path: source.path, offset });
}
