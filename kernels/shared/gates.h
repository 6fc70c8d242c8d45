// Activations of gates, in f32.
#pragma once

namespace gates {

struct Silu {
  static X_DEVICE float apply(float x) { return m::overOneOrMore(x, 1.0f + m::exp(-x)); }
};
/** The form with tanh. */
struct Gelu {
  static X_DEVICE float apply(float x) {
    return 0.5f * x * (1.0f + m::tanh(0.7978845608028654f * x * (1.0f + 0.044715f * x * x)));
  }
};

/** The form with the error function. */
struct GeluErf {
  static X_DEVICE float apply(float x) { return x * m::normcdf(x); }
};

}  // namespace gates
