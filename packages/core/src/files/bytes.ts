/** Text and checksums of bytes, as old formats have them. */
import { ifNode } from '../platform';

/** A character a byte. */
export function fromLatin1(bytes: Uint8Array): string {
  let text = '';
  // In parts: a call takes a limited number of arguments.
  for (let at = 0; at < bytes.length; at += 8192) text += String.fromCharCode(...bytes.subarray(at, at + 8192));
  return text;
}

/** A byte a character: the low one, where it has two. */
export function toLatin1(text: string): Uint8Array {
  return Uint8Array.from({ length: text.length }, (_, i) => text.charCodeAt(i));
}

/** The checksum of zip archives; `value` is that of the bytes before. */
export function crc32(bytes: Uint8Array, value = 0): number {
  const zlib = ifNode('zlib');
  return zlib ? zlib.crc32(bytes, value) : crc32Plain(bytes, value);
}

let table: Uint32Array | undefined;

/** @internal As {@link crc32}, where there is no zlib. */
export function crc32Plain(bytes: Uint8Array, value = 0): number {
  table ??= Uint32Array.from({ length: 256 }, (_, byte) => {
    let crc = byte;
    for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? 0xedb88320 ^ (crc >>> 1) : crc >>> 1;
    return crc;
  });
  let crc = ~value;
  for (const byte of bytes) crc = table[(crc ^ byte) & 255] ^ (crc >>> 8);
  return ~crc >>> 0;
}
