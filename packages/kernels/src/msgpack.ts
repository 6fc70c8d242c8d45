/** Reads one MessagePack value: the encoding of AMD's kernel metadata notes. Throws RangeError past the end. */
export type MsgPack = null | boolean | number | string | Uint8Array | MsgPack[] | { [key: string]: MsgPack };

export function decodeMsgPack(bytes: Uint8Array): MsgPack {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let at = 0;

  const advance = (count: number): number => {
    const start = at;
    if (start + count > bytes.length) throw new RangeError(`value ends at ${start + count} of ${bytes.length} bytes`);
    at = start + count;
    return start;
  };
  const unsigned = (size: 1 | 2 | 4 | 8): number => {
    const start = advance(size);
    if (size === 1) return view.getUint8(start);
    if (size === 2) return view.getUint16(start);
    if (size === 4) return view.getUint32(start);
    return Number(view.getBigUint64(start));
  };
  const signed = (size: 1 | 2 | 4 | 8): number => {
    const start = advance(size);
    if (size === 1) return view.getInt8(start);
    if (size === 2) return view.getInt16(start);
    if (size === 4) return view.getInt32(start);
    return Number(view.getBigInt64(start));
  };
  const raw = (length: number): Uint8Array => {
    const start = advance(length);
    return bytes.subarray(start, start + length);
  };
  const text = (length: number): string => new TextDecoder().decode(raw(length));
  const array = (length: number): MsgPack[] => {
    const items: MsgPack[] = [];
    for (let i = 0; i < length; i++) items.push(value());
    return items;
  };
  const map = (length: number): { [key: string]: MsgPack } => {
    const entries: [string, MsgPack][] = [];
    for (let i = 0; i < length; i++) entries.push([String(value()), value()]);
    return Object.fromEntries(entries);
  };

  const value = (): MsgPack => {
    const tag = unsigned(1);
    if (tag < 0x80) return tag;
    if (tag < 0x90) return map(tag & 0x0f);
    if (tag < 0xa0) return array(tag & 0x0f);
    if (tag < 0xc0) return text(tag & 0x1f);
    if (tag >= 0xe0) return tag - 0x100;
    switch (tag) {
      case 0xc0:
        return null;
      case 0xc2:
        return false;
      case 0xc3:
        return true;
      case 0xc4:
        return raw(unsigned(1));
      case 0xc5:
        return raw(unsigned(2));
      case 0xc6:
        return raw(unsigned(4));
      case 0xca:
        return view.getFloat32(advance(4));
      case 0xcb:
        return view.getFloat64(advance(8));
      case 0xcc:
        return unsigned(1);
      case 0xcd:
        return unsigned(2);
      case 0xce:
        return unsigned(4);
      case 0xcf:
        return unsigned(8);
      case 0xd0:
        return signed(1);
      case 0xd1:
        return signed(2);
      case 0xd2:
        return signed(4);
      case 0xd3:
        return signed(8);
      case 0xd9:
        return text(unsigned(1));
      case 0xda:
        return text(unsigned(2));
      case 0xdb:
        return text(unsigned(4));
      case 0xdc:
        return array(unsigned(2));
      case 0xdd:
        return array(unsigned(4));
      case 0xde:
        return map(unsigned(2));
      case 0xdf:
        return map(unsigned(4));
      default:
        throw new RangeError(`tag 0x${tag.toString(16)} is no value`);
    }
  };

  return value();
}
