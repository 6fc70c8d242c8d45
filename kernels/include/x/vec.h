// Wide loads and stores: Vec<T, N> moves as one access of up to 16 bytes.
#pragma once

template <class T, u32 N>
struct alignas(sizeof(T) * N) Vec {
  T v[N];
  X_DEVICE T& operator[](u32 i) { return v[i]; }
  X_DEVICE const T& operator[](u32 i) const { return v[i]; }
};

/** Elements of T in 16 bytes. */
template <class T>
constexpr u32 vecWidth = 16 / sizeof(T);

/** Whether p is aligned to `bytes`, a power of two. */
X_DEVICE bool alignedTo(const void* p, u64 bytes) { return ((u64)p & (bytes - 1)) == 0; }
X_DEVICE bool aligned16(const void* p) { return alignedTo(p, 16); }

namespace vec {

#if X_NVRTC
template <u32 bytes>
struct Word;
template <>
struct Word<16> {
  typedef uint4 type;
};
template <>
struct Word<8> {
  typedef uint2 type;
};
#else
typedef u32 u32x2 __attribute__((ext_vector_type(2)));
typedef u32 u32x4 __attribute__((ext_vector_type(4)));
template <u32 bytes>
struct Word;
template <>
struct Word<16> {
  typedef u32x4 type;
};
template <>
struct Word<8> {
  typedef u32x2 type;
};
#endif
template <>
struct Word<4> {
  typedef u32 type;
};
template <>
struct Word<2> {
  typedef u16 type;
};
template <>
struct Word<1> {
  typedef u8 type;
};

}  // namespace vec

/** N elements at p, which is aligned to N * sizeof(T) = 1, 2, 4, 8 or 16 bytes. */
template <u32 N, class T>
X_DEVICE Vec<T, N> loadVec(const T* p) {
  typedef typename vec::Word<sizeof(T) * N>::type Word;
  return bitCast<Vec<T, N>>(*(const Word*)p);
}

template <class T, u32 N>
X_DEVICE void storeVec(T* p, const Vec<T, N>& v) {
  typedef typename vec::Word<sizeof(T) * N>::type Word;
  *(Word*)p = bitCast<Word>(v);
}
