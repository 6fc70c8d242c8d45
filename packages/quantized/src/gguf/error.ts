/**
 * Errors about files. All are core's `FileFormatError`, so one `catch` serves every format; the code says which rule of
 * GGUF was broken.
 */
import { type FileErrorCode, FileFormatError } from '@x/core';

/** Codes of errors that a GGUF file can raise. */
export type GgufErrorCode =
  | 'FILE_NOT_FOUND'
  | 'FILE_UNREADABLE'
  | 'FILE_INVALID'
  | 'GGUF_BAD_MAGIC'
  | 'GGUF_UNSUPPORTED_VERSION'
  | 'GGUF_TRUNCATED'
  | 'GGUF_BAD_COUNT'
  | 'GGUF_BAD_VALUE_TYPE'
  | 'GGUF_BAD_BOOL'
  | 'GGUF_BAD_ALIGNMENT'
  | 'GGUF_BAD_SHAPE'
  | 'GGUF_DUPLICATE_KEY'
  | 'GGUF_DUPLICATE_TENSOR'
  | 'GGUF_MISALIGNED_TENSOR'
  | 'GGUF_TENSOR_OUT_OF_BOUNDS'
  | 'GGUF_TENSOR_OVERLAP'
  | 'GGUF_LIMIT'
  | 'GGUF_MISSING_KEY'
  | 'GGUF_WRONG_TYPE'
  | 'GGUF_MISSING_TENSOR'
  | 'GGUF_SHAPE_MISMATCH'
  | 'GGUF_UNKNOWN_TYPE'
  | 'GGUF_INVALID_CONTENT';

export function ggufError(
  code: GgufErrorCode & FileErrorCode,
  path: string,
  message: string,
  cause?: unknown,
): FileFormatError {
  return new FileFormatError(code, `${path}: ${message}`, { path, cause });
}
