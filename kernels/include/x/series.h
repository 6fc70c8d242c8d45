// Polynomials of the host's exp and tanh. Written by tools/kernels/fit.ts, which fits them.
#pragma once

namespace series {

// ln 2, and in two parts of which the first times a whole number up to 2^9 is exact.
constexpr float LN_2 = 0.693147182f;
constexpr float LN_2_HIGH = 0.693145752f;
constexpr float LN_2_LOW = 0.00000142860677f;
constexpr float LOG2_E = 1.44269502f;

/** (exp(r) - 1 - r) / r² for |r| < 0.347: the result within 2^-27.8, relative. */
X_DEVICE float exponential(float x) {
  float sum = 0.00138185068f;
  sum = sum * x + 0.00836875383f;
  sum = sum * x + 0.0416683406f;
  sum = sum * x + 0.166665196f;
  sum = sum * x + 0.49999994f;
  return sum;
}

/** (exp(r) - 1 - r) / r² for |r| < 0.347, for results of 16 bits: the result within 2^-17.5, relative. */
X_DEVICE float exponentialBrief(float x) {
  float sum = 0.0412891619f;
  sum = sum * x + 0.167536214f;
  sum = sum * x + 0.500050545f;
  return sum;
}

/** (tanh(x) / x - 1) / z of z = x² for |x| < 0.63: the result within 2^-28.5, relative. */
X_DEVICE float tangent(float x) {
  float sum = 0.00212622923f;
  sum = sum * x - 0.00815955736f;
  sum = sum * x + 0.0216936823f;
  sum = sum * x - 0.053945519f;
  sum = sum * x + 0.133331969f;
  sum = sum * x - 0.333333313f;
  return sum;
}

}  // namespace series
