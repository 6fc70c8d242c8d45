/** What {@link QTensor}'s functions take: arguments of other kinds are errors that name them. */
import { kinds } from '@x/core';
import { BYTES, DENSE, FLOATS, QUANTIZE_OPTIONS } from './argument-kinds';
import { isQTensor } from './is-qtensor';
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
const DENSE_OPTIONS = kinds.optional(kinds.fields({ dense: DENSE }));
/** Whether the tensor has such a part is for the function to say. */
const RANGE = kinds.fields({ start: kinds.NUMBER, count: kinds.NUMBER });
const PART = kinds.fields({
  dim: kinds.NUMBER,
  ranges: kinds.kind(
    (value) => Array.isArray(value) && value.every(RANGE.test),
    'give an array of ranges, as [{ start: 0, count: 2 }]',
  ),
});
const ROW_PART = kinds.fields({ index: kinds.NUMBER, of: kinds.NUMBER, interleaved: kinds.BOOLEAN });
const loadOptions = (part: kinds.Kind) =>
  kinds.optional(kinds.fields({ dense: DENSE, signal: kinds.optional(kinds.SIGNAL), part: kinds.optional(part) }));
const LOAD_MXFP4 = {
  file: PART_READER,
  name: kinds.STRING,
  device: kinds.DEVICE,
  options: loadOptions(ROW_PART),
} as const;
const QUANTIZE = { tensor: kinds.TENSOR, type: kinds.STRING } as const;
const QUANTIZE_FIELDS = { ...QUANTIZE_OPTIONS, dense: DENSE, device: kinds.optional(kinds.DEVICE) } as const;
const QUANTIZE_WITH = { ...QUANTIZE, options: kinds.optional(kinds.fields(QUANTIZE_FIELDS)) } as const;
const QTENSORS = kinds.kind((value) => Array.isArray(value) && value.every(isQTensor), 'give an array of QTensors');
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
      fromGguf: { file: FILE, name: kinds.STRING, device: kinds.DEVICE, options: DENSE_OPTIONS },
      load: { file: READER, name: kinds.STRING, device: kinds.DEVICE, options: loadOptions(PART) },
      loadMxfp4: LOAD_MXFP4,
      loadMxfp4Sync: LOAD_MXFP4,
      fromTensor: { tensor: kinds.TENSOR },
      stack: { parts: QTENSORS },
      fromBytes: {
        type: kinds.STRING,
        shape: kinds.COUNTS,
        bytes: BYTES,
        device: kinds.DEVICE,
        options: DENSE_OPTIONS,
      },
      quantize: QUANTIZE_WITH,
      quantizeSync: QUANTIZE_WITH,
      quantizeOnto: { ...QUANTIZE, device: kinds.DEVICE },
      quantizeImatrix: { tensor: kinds.TENSOR, importance: FLOATS, type: kinds.STRING },
      quantizeImatrixOnto: {
        tensor: kinds.TENSOR,
        importance: FLOATS,
        type: kinds.STRING,
        device: kinds.DEVICE,
      },
    },
    'QTensor.',
  );
  kinds.checkCalls(
    type.prototype,
    {
      reshape: { shape: kinds.COUNTS },
      part: { part: PART },
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
