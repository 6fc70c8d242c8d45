// What lies between two products of a layer, a launch each: the sum and the norm before a product, and the activation of a
// gate. Both end in the q8_1 blocks that the next product reads (quantized/activations.h).
#pragma once

namespace decode {

/** Where GPUs keep a row: quads of values that a thread has in registers, for most rows and for long ones. */
[[maybe_unused]] constexpr u32 FEW_TILES = 2, TILES = 4;

/**
 * x + delta * deltaScale, or x + norm(delta), and the norm of that: over the root of the mean of squares or, where `centred`,
 * of the variance, once the mean is taken away; without `alpha` it is the sum itself. Rows are contiguous.
 */
template <class T>
struct Norm {
  using Value = T;
  /** Whether alpha of a short row is on its way with it. */
  static constexpr bool WEIGHTS_FIRST = true;
  u64 rows;
  u32 n, padded;  // values of a row, and of one in blocks; n is a multiple of 32 where there are blocks
  float eps, deltaScale;
  bool centred;
  const float *x, *delta;                 // delta may be null
  const float *deltaAlpha, *alpha, *beta;  // [n] or null: delta is added as it is, there is no norm, nothing is added behind it
  float* sum;  // x + delta, where there is a delta; may not be null then
  u8* blocks;  // the norm, as q8_1, or null
  T* y;        // the norm, or null
  const float* deltaBias = nullptr;  // [n], added to a delta without a norm, or null: of normPlain

  X_DEVICE u8* blocksOf(u64 row) const { return blocks + row * (padded / 32) * quant::Q8_1::BYTES; }
  X_DEVICE float scale(float squares) const { return 1.0f / m::sqrt(squares / (float)n + eps); }
  /** Of the tile of a thread's fours that is at `at`. */
  X_DEVICE Vec<float, 4> deltaAt(u64 at, u32) const { return loadVec<4>(delta + at); }
  X_DEVICE void put(u64 at, const Vec<T, 4>& quad) const { storeVec(y + at, quad); }
};

/** The sum of get(0) .. get(n - 1), by the whole block; every thread gets it. */
template <class Get>
X_DEVICE float sumOf(u32 n, Get get) {
#if X_HOST
  return reduce::overBlock<Sum, float>(n, get).result();
#else
  float sum = 0.0f;
#pragma unroll 1
  for (u32 j = threadIndex(); j < n; j += blockThreads()) sum += get(j);
  return blockReduce<Sum>(sum);
#endif
}

X_DEVICE float squaresOf(const float* x, float mean, u32 n) {
  return sumOf(n, [=](u64 j) { return (x[j] - mean) * (x[j] - mean); });
}

/** A row of any length and place, through memory. */
template <class T>
X_DEVICE void normPlain(const Norm<T>& p, u64 row) {
  const u64 at = row * p.n;
  const float* from = p.x + at;
  if (p.delta) {
    const float *x = from, *delta = p.delta + at;
    float* sum = p.sum + at;
    if (p.deltaAlpha) {
      const float* alpha = p.deltaAlpha;
      const float scale = p.scale(squaresOf(delta, 0.0f, p.n));
      X_FOR_BLOCK(j, p.n) sum[j] = x[j] + delta[j] * scale * alpha[j];
    } else {
      const float times = p.deltaScale;
      const float* bias = p.deltaBias;
      if (bias) X_FOR_BLOCK(j, p.n) sum[j] = x[j] + (delta[j] + bias[j]) * times;
      else X_FOR_BLOCK(j, p.n) sum[j] = x[j] + delta[j] * times;
    }
    barrier();
    from = sum;
  }
  const float *alpha = p.alpha, *beta = p.beta;
  const float mean = p.centred ? sumOf(p.n, [=](u64 j) { return from[j]; }) / (float)p.n : 0.0f;
  const float scale = alpha ? p.scale(squaresOf(from, mean, p.n)) : 1.0f;
  const auto normed = [=](u64 j) {
    return alpha ? (from[j] - mean) * scale * alpha[j] + (beta ? beta[j] : 0.0f) : from[j];
  };
  if (p.y) {
    T* y = p.y + at;
    X_FOR_BLOCK(j, p.n) y[j] = from_acc<T>(normed(j));
  }
  if (!p.blocks) return;
#if X_HOST
  if constexpr (sameType<T, float>) {
    if (p.y) {
      const float* y = p.y + at;
      for (u32 g = 0; g < p.n / 32; ++g) quant::quantizeGroup(y + g * 32, 32, p.blocksOf(row) + g * quant::Q8_1::BYTES);
      return;
    }
  }
#endif
  quant::quantizeEach(p.n, p.blocksOf(row), normed);
}

#if !X_HOST
/** Whether a row fits the block's registers, in quads. */
template <class T>
X_DEVICE bool fitsRegisters(const Norm<T>& p) {
  return p.n % 4 == 0 && p.n <= TILES * 4 * blockThreads() && aligned16(p.x) && aligned16(p.delta) &&
         aligned16(p.deltaAlpha) && aligned16(p.alpha) && aligned16(p.beta) && aligned16(p.sum) &&
         alignedTo(p.y, 4 * sizeof(T));
}

/** The sum over the block of get() of what threads hold. */
template <u32 N, class Get>
X_DEVICE float sumHeld(const float (&v)[N][4], Get get) {
  float sums[N];
#pragma unroll
  for (u32 t = 0; t < N; ++t) sums[t] = (get(v[t][0]) + get(v[t][1])) + (get(v[t][2]) + get(v[t][3]));
#pragma unroll
  for (u32 w = N / 2; w > 0; w /= 2)
#pragma unroll
    for (u32 t = 0; t < w; ++t) sums[t] = sums[2 * t] + sums[2 * t + 1];
  return blockReduce<Sum>(sums[0]);
}

template <u32 N>
X_DEVICE float squaresHeld(const float (&v)[N][4]) {
  return sumHeld(v, [](float each) { return each * each; });
}

/** What is added to a row. */
enum class Delta { None, Plain, Normed };

/** A row in registers: all of it is on its way before anything is added; of a long row, its weights come later. */
template <Delta KIND, u32 N, class P>
X_DEVICE void normHeld(P& p, u64 row) {
  using T = typename P::Value;
  constexpr bool WEIGHTS_FIRST = N <= FEW_TILES && P::WEIGHTS_FIRST;
  const u64 at = row * p.n;
  const auto column = [](u32 t) { return (t * blockThreads() + threadIndex()) * 4; };
  float v[N][4] = {};
  Vec<float, 4> alpha[N];
#pragma unroll
  for (u32 t = 0; t < N; ++t) {
    const u32 c = column(t);
    if (c >= p.n) continue;
    const Vec<float, 4> first = KIND == Delta::Normed ? p.deltaAt(at + c, t) : loadVec<4>(p.x + at + c);
    if (WEIGHTS_FIRST && p.alpha) alpha[t] = loadVec<4>(p.alpha + c);
#pragma unroll
    for (u32 e = 0; e < 4; ++e) v[t][e] = first[e];
  }
  if constexpr (KIND == Delta::Plain) {
#pragma unroll
    for (u32 t = 0; t < N; ++t) {
      if (column(t) >= p.n) continue;
      const Vec<float, 4> second = p.deltaAt(at + column(t), t);
#pragma unroll
      for (u32 e = 0; e < 4; ++e) v[t][e] = v[t][e] + second[e] * p.deltaScale;
    }
  }
  if constexpr (KIND == Delta::Normed) {
    const float scale = p.scale(squaresHeld(v));
#pragma unroll
    for (u32 t = 0; t < N; ++t) {
      const u32 c = column(t);
      if (c >= p.n) continue;
      const Vec<float, 4> x = loadVec<4>(p.x + at + c), weights = loadVec<4>(p.deltaAlpha + c);
#pragma unroll
      for (u32 e = 0; e < 4; ++e) v[t][e] = x[e] + v[t][e] * scale * weights[e];
    }
  }
  if constexpr (KIND != Delta::None) {
#pragma unroll
    for (u32 t = 0; t < N; ++t) {
      Vec<float, 4> sum;
#pragma unroll
      for (u32 e = 0; e < 4; ++e) sum[e] = v[t][e];
      if (column(t) < p.n) storeVec(p.sum + at + column(t), sum);
    }
  }
  if (p.centred) {
    const float mean = sumHeld(v, [](float each) { return each; }) / (float)p.n;
#pragma unroll
    for (u32 t = 0; t < N; ++t)
#pragma unroll
      for (u32 e = 0; e < 4; ++e)
        if (column(t) < p.n) v[t][e] -= mean;
  }
  const float scale = p.alpha ? p.scale(squaresHeld(v)) : 1.0f;
  u8* blocks = p.blocksOf(row);
#pragma unroll
  for (u32 t = 0; t < N; ++t) {
    if (t * blockThreads() * 4 >= p.n) break;
    const u32 c = column(t);
    const bool inside = c < p.n;
    float y[4] = {};
    if (inside) {
      Vec<T, 4> out;
      Vec<float, 4> beta = {};
      if (!WEIGHTS_FIRST && p.alpha) alpha[t] = loadVec<4>(p.alpha + c);
      if (p.beta) beta = loadVec<4>(p.beta + c);
#pragma unroll
      for (u32 e = 0; e < 4; ++e) {
        y[e] = p.alpha ? v[t][e] * scale * alpha[t][e] + beta[e] : v[t][e];
        out[e] = from_acc<T>(y[e]);
      }
      if (p.y) p.put(at + c, out);
    }
    if (p.blocks) quant::quantizeQuad(y, blocks + c / 32 * quant::Q8_1::BYTES, inside);
  }
}

template <u32 N, class P>
X_DEVICE void normOf(const P& p, u64 row) {
  if (p.deltaAlpha) normHeld<Delta::Normed, N>(p, row);
  else if (p.delta) normHeld<Delta::Plain, N>(p, row);
  else normHeld<Delta::None, N>(p, row);
}
#endif

template <class T>
X_DEVICE void normAll(const Norm<T>& p) {
  // While the product that makes `delta` still runs; x was written long before, and other things since.
  if (threadIndex() == 0) {
    if (p.alpha) early::prefetch(p.alpha, p.n * sizeof(float));
    if (p.beta) early::prefetch(p.beta, p.n * sizeof(float));
    if (p.deltaAlpha) early::prefetch(p.deltaAlpha, p.n * sizeof(float));
    if (split::block() < p.rows) early::prefetch(p.x + split::block() * p.n, p.n * sizeof(float));
  }
  early::await();
  early::letNextBegin();
#if X_HOST
  X_FOR_SPLIT(row, p.rows) {
    normPlain(p, row);
    if (p.blocks) quant::padRow(p.blocksOf(row), p.n, p.padded);
  }
#else
  // A block a row and no loop, out of which the compiler would take more than registers hold.
  const u64 row = split::block();
  if (row >= p.rows) return;
  if (!fitsRegisters(p)) normPlain(p, row);
  else if (p.n <= FEW_TILES * 4 * blockThreads()) normOf<FEW_TILES>(p, row);
  else normOf<TILES>(p, row);
  if (p.blocks) quant::padRow(p.blocksOf(row), p.n, p.padded);
#endif
}

/** The norm of a delta with a bias, as products of layers with biases leave it: through memory, on GPUs a block a row. */
template <class T>
X_DEVICE void normBiased(const Norm<T>& p) {
  early::await();
  early::letNextBegin();
#if X_HOST
  X_FOR_SPLIT(row, p.rows) {
#else
  const u64 row = split::block();
  if (row < p.rows) {
#endif
    normPlain(p, row);
    if (p.blocks) quant::padRow(p.blocksOf(row), p.n, p.padded);
  }
}

/** act(gate) * up of rows of n values, that begin every `gateRow` and `upRow` values; act(gate) where `up` is null. */
struct Gated {
  u64 rows;
  u32 n, padded;
  const float* gate;
  u64 gateRow;
  const float* up;
  u64 upRow;
  u8* blocks;  // as q8_1, or null
  bf16* y;     // [rows, n], or null
};

template <class Act>
X_DEVICE void gatedAll(const Gated& p) {
  early::await();
  early::letNextBegin();
#if X_HOST
  const u32 groups = p.padded / 32;
  X_FOR_EACH(i, p.rows * groups) {
    const u64 row = i / groups, at = i % groups * 32;
    const float *gate = p.gate + row * p.gateRow + at, *up = p.up + row * p.upRow + at;
    float values[32] = {};
    if (at < p.n)
      for (u32 e = 0; e < 32; ++e) values[e] = Act::apply(gate[e]) * (p.up ? up[e] : 1.0f);
    if (p.blocks) quant::quantizeGroup(values, 32, p.blocks + i * quant::Q8_1::BYTES);
    if (p.y && at < p.n)
      for (u32 e = 0; e < 32; ++e) p.y[row * p.n + at + e] = from_acc<bf16>(values[e]);
  }
#else
  const u32 quads = p.padded / 4;
  const u64 total = p.rows * quads;
  const bool wide = aligned16(p.gate) && aligned16(p.up) && p.gateRow % 4 == 0 && p.upRow % 4 == 0;
  // All threads of a block go through every step, since lanes share blocks.
  for (u64 base = split::block() * blockThreads(); base < total; base += split::blocks() * blockThreads()) {
    const u64 i = base + threadIndex(), row = i / quads;
    const u32 at = (u32)(i - row * quads) * 4;
    const bool inside = i < total && at < p.n;
    float values[4] = {};
    if (inside) {
      const float *gate = p.gate + row * p.gateRow + at, *up = p.up + row * p.upRow + at;
      Vec<float, 4> g, u = {1.0f, 1.0f, 1.0f, 1.0f};
      if (wide) {
        g = loadVec<4>(gate);
        if (p.up) u = loadVec<4>(up);
      } else {
#pragma unroll
        for (u32 e = 0; e < 4; ++e) {
          g[e] = gate[e];
          if (p.up) u[e] = up[e];
        }
      }
#pragma unroll
      for (u32 e = 0; e < 4; ++e) values[e] = Act::apply(g[e]) * u[e];
    }
    if (p.y && inside) {
      Vec<bf16, 4> out;
#pragma unroll
      for (u32 e = 0; e < 4; ++e) out[e] = from_acc<bf16>(values[e]);
      storeVec(p.y + row * p.n + at, out);
    }
    if (p.blocks) quant::quantizeQuad(values, p.blocks + i / 8 * quant::Q8_1::BYTES, i < total);
  }
#endif
}

}  // namespace decode
