// Polynomials of normal numbers, as in packages/core/src/philox-series.ts. Written by tools/kernels/fit.ts, which fits them.
#pragma once
#include "shared/exact.h"

namespace series {

// ln 2 in two parts, of which the first times an exponent is exact.
constexpr double LN_2_WIDE_HIGH = 0.6931471805601177;
constexpr double LN_2_WIDE_LOW = -1.7239444525614835e-13;

/** sin(2 pi t) / t of z = t² for |t| up to 1/8: the result within 2^-54.5, relative. */
X_DEVICE double sine(double x) {
  double sum = 3.7806940050258953;
  sum = multiplyThenAdd(sum, x, -15.093795864506626);
  sum = multiplyThenAdd(sum, x, 42.05868486983623);
  sum = multiplyThenAdd(sum, x, -76.70585970301107);
  sum = multiplyThenAdd(sum, x, 81.60524927594311);
  sum = multiplyThenAdd(sum, x, -41.34170224039963);
  sum = multiplyThenAdd(sum, x, 6.283185307179586);
  return sum;
}

/** (cos(2 pi t) - 1) / z of z = t² for |t| up to 1/8: the result within 2^-55.3, relative. */
X_DEVICE double cosine(double x) {
  double sum = -1.6968346960042267;
  sum = multiplyThenAdd(sum, x, 7.9030915870859415);
  sum = multiplyThenAdd(sum, x, -26.42625092720136);
  sum = multiplyThenAdd(sum, x, 60.24464132938425);
  sum = multiplyThenAdd(sum, x, -85.45681720652827);
  sum = multiplyThenAdd(sum, x, 64.93939402266798);
  sum = multiplyThenAdd(sum, x, -19.739208802178716);
  return sum;
}

/** (log((1 + f) / (1 - f)) / f - 2) / z of z = f² for (1 + f) / (1 - f) from sqrt(1/2) to sqrt(2): the result within 2^-59.3, relative. */
X_DEVICE double logarithm(double x) {
  double sum = 0.14795467950008576;
  sum = multiplyThenAdd(sum, x, 0.15314099472751416);
  sum = multiplyThenAdd(sum, x, 0.18183562384111446);
  sum = multiplyThenAdd(sum, x, 0.22222198611099583);
  sum = multiplyThenAdd(sum, x, 0.2857142874201344);
  sum = multiplyThenAdd(sum, x, 0.39999999999416375);
  sum = multiplyThenAdd(sum, x, 0.6666666666666734);
  return sum;
}

}  // namespace series
