// OPTIM: steps of optimisers, and what they need of gradients: a launch a variable. Ours: candle writes them of operations.
//   adam_{t}          bf16, f16, f32 and f64: a step of Adam or AdamW, in place: optim/adam.h. Of bf16 and f16 the sums are f32: they
//                     are larger and smaller than 16 bits hold
//   squares_{t}       f32 and f64: sums of squares, parts of a variable side by side: optim/squares.h
//   scale_by_{t}      the same: elements times a number that lies on the device
#include "x.h"
#include "shared/split.h"
#include "shared/tally.h"
#include "shared/rough.h"
#include "shared/turn.h"
#include "reduce/range-host.h"
#include "reduce/range.h"
#include "optim/adam.h"
#include "optim/squares.h"

#define ADAM(T)                                                                                                          \
  KERNEL_EACH(adam_##T, (u64 count, const T* X_RESTRICT grad, T* X_RESTRICT value, acc_t<T>* X_RESTRICT first,           \
                         acc_t<T>* X_RESTRICT second, double beta1, double beta2, double root, double eps, double rate,  \
                         double keep, double decay)) {                                                                   \
    typedef acc_t<T> A;                                                                                                  \
    optim::adam(count, grad, value, first, second,                                                                       \
                optim::Adam<A>{(A)beta1, (A)beta2, (A)root, (A)eps, (A)rate, (A)keep, (A)decay});                        \
  }
ADAM(bf16)
ADAM(f16)
ADAM(f32)
ADAM(f64)

#define NORMS(T)                                                                                                         \
  KERNEL_BOUNDS(squares_##T, 256, (u64 count, u64 parts, const T* grad, T* sums)) {                                      \
    optim::squares(count, parts, grad, sums);                                                                            \
  }                                                                                                                      \
  KERNEL_EACH(scale_by_##T, (u64 count, const T* factor, const T* X_RESTRICT from, T* X_RESTRICT to)) {                  \
    const T by = *factor;                                                                                                \
    X_FOR_EACH(i, count) to[i] = from[i] * by;                                                                           \
  }
NORMS(f32)
NORMS(f64)
