// Lane exchange and reductions over a warp and over a block, for any warp width (1 on the host, 32, 64) and any block
// of 1..1024 threads, a last warp that is not full included. Every thread of the block must reach a call.
// Reduction operators are types: Op::identity<T>() and Op::apply(a, b), commutative and associative.
#pragma once

namespace lanes {

#if X_AMDGCN
X_DEVICE u32 read32(u32 v, u32 lane) { return (u32)__builtin_amdgcn_ds_bpermute((int)(lane << 2), (int)v); }
#elif X_NVRTC
X_DEVICE u32 read32(u32 v, u32 lane) { return __shfl_sync(0xffffffffu, v, lane); }
X_DEVICE u32 readXor32(u32 v, u32 mask) { return __shfl_xor_sync(0xffffffffu, v, mask); }
#elif X_NVPTX
X_DEVICE u32 read32(u32 v, u32 lane) { return (u32)__nvvm_shfl_sync_idx_i32(0xffffffffu, (int)v, (int)lane, 0x1f); }
X_DEVICE u32 readXor32(u32 v, u32 mask) { return (u32)__nvvm_shfl_sync_bfly_i32(0xffffffffu, (int)v, (int)mask, 0x1f); }
#else
X_DEVICE u32 read32(u32 v, u32) { return v; }
#endif

// How many lanes of this thread's warp exist: fewer than WARP only in the last warp of a block.
X_DEVICE u32 active() {
  const u32 left = blockThreads() - warpId() * WARP;
  return left < WARP ? left : WARP;
}

}  // namespace lanes

/** The value v of lane `lane` of this warp; T has 4 or 8 bytes. */
template <class T>
X_DEVICE T shuffle(T v, u32 lane) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles move 4 or 8 bytes");
  if constexpr (WARP == 1) {
    return v;
  } else if constexpr (sizeof(T) == 4) {
    return bitCast<T>(lanes::read32(bitCast<u32>(v), lane));
  } else {
    const u64 bits = bitCast<u64>(v);
    const u64 low = lanes::read32((u32)bits, lane);
    const u64 high = lanes::read32((u32)(bits >> 32), lane);
    return bitCast<T>(low | (high << 32));
  }
}

/** The value of lane `laneId() ^ mask`, which exists. */
template <class T>
X_DEVICE T shuffleXor(T v, u32 mask) {
#if X_NVPTX
  if constexpr (sizeof(T) == 4) return bitCast<T>(lanes::readXor32(bitCast<u32>(v), mask));
#endif
  return shuffle(v, laneId() ^ mask);
}

/** The value of lane `laneId() + delta`; a lane without such a partner keeps its own. */
template <class T>
X_DEVICE T shuffleDown(T v, u32 delta) {
  const u32 source = laneId() + delta;
  return shuffle(v, source < WARP ? source : laneId());
}

struct Sum {
  template <class T>
  static X_DEVICE T identity() {
    return (T)0;
  }
  template <class T>
  static X_DEVICE T apply(T a, T b) {
    return a + b;
  }
};

struct Product {
  template <class T>
  static X_DEVICE T identity() {
    return (T)1;
  }
  template <class T>
  static X_DEVICE T apply(T a, T b) {
    return a * b;
  }
};

namespace lanes {

template <class T>
X_DEVICE T lowest() {
  if constexpr (sameType<T, float>) return bitCast<float>(0xff800000u);
  else if constexpr (sameType<T, double>) return bitCast<double>((u64)0xfff << 52);
  else return convert::Limits<T>::low;
}
template <class T>
X_DEVICE T highest() {
  if constexpr (sameType<T, float>) return bitCast<float>(0x7f800000u);
  else if constexpr (sameType<T, double>) return bitCast<double>((u64)0x7ff << 52);
  else return convert::Limits<T>::high;
}

// Whether the compiler has IEEE 754's maximum and minimum as fewer instructions than comparisons.
#if X_NVPTX
#define X_EXTREMA_BUILTIN 0
#elif __has_builtin(__builtin_elementwise_maximum)
#define X_EXTREMA_BUILTIN 1
#else
#define X_EXTREMA_BUILTIN 0
#endif

// Of two equal numbers: they differ only as +0 and -0 do.
template <class T>
X_DEVICE T andBits(T a, T b) {
  if constexpr (sizeof(T) == 4) return bitCast<T>(bitCast<u32>(a) & bitCast<u32>(b));
  else return bitCast<T>(bitCast<u64>(a) & bitCast<u64>(b));
}
template <class T>
X_DEVICE T orBits(T a, T b) {
  if constexpr (sizeof(T) == 4) return bitCast<T>(bitCast<u32>(a) | bitCast<u32>(b));
  else return bitCast<T>(bitCast<u64>(a) | bitCast<u64>(b));
}

}  // namespace lanes

/** The larger; of a NaN and a number, the number. */
struct Max {
  template <class T>
  static X_DEVICE T identity() {
    return lanes::lowest<T>();
  }
  template <class T>
  static X_DEVICE T apply(T a, T b) {
    if constexpr (isFloatType<T>) return m::fmax(a, b);
    else return a > b ? a : b;
  }
};

/** The smaller; of a NaN and a number, the number. */
struct Min {
  template <class T>
  static X_DEVICE T identity() {
    return lanes::highest<T>();
  }
  template <class T>
  static X_DEVICE T apply(T a, T b) {
    if constexpr (isFloatType<T>) return m::fmin(a, b);
    else return a < b ? a : b;
  }
};

/** The larger, +0 of +0 and -0; NaN when either is. */
struct MaxNan {
  template <class T>
  static X_DEVICE T identity() {
    return lanes::lowest<T>();
  }
  template <class T>
  static X_DEVICE T apply(T a, T b) {
#if X_NVPTX  // one instruction instead of three
    if constexpr (sameType<T, float>) {
      float y;
      asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
      return y;
    }
#endif
    if constexpr (isFloatType<T>) {
#if X_EXTREMA_BUILTIN
      return __builtin_elementwise_maximum(a, b);
#else
      return a == b ? lanes::andBits(a, b) : (a > b || a != a) ? a : b;
#endif
    }
    return a > b ? a : b;
  }
  /** Whether a is strictly larger than b. */
  template <class T>
  static X_DEVICE bool beats(T a, T b) {
    return a > b || (a != a && b == b);
  }
};

/** The smaller, -0 of +0 and -0; NaN when either is. */
struct MinNan {
  template <class T>
  static X_DEVICE T identity() {
    return lanes::highest<T>();
  }
  template <class T>
  static X_DEVICE T apply(T a, T b) {
#if X_NVPTX
    if constexpr (sameType<T, float>) {
      float y;
      asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
      return y;
    }
#endif
    if constexpr (isFloatType<T>) {
#if X_EXTREMA_BUILTIN
      return __builtin_elementwise_minimum(a, b);
#else
      return a == b ? lanes::orBits(a, b) : (a < b || a != a) ? a : b;
#endif
    }
    return a < b ? a : b;
  }
  /** Whether a is strictly smaller than b. */
  template <class T>
  static X_DEVICE bool beats(T a, T b) {
    return a < b || (a != a && b == b);
  }
};

/** Op over the lanes of this warp, of N values; every lane gets the results. */
template <class Op, u32 N, class T>
X_DEVICE void warpReduceEach(T (&v)[N]) {
  if constexpr (WARP > 1) {
    const u32 count = lanes::active();
    if (count == WARP) {
#pragma unroll
      for (u32 n = 0; n < N; ++n)
#pragma unroll
        for (u32 mask = WARP / 2; mask > 0; mask /= 2) v[n] = Op::apply(v[n], shuffleXor(v[n], mask));
    } else {
      const u32 lane = laneId();
#pragma unroll 1
      for (u32 mask = WARP / 2; mask > 0; mask /= 2) {
#pragma unroll
        for (u32 n = 0; n < N; ++n) {
          const T other = shuffle(v[n], lane ^ mask);
          v[n] = Op::apply(v[n], (lane ^ mask) < count ? other : Op::template identity<T>());
        }
      }
      // The lanes' results differ; lane 0 has seen them all.
#pragma unroll
      for (u32 n = 0; n < N; ++n) v[n] = shuffle(v[n], 0);
    }
  }
}

/** Op over the lanes of this warp; every lane gets the result. */
template <class Op, class T>
X_DEVICE T warpReduce(T v) {
  T values[1] = {v};
  warpReduceEach<Op>(values);
  return values[0];
}

/** Op over the threads of this block; every thread gets the result. IN_PAIRS: nowhere one after the other, which f32 sums want. */
template <class Op, bool IN_PAIRS = false, class T>
X_DEVICE T blockReduce(T v) {
  if constexpr (WARP > 1) {
    constexpr u32 FEW = FEW_REGISTERS ? 1 : 8;  // warps whose results every thread reads sooner than lanes exchange them
    X_SHARED(T, partial, 1024 / WARP);
    const u32 warps = warpsInBlock();
    v = warpReduce<Op>(v);
    if (warps > 1) {
      if (laneId() == 0) partial[warpId()] = v;
      barrier();
      if (IN_PAIRS && warps <= FEW) {
        T each[FEW];
#pragma unroll
        for (u32 j = 0; j < FEW; ++j) each[j] = j < warps ? partial[j] : Op::template identity<T>();
#pragma unroll
        for (u32 w = FEW / 2; w > 0; w /= 2)
#pragma unroll
          for (u32 j = 0; j < w; ++j) each[j] = Op::apply(each[j], each[j + w]);
        v = each[0];
      } else if (warps <= FEW) {
        v = partial[0];
#pragma unroll
        for (u32 j = 1; j < FEW; ++j)
          if (j < warps) v = Op::apply(v, partial[j]);
      } else {
        v = Op::template identity<T>();
        for (u32 j = laneId(), step = lanes::active(); j < warps; j += step) v = Op::apply(v, partial[j]);
        v = warpReduce<Op>(v);
      }
      barrier();
    }
  }
  return v;
}
