// Elementwise work over contiguous or strided operands: what candle's unary, binary, ternary, affine and cast kernels
// share. The output is contiguous; `info` is dims followed by one set of strides for each input, or null when every
// input is contiguous. GPUs move 16 bytes an access where pointers allow, with the remainder in the same kernel; the host
// walks runs of the innermost axis that clang vectorises. KERNEL_MAP declares a kernel that is one mapEach.
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

// The elements of one wide access as a queue of whole words. A loop takes from the front and adds behind: its body, long
// code that shall stand there once, then indexes no array, which would have to lie in scratch memory.
template <class T, u32 V>
struct Queue {
  static constexpr u32 words = sizeof(T) * V / 4;
  static_assert(words * 4 == sizeof(T) * V, "a queue holds whole words");
  u32 word[words];

  template <u32 N>
  X_DEVICE Vec<T, N> front() const {
    constexpr u32 bytes = sizeof(T) * N;
    if constexpr (bytes < 4) {
      return bitCast<Vec<T, N>>((typename vec::Word<bytes>::type)word[0]);
    } else {
      Vec<u32, bytes / 4> first;
#pragma unroll
      for (u32 k = 0; k < bytes / 4; ++k) first.v[k] = word[k];
      return bitCast<Vec<T, N>>(first);
    }
  }
  /** Moves everything N elements towards the front and puts `last` behind. */
  template <u32 N>
  X_DEVICE void push(const Vec<T, N>& last) {
    constexpr u32 bytes = sizeof(T) * N;
    if constexpr (bytes < 4) {
      const u32 added = bitCast<typename vec::Word<bytes>::type>(last);
#pragma unroll
      for (u32 k = 0; k < words; ++k)
        word[k] = word[k] >> (bytes * 8) | (k + 1 < words ? word[k + 1] : added) << (32 - bytes * 8);
    } else {
      constexpr u32 step = bytes / 4;
      const Vec<u32, step> added = bitCast<Vec<u32, step>>(last);
#pragma unroll
      for (u32 k = 0; k < words; ++k) word[k] = k + step < words ? word[k + step] : added.v[k + step - words];
    }
  }
};

template <u32 V, class F, class Out, class... In>
X_DEVICE Vec<Out, V> computeVec(F f, const Vec<In, V>&... in) {
  Vec<Out, V> result;
#pragma unroll
  for (u32 j = 0; j < V; ++j) result.v[j] = f(in.v[j]...);
  return result;
}

template <u32 N, class T, u32 V>
X_DEVICE Vec<T, N> take(Queue<T, V>& queue) {
  const Vec<T, N> first = queue.template front<N>();
  queue.push(first);
  return first;
}

/** computeVec of all V, N at a time by a loop that is not unrolled. */
template <u32 N, u32 V, class F, class Out, class... In>
X_DEVICE Vec<Out, V> computeQueues(F f, Queue<In, V>... in) {
  Queue<Out, V> result = {};
#pragma unroll 1
  for (u32 j = 0; j < V; j += N) result.push(computeVec<N, F, Out, In...>(f, take<N>(in)...));
  return bitCast<Vec<Out, V>>(result);
}

/** out[0..V) = f(in...), stored as one access. */
template <u32 limit, u32 V, class F, class Out, class... In>
X_DEVICE void computeWide(F f, Out* out, const Vec<In, V>&... in) {
  if constexpr (limit < V) storeVec(out, computeQueues<limit, V, F, Out, In...>(f, bitCast<Queue<In, V>>(in)...));
  else storeVec(out, computeVec<V, F, Out, In...>(f, in...));
}

// at[k] += the offset of element i in stride set k.
template <u32... k>
X_DEVICE void offsets(Indices<k...>, u64 i, u64 num_dims, const u64* info, u64* at) {
  u64 rest = i;
  for (u64 d = num_dims; d > 1;) {
    const u64 size = info[--d];
    const u64 quotient = quotientOf(rest, size);
    const u64 index = rest - quotient * size;
    ((at[k] += index * info[(k + 1) * num_dims + d]), ...);
    rest = quotient;
  }
  if (num_dims > 0) ((at[k] += rest * info[(k + 1) * num_dims]), ...);
}

// Element i and its V - 1 followers of an input that steps by one, or V times its one element where it does not step.
template <u32 V, class T>
X_DEVICE Vec<T, V> loadRun(const T* p, bool steps) {
  if (steps) return loadVec<V>(p);
  Vec<T, V> same;
  const T value = *p;
#pragma unroll
  for (u32 j = 0; j < V; ++j) same.v[j] = value;
  return same;
}

// Whether registers suffice for runs beside the other loops: not with the 16 elements of an access of one-byte types.
template <class Out, class... In>
constexpr bool roomy = !FEW_REGISTERS && largest<Out, In...>() > 1;

/**
 * out[i] = f(in[i]...). A thread moves as many elements at once as fill 16 bytes of the widest operand; `limit` bounds how
 * many copies of f there are: as many as elements for a short f, few for a long one, whose copies would cost registers
 * and code size and gain nothing.
 */
template <u32 limit, class F, class Out, class... In>
X_DEVICE void contiguous(u64 n, F f, Out* out, const In*... in) {
  constexpr u32 V = 16 / largest<Out, In...>();
  u64 head = 0;
  if (alignedTo(out, sizeof(Out) * V) && (alignedTo(in, sizeof(In) * V) && ...)) {
    head = n / V * V;
    X_FOR_EACH(i, n / V) computeWide<limit, V>(f, out + i * V, loadVec<V>(in + i * V)...);
  }
  if (head < n) X_FOR_EACH(i, n - head) out[head + i] = f(in[head + i]...);
}

// Whether every V neighbouring elements of an input lie in one aligned access, or are one element.
template <u32 V, class T>
X_DEVICE bool runsOf(const T* p, u64 num_dims, const u64* strides) {
  if (strides[num_dims - 1] == 0) return true;
  u64 steps = 0;
  for (u64 d = 0; d + 1 < num_dims; ++d) steps |= strides[d];
  return strides[num_dims - 1] == 1 && steps % V == 0 && alignedTo(p, sizeof(T) * V);
}

/**
 * As contiguous for inputs of any strides: as many elements at once where their innermost dim is stepped through by one or not at
 * all, else one by one. Both by one loop, whose code is mostly what finds an element's place.
 */
template <u32 limit, class F, class Out, u32... k, class... In>
X_DEVICE void strided(Indices<k...>, u64 n, u64 num_dims, const u64* info, F f, Out* out, const In*... in) {
  constexpr u32 V = 16 / largest<Out, In...>();
  const bool inRuns = roomy<Out, In...> && num_dims > 0 && info[num_dims - 1] % V == 0 && alignedTo(out, sizeof(Out) * V) &&
                      (runsOf<V>(in, num_dims, info + (k + 1) * num_dims) && ...);
  // What broadcasts usually has two dims: with nothing left to load, and words, which take few registers.
  const bool flat =
      inRuns && sizeof...(In) > 1 && num_dims == 2 && ((n | (info[(k + 1) * num_dims] | ...)) >> 32) == 0;
  u32 length = 1, rows[sizeof...(In)] = {};
  if (flat) length = (u32)info[1], ((rows[k] = (u32)info[(k + 1) * 2]), ...);
  X_FOR_EACH(a, inRuns ? n / V : n) {
    u64 at[sizeof...(In)] = {};
    if (flat) {
      const u32 i = (u32)a * V, row = i / length, column = i - row * length;
      ((at[k] = (u64)row * rows[k] + (info[(k + 2) * num_dims - 1] != 0 ? column : 0)), ...);
    } else {
      offsets(Indices<k...>(), inRuns ? a * V : a, num_dims, info, at);
    }
    if (inRuns) computeWide<limit, V>(f, out + a * V, loadRun<V>(in + at[k], info[(k + 2) * num_dims - 1] != 0)...);
    else out[a] = f(in[at[k]]...);
  }
}

/** f(i, p + offset of element i in each stride set...) for i in [0, n). */
template <class F, u32... k, class... P>
X_DEVICE void walk(Indices<k...>, u64 n, u64 num_dims, const u64* info, F f, P... p) {
  X_FOR_EACH(i, n) {
    u64 at[sizeof...(P)] = {};
    offsets(Indices<k...>(), i, num_dims, info, at);
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

/** out[i] = f(element i of each input) for i in [0, n). `limit` bounds the copies of f in a GPU thread's code. */
template <u32 limit = 16, class F, class Out, class... In>
X_DEVICE void mapEach(u64 n, u64 num_dims, const u64* info, F f, Out* out, const In*... in) {
  early::await();
  if (info == nullptr || each::allContiguous<In...>(num_dims, info)) return each::contiguous<limit>(n, f, out, in...);
#if X_HOST
  forEachStrided(n, num_dims, info, each::Store<F, Out>{f, out}, in...);
#else
  each::strided<limit>(typename each::MakeIndices<sizeof...(In)>::type(), n, num_dims, info, f, out, in...);
#endif
}

// A KERNEL_EACH whose body is one mapEach, which waits for what was launched before.
#define KERNEL_MAP(name, ...) \
  KERNEL_EARLY(name)          \
  KERNEL_EACH(name, __VA_ARGS__)
