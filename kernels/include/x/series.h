// Polynomials of the host's exp, tanh and erfc. Written by tools/kernels/fit.ts, which fits them.
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

/** exp(z²) erfc(z) / t of t = 1 / (1 + z / 2) for z up to 10.5: the result within 2^-23.9, relative. */
X_DEVICE float complement(float x) {
  float sum = 0.0362204462f;
  sum = sum * x - 0.193721071f;
  sum = sum * x + 0.38840282f;
  sum = sum * x - 0.300039321f;
  sum = sum * x - 0.0120176096f;
  sum = sum * x + 0.0291326363f;
  sum = sum * x + 0.0575283803f;
  sum = sum * x + 0.184856489f;
  sum = sum * x + 0.245308682f;
  sum = sum * x + 0.282239527f;
  sum = sum * x + 0.282089084f;
  return sum;
}

}  // namespace series
