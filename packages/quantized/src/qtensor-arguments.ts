/** What {@link QTensor}'s functions take: arguments of other kinds are errors that name them. */
import { kinds } from '@x/core';
import type { QTensor } from './qtensor';

const READER = kinds.kind(
  (value) => typeof (value as { load?: unknown } | null | undefined)?.load === 'function',
  'give an open file, as SafetensorsFile.open(path)',
);
const PART_READER = kinds.kind(
  (value) => typeof (value as { readPartSync?: unknown } | null | undefined)?.readPartSync === 'function',
  'give an open file, as SafetensorsFile.open(path)',
);
const FILE = kinds.kind(
  (value) => typeof (value as { tensorChunks?: unknown } | null | undefined)?.tensorChunks === 'function',
  'give an open file, as GgufFile.open(path)',
);
const OPTIONS = kinds.optional(kinds.OBJECT);
const QUANTIZE = { tensor: kinds.TENSOR, type: kinds.STRING } as const;
const IMPORTANCE = kinds.kind((value) => value instanceof Float32Array, 'give a Float32Array');
const IDS = kinds.kind(
  (value) => Array.isArray(value) || (ArrayBuffer.isView(value) && !(value instanceof DataView)),
  'give an array or a typed array of experts',
);
const MOE = { x: kinds.TENSOR, ids: kinds.TENSOR, options: OPTIONS } as const;

/** Lets the functions of the class look at their arguments. */
export function checkArguments(type: typeof QTensor): void {
  kinds.checkCalls(
    type,
    {
      fromGguf: { file: FILE, name: kinds.STRING, device: kinds.DEVICE, options: OPTIONS },
      load: { file: READER, name: kinds.STRING, device: kinds.DEVICE, options: OPTIONS },
      loadMxfp4: { file: PART_READER, name: kinds.STRING, device: kinds.DEVICE, options: OPTIONS },
      loadMxfp4Sync: { file: PART_READER, name: kinds.STRING, device: kinds.DEVICE, options: OPTIONS },
      quantize: { ...QUANTIZE, options: OPTIONS },
      quantizeSync: { ...QUANTIZE, options: OPTIONS },
      quantizeOnto: { ...QUANTIZE, device: kinds.DEVICE },
      quantizeImatrix: { tensor: kinds.TENSOR, importance: IMPORTANCE, type: kinds.STRING },
      quantizeImatrixOnto: {
        tensor: kinds.TENSOR,
        importance: IMPORTANCE,
        type: kinds.STRING,
        device: kinds.DEVICE,
      },
    },
    'QTensor.',
  );
  kinds.checkCalls(
    type.prototype,
    {
      dequantize: { dtype: kinds.optional(kinds.DTYPE) },
      embedding: { ids: kinds.TENSOR },
      expert: { index: kinds.INDEX },
      indexedMoe: { x: kinds.TENSOR, ids: IDS },
      indexedMoeForward: MOE,
      indexedMoeForwardSync: MOE,
    },
    'QTensor.',
  );
}
