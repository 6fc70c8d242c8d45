/** The parts of a 64-bit little-endian ELF file that code objects are described by: dynamic symbols and notes. */
export interface ElfSymbol {
  name: string;
  /** Address in the loaded image. */
  value: number;
  size: number;
}

export interface ElfNote {
  owner: string;
  type: number;
  data: Uint8Array;
}

export const EM_AMDGPU = 224;

const SHT_NOTE = 7;
const SHT_DYNSYM = 11;
const PT_LOAD = 1;

interface Section {
  type: number;
  offset: number;
  size: number;
  link: number;
}

export function isElf(bytes: Uint8Array): boolean {
  return bytes[0] === 0x7f && bytes[1] === 0x45 && bytes[2] === 0x4c && bytes[3] === 0x46;
}

/** Throws RangeError when a table points outside the file. */
export class ElfFile {
  readonly machine: number;
  readonly #bytes: Uint8Array;
  readonly #view: DataView;
  readonly #sections: Section[];

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    if (bytes[4] !== 2 || bytes[5] !== 1) throw new RangeError('not a 64-bit little-endian ELF file');
    this.machine = this.#view.getUint16(18, true);
    const table = this.#u64(40);
    const entrySize = this.#view.getUint16(58, true);
    const count = this.#view.getUint16(60, true);
    this.#sections = Array.from({ length: count }, (_, i) => {
      const at = table + i * entrySize;
      return {
        type: this.#view.getUint32(at + 4, true),
        offset: this.#u64(at + 24),
        size: this.#u64(at + 32),
        link: this.#view.getUint32(at + 40, true),
      };
    });
  }

  dynamicSymbols(): ElfSymbol[] {
    const symbols: ElfSymbol[] = [];
    for (const section of this.#sections) {
      if (section.type !== SHT_DYNSYM) continue;
      const names = this.#sections[section.link];
      if (names === undefined) throw new RangeError(`symbol table names section ${section.link}, which is missing`);
      for (let at = section.offset; at < section.offset + section.size; at += 24) {
        const name = this.#cString(names.offset + this.#view.getUint32(at, true));
        if (this.#view.getUint16(at + 6, true) !== 0)
          symbols.push({ name, value: this.#u64(at + 8), size: this.#u64(at + 16) });
      }
    }
    return symbols;
  }

  notes(): ElfNote[] {
    const notes: ElfNote[] = [];
    for (const section of this.#sections) {
      if (section.type !== SHT_NOTE) continue;
      for (let at = section.offset; at + 12 <= section.offset + section.size; ) {
        const ownerSize = this.#view.getUint32(at, true);
        const dataSize = this.#view.getUint32(at + 4, true);
        const data = at + 12 + align4(ownerSize);
        notes.push({
          owner: this.#cString(at + 12),
          type: this.#view.getUint32(at + 8, true),
          data: this.#range(data, dataSize),
        });
        at = data + align4(dataSize);
      }
    }
    return notes;
  }

  /** The bytes that a symbol holds. */
  contents(symbol: ElfSymbol): Uint8Array {
    const table = this.#u64(32);
    const entrySize = this.#view.getUint16(54, true);
    const count = this.#view.getUint16(56, true);
    for (let i = 0; i < count; i++) {
      const at = table + i * entrySize;
      const offset = this.#u64(at + 8);
      const address = this.#u64(at + 16);
      const size = this.#u64(at + 32);
      if (this.#view.getUint32(at, true) !== PT_LOAD || symbol.value < address) continue;
      if (symbol.value + symbol.size <= address + size)
        return this.#range(offset + symbol.value - address, symbol.size);
    }
    throw new RangeError(`symbol ${symbol.name} lies in no loaded segment`);
  }

  #u64(at: number): number {
    return Number(this.#view.getBigUint64(at, true));
  }

  #range(start: number, size: number): Uint8Array {
    if (start + size > this.#bytes.length) {
      throw new RangeError(`bytes ${start} to ${start + size} of a file of ${this.#bytes.length}`);
    }
    return this.#bytes.subarray(start, start + size);
  }

  #cString(start: number): string {
    const end = this.#bytes.indexOf(0, start);
    if (end < 0) throw new RangeError(`string at ${start} has no end`);
    return new TextDecoder().decode(this.#bytes.subarray(start, end));
  }
}

function align4(size: number): number {
  return (size + 3) & ~3;
}
