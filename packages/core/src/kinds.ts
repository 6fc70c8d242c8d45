/** What arguments may be, by name: for the packages on top of this one, which check theirs in the same way. */
export * from './check';
export { checkCalls, checked, type Signature } from './checked-calls';
export { show, showField } from './show';
export { DEVICE, NAMED_TENSORS, OPERAND, TENSOR, TENSORS } from './tensor/signatures';
