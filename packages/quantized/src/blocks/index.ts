export * from './format';
export { blockFormat, byteLengthOf, formatById, isQuantType } from './registry';
