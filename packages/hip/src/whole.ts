/** Whether a binary is there to its end. The system's loader does not look, and a process that maps one that was cut dies of it. */
import { closeSync, fstatSync, openSync, readSync } from 'node:fs';

const HEADER_BYTES = 64;
const ELF64 = '\x7fELF\x02\x01';

/**
 * @returns the bytes that an ELF file of 64 bits has, and should have: its section headers are its end. Undefined for what is
 * whole, is no such file or cannot be read, of which the loader says what is wrong.
 */
export function cutShort(path: string): { bytes: number; whole: number } | undefined {
  let file: number | undefined;
  try {
    file = openSync(path, 'r');
    const header = Buffer.alloc(HEADER_BYTES);
    if (readSync(file, header) < HEADER_BYTES || header.toString('latin1', 0, ELF64.length) !== ELF64) return undefined;
    // e_shoff, e_shentsize and e_shnum.
    const whole = Number(header.readBigUInt64LE(40)) + header.readUInt16LE(58) * header.readUInt16LE(60);
    const bytes = fstatSync(file).size;
    return bytes < whole ? { bytes, whole } : undefined;
  } catch {
    return undefined;
  } finally {
    if (file !== undefined) closeSync(file);
  }
}
