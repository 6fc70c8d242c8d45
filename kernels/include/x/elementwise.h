// Elementwise work over contiguous or strided operands: what candle's unary, binary, ternary, affine and cast kernels
// share. The output is contiguous; `info` is dims followed by one set of strides for each input, or null when every
// input is contiguous. GPUs move 16 bytes an access where pointers allow, with the remainder in the same kernel; the host
// walks runs of the innermost axis that clang vectorises. Kernels that use these are declared with KERNEL_EACH.
#pragma once

namespace each {

template <class... T>
constexpr u32 largest() {
  u32 size = 1;
  ((size = sizeof(T) > size ? sizeof(T) : size), ...);
  return size;
}

template <class... In>
X_DEVICE bool allContiguous(u64 num_dims, const u64* info) {
  for (u32 k = 0; k < sizeof...(In); ++k)
    if (!isContiguous(num_dims, info, info + (k + 1) * num_dims)) return false;
  return true;
}

template <u32... k>
struct Indices {};
template <u32 n, u32... k>
struct MakeIndices : MakeIndices<n - 1, n - 1, k...> {};
template <u32... k>
struct MakeIndices<0, k...> {
  typedef Indices<k...> type;
};

#if X_HOST

template <u32 limit, class F, class Out, class... In>
X_DEVICE void contiguous(u64 n, F f, Out* out, const In*... in) {
  X_FOR_EACH_SIMD(i, n) out[i] = f(in[i]...);
}

// One run of the innermost axis; Stride is a constant 0 or 1 for an input, or -1 for the one given at run time.
template <i64... Stride>
struct Run {
  template <class F, class... P>
  static X_DEVICE void over(u64 begin, u64 end, F f, const u64* strides, const u64* at, P... p) {
    u32 k = 0;
    ((p = p + at[k++]), ...);
    if constexpr (((Stride >= 0) && ...)) {
      _Pragma("clang loop vectorize(assume_safety)") for (u64 i = begin; i < end; ++i) f(i, p + (i - begin) * Stride...);
    } else {
      for (u64 i = begin; i < end; ++i) {
        f(i, p...);
        k = 0;
        ((p = p + strides[k++]), ...);
      }
    }
  }
};

// Runs where every stride is 1, or 1 but for a single broadcast input, have loops of their own that vectorise.
template <u32 zero, class F, u32... k, class... P>
X_DEVICE bool tryRun(Indices<k...> all, u64 begin, u64 end, F f, const u64* strides, const u64* at, P... p) {
  if (((strides[k] == (k == zero ? 0u : 1u)) && ...)) {
    Run<(k == zero ? 0 : 1)...>::over(begin, end, f, strides, at, p...);
    return true;
  }
  if constexpr (zero == 0) return false;
  else return tryRun<zero - 1>(all, begin, end, f, strides, at, p...);
}

/** f(i, p + offset of element i in each stride set...) for i in [0, n). */
template <class F, u32... k, class... P>
X_DEVICE void walk(Indices<k...> all, u64 n, u64 num_dims, const u64* info, F f, P... p) {
  constexpr u32 sets = sizeof...(P);
  // Axes at the end that every input steps through as one are one long run.
  u64 outer = num_dims > 0 ? num_dims - 1 : 0;
  u64 inner = num_dims > 0 ? info[outer] : 1;
  u64 strides[sets];
  ((strides[k] = num_dims > 0 ? info[(k + 1) * num_dims + outer] : 1), ...);
  while (outer > 0 && ((info[(k + 1) * num_dims + outer - 1] == strides[k] * inner) && ...)) inner *= info[--outer];

  const u64 end = launch::eachEnd(n);
  for (u64 i = launch::eachBegin(n); i < end;) {
    const u64 row = i / inner;
    const u64 column = i - row * inner;
    const u64 left = inner - column < end - i ? inner - column : end - i;
    u64 at[sets];
    ((at[k] = stridedOffset(row, outer, info, info + (k + 1) * num_dims) + column * strides[k]), ...);
    if (!tryRun<sets>(all, i, i + left, f, strides, at, p...))
      Run<(i64)k * 0 - 1 ...>::over(i, i + left, f, strides, at, p...);
    i += left;
  }
}

#else

template <u32 V, class F, class Out, class... In>
X_DEVICE void computeVec(F f, Out* out, const Vec<In, V>&... in) {
  Vec<Out, V> result;
#pragma unroll
  for (u32 j = 0; j < V; ++j) result.v[j] = f(in.v[j]...);
  storeVec(out, result);
}

/** out[i] = f(in[i]...). `limit` bounds the elements a thread holds at once: wide for cheap f, few for long code. */
template <u32 limit, class F, class Out, class... In>
X_DEVICE void contiguous(u64 n, F f, Out* out, const In*... in) {
  constexpr u32 fitting = 16 / largest<Out, In...>();
  constexpr u32 V = fitting < limit ? fitting : limit;
  u64 head = 0;
  if constexpr (V > 1) {
    if (alignedTo(out, sizeof(Out) * V) && (alignedTo(in, sizeof(In) * V) && ...)) {
      head = n / V * V;
      X_FOR_EACH(i, n / V) computeVec<V, F, Out, In...>(f, out + i * V, loadVec<V>(in + i * V)...);
    }
  }
  X_FOR_EACH(i, n - head) out[head + i] = f(in[head + i]...);
}

/** f(i, p + offset of element i in each stride set...) for i in [0, n). */
template <class F, u32... k, class... P>
X_DEVICE void walk(Indices<k...>, u64 n, u64 num_dims, const u64* info, F f, P... p) {
  X_FOR_EACH(i, n) {
    u64 at[sizeof...(P)] = {};
    u64 rest = i;
    for (u64 d = num_dims; d-- > 0;) {
      const u64 size = info[d];
      const u64 quotient = ((rest | size) >> 32) == 0 ? (u32)rest / (u32)size : rest / size;
      const u64 index = rest - quotient * size;
      ((at[k] += index * info[(k + 1) * num_dims + d]), ...);
      rest = quotient;
    }
    f(i, p + at[k]...);
  }
}

#endif

template <class F, class Out>
struct Store {
  F f;
  Out* out;
  template <class... In>
  X_DEVICE void operator()(u64 i, const In*... in) const {
    out[i] = f(*in...);
  }
};

}  // namespace each

/** f(i, pointers) for i in [0, n), each pointer advanced to element i of its stride set in info. */
template <class F, class... P>
X_DEVICE void forEachStrided(u64 n, u64 num_dims, const u64* info, F f, P... p) {
  each::walk(typename each::MakeIndices<sizeof...(P)>::type(), n, num_dims, info, f, p...);
}

/** out[i] = f(element i of each input) for i in [0, n). `limit` bounds the elements that a GPU thread holds at once. */
template <u32 limit = 16, class F, class Out, class... In>
X_DEVICE void mapEach(u64 n, u64 num_dims, const u64* info, F f, Out* out, const In*... in) {
  if (info == nullptr || each::allContiguous<In...>(num_dims, info)) each::contiguous<limit>(n, f, out, in...);
  else forEachStrided(n, num_dims, info, each::Store<F, Out>{f, out}, in...);
}
