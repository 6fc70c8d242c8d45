// Adam (Kingma and Ba 2015) and AdamW (Loshchilov and Hutter 2019), an element at a time. What is remembered are sums that fade: of
// gradients, first = beta1 first + g, and of their squares; the factors that make averages of them are in `root`, `eps` and `rate`.
#pragma once

namespace optim {

template <class A>
struct Adam {
  A beta1, beta2;
  A root, eps;  // of the squares' root, and what is added to it
  A rate;       // of the step
  A keep;       // times the value before the step: AdamW's decay
  A decay;      // times the value, added to the gradient: Adam's

  X_DEVICE void operator()(A g, A& value, A& first, A& second) const {
    g += decay * value;
    first = beta1 * first + g;
    second = beta2 * second + g * g;
    value = keep * value - rate * (first / (m::sqrt(second) * root + eps));
  }
};

template <class T, class A>
X_DEVICE void adam(u64 count, const T* X_RESTRICT grad, T* X_RESTRICT value, A* X_RESTRICT first, A* X_RESTRICT second,
                   const Adam<A> step) {
  X_FOR_EACH(i, count) {
    A v = to_acc(value[i]), f = first[i], s = second[i];
    step(to_acc(grad[i]), v, f, s);
    value[i] = from_acc<T>(v), first[i] = f, second[i] = s;
  }
}

}  // namespace optim
