/** The interface between tensors and devices; device.ts is where to begin. */
export {
  BINARY_NAMES,
  BINARY_OPS,
  type BinaryOp,
  type BinaryRow,
  binaryRow,
  CMP_NAMES,
  CMP_OPS,
  type CmpOp,
} from '../elementwise/binary';
export {
  type IntegerReference,
  UNARY_NAMES,
  UNARY_OPS,
  type UnaryOp,
  type UnaryRow,
  unaryRow,
} from '../elementwise/unary';
export * from './attention';
export * from './capabilities';
export * from './collectives';
export * from './compile';
export * from './decode';
export * from './device';
export * from './experts';
export * from './file-reader';
export * from './graph';
export * from './linear';
export * from './operand';
export * from './operations';
export * from './optim';
export * from './pinned-bytes';
export * from './quantized';
export * from './quantized-experts';
export * from './recurrent';
export * from './sampling';
export * from './storage';
export * from './stream';
