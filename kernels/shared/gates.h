// Activations of gates, in f32.
#pragma once

namespace gates {

struct Silu {
  static X_DEVICE float apply(float x) { return m::overOneOrMore(x, 1.0f + m::exp(-x)); }
};
struct Sigmoid {
  static X_DEVICE float apply(float x) { return m::overOneOrMore(1.0f, 1.0f + m::exp(-x)); }
};
/** The form with tanh, x (1 + tanh u) / 2 = x / (1 + exp(-2u)), which loses nothing where tanh is near -1. */
struct Gelu {
  static X_DEVICE float apply(float x) {
    return m::overOneOrMore(x, 1.0f + m::exp(-1.5957691216f * x * (1.0f + 0.044715f * x * x)));
  }
};

/** The form with the error function. */
struct GeluErf {
  static X_DEVICE float apply(float x) { return x * m::normcdf(x); }
};

}  // namespace gates
