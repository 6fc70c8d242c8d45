// Arithmetic that is the same to the last bit on every device and in the TypeScript reference, which has no fused
// multiply-add: compilers here fuse a product with a sum where both stand in one expression.
#pragma once

/** a * b + c, rounded twice. */
X_DEVICE double multiplyThenAdd(double a, double b, double c) {
#if X_NVRTC
  return __dadd_rn(__dmul_rn(a, b), c);
#else
#pragma clang fp contract(off)
  const double product = a * b;
  return product + c;
#endif
}
X_DEVICE float multiplyThenAdd(float a, float b, float c) {
#if X_NVRTC
  return __fadd_rn(__fmul_rn(a, b), c);
#else
#pragma clang fp contract(off)
  const float product = a * b;
  return product + c;
#endif
}
