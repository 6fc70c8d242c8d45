export * from './format';
export { blockFormat, byteLengthOf, type GgmlTypeInfo, ggmlTypeInfo, isQuantType } from './registry';
