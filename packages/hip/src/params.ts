/** Kernel parameter types and where each argument lies in the packed block: its natural alignment, in order. */
export type ParamType =
  | 'ptr'
  | 'u8'
  | 'u32'
  | 'i16'
  | 'i32'
  | 'i64'
  | 'u64'
  | 'f16'
  | 'bf16'
  | 'f32'
  | 'f64'
  | 'f8e4m3'
  | 'bool';

/** Every type with its size in bytes; its place in this list is its kind, the number that function.ts switches on. */
const TYPES: readonly (readonly [ParamType, number])[] = [
  ['ptr', 8],
  ['u64', 8],
  ['i64', 8],
  ['u32', 4],
  ['i32', 4],
  ['f32', 4],
  ['f64', 8],
  ['i16', 2],
  ['u8', 1],
  ['bool', 1],
  ['f16', 2],
  ['bf16', 2],
  ['f8e4m3', 1],
];

export interface ParamPlan {
  readonly types: readonly ParamType[];
  readonly kinds: Uint8Array;
  /** Byte offset of each argument in the block. */
  readonly offsets: Int32Array;
  /** Bytes of the block. */
  readonly bytes: number;
}

export function isParamType(type: string): type is ParamType {
  return TYPES.some(([name]) => name === type);
}

/** Lays the arguments out. Every type must be one that {@link isParamType} knows. */
export function planParams(types: readonly ParamType[]): ParamPlan {
  const kinds = Uint8Array.from(types, (type) => TYPES.findIndex(([name]) => name === type));
  const offsets = new Int32Array(types.length);
  let end = 0;
  kinds.forEach((kind, i) => {
    const size = TYPES[kind][1];
    offsets[i] = Math.ceil(end / size) * size;
    end = offsets[i] + size;
  });
  return { types: [...types], kinds, offsets, bytes: end };
}
