// What an ELF file (64-bit, little-endian) asks of its libraries and offers to others: read from its dynamic section's
// tables, as described in the System V ABI and the LSB's chapter on symbol versions.
import { readFileSync } from 'node:fs';

const SECTION = { strings: 3, dynamic: 6, dynsym: 11, versions: 0x6fffffff, needs: 0x6ffffffe, defines: 0x6ffffffd };
const MACHINES = { 62: 'x64', 183: 'arm64' };
const TYPES = ['none', 'object', 'function', 'section', 'file', 'common', 'tls'];

/**
 * @param {string} path
 * @returns {{ machine: string, needed: string[], stripped: boolean, symbols: { name: string, version: string | undefined,
 *   library: string | undefined, defined: boolean, isDefault: boolean, type: string, size: number }[] }}
 */
export function readElf(path) {
  const bytes = readFileSync(path);
  if (bytes.length < 64 || bytes.readUInt32BE(0) !== 0x7f454c46 || bytes[4] !== 2 || bytes[5] !== 1)
    throw new Error(`${path} is no 64-bit little-endian ELF file`);
  try {
    return read(bytes);
  } catch (error) {
    throw new Error(`${path} is a damaged ELF file: ${error.message}`);
  }
}

function read(bytes) {
  const sections = sectionsOf(bytes);
  const find = (type) => sections.find((section) => section.type === type);
  const textOf = (section) => (offset) => {
    const start = section.offset + offset;
    return bytes.toString('latin1', start, bytes.indexOf(0, start));
  };
  const machine = MACHINES[bytes.readUInt16LE(18)] ?? `machine ${bytes.readUInt16LE(18)}`;
  const stripped = !sections.some(({ type }) => type === 2);
  const dynsym = find(SECTION.dynsym);
  if (!dynsym) return { machine, needed: [], stripped, symbols: [] };
  const text = textOf(sections[dynsym.link]);
  const named = {
    ...definedVersions(bytes, find(SECTION.defines), text),
    ...neededVersions(bytes, find(SECTION.needs), text),
  };
  const versions = find(SECTION.versions);
  const symbols = [];
  for (let i = 1; i < dynsym.size / 24; i++) {
    const at = dynsym.offset + i * 24;
    const index = versions ? bytes.readUInt16LE(versions.offset + i * 2) : 1;
    symbols.push({
      name: text(bytes.readUInt32LE(at)),
      version: named[index & 0x7fff]?.version,
      library: named[index & 0x7fff]?.library,
      // Not the names of versions, which are symbols without a place.
      defined: ![0, 0xfff1].includes(bytes.readUInt16LE(at + 6)),
      isDefault: (index & 0x8000) === 0,
      type: TYPES[bytes[at + 4] & 15] ?? 'other',
      size: Number(bytes.readBigUInt64LE(at + 16)),
    });
  }
  return { machine, needed: neededLibraries(bytes, find(SECTION.dynamic), text), stripped, symbols };
}

function sectionsOf(bytes) {
  const table = Number(bytes.readBigUInt64LE(40));
  return Array.from({ length: bytes.readUInt16LE(60) }, (_, i) => {
    const at = table + i * 64;
    return {
      type: bytes.readUInt32LE(at + 4),
      offset: Number(bytes.readBigUInt64LE(at + 24)),
      size: Number(bytes.readBigUInt64LE(at + 32)),
      link: bytes.readUInt32LE(at + 40),
      info: bytes.readUInt32LE(at + 44),
    };
  });
}

function neededLibraries(bytes, dynamic, text) {
  const needed = [];
  for (let at = dynamic.offset; at < dynamic.offset + dynamic.size; at += 16)
    if (bytes.readBigInt64LE(at) === 1n) needed.push(text(Number(bytes.readBigUInt64LE(at + 8))));
  return needed;
}

/** Verneed: for each library the versions asked for, under the index that symbols name them by. */
function neededVersions(bytes, section, text) {
  const found = {};
  let at = section?.offset;
  for (let i = 0; i < (section?.info ?? 0); i++) {
    const library = text(bytes.readUInt32LE(at + 4));
    let entry = at + bytes.readUInt32LE(at + 8);
    for (let k = bytes.readUInt16LE(at + 2); k > 0; k--) {
      found[bytes.readUInt16LE(entry + 6)] = { version: text(bytes.readUInt32LE(entry + 8)), library };
      entry += bytes.readUInt32LE(entry + 12);
    }
    at += bytes.readUInt32LE(at + 12);
  }
  return found;
}

/** Verdef: the versions that a library defines. */
function definedVersions(bytes, section, text) {
  const found = {};
  let at = section?.offset;
  for (let i = 0; i < (section?.info ?? 0); i++) {
    const names = at + bytes.readUInt32LE(at + 12);
    found[bytes.readUInt16LE(at + 4)] = { version: text(bytes.readUInt32LE(names)) };
    at += bytes.readUInt32LE(at + 16);
  }
  return found;
}
