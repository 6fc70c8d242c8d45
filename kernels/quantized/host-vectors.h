// What the host's unpacking of 256 values at once is made of: vectors of 64 bytes, shifts of bytes, small tables.
#pragma once

#if defined(__AVX512VNNI__) || defined(__AVXVNNI__)
#define QUANT_VNNI 1
#else
#define QUANT_VNNI 0
#endif

#if X_HOST
namespace quant {

typedef u8 Bytes64 __attribute__((vector_size(64)));
typedef i8 Signed64 __attribute__((vector_size(64)));
typedef char Chars64 __attribute__((vector_size(64)));
typedef u16 Words32 __attribute__((vector_size(64)));
typedef short Shorts32 __attribute__((vector_size(64)));
typedef i32 Ints16 __attribute__((vector_size(64)));
typedef u64 Longs8 __attribute__((vector_size(64)));
typedef float Floats16 __attribute__((vector_size(64)));

X_DEVICE Bytes64 joined(Bytes low, Bytes high) {
  return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22,
                                 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45,
                                 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63);
}
X_DEVICE Bytes64 joined4(Bytes16 a, Bytes16 b, Bytes16 c, Bytes16 d) { return joined(joined(a, b), joined(c, d)); }

// Bytes shifted as words, as registers can: the caller masks what comes in from the neighbour.
X_DEVICE Bytes64 right(Bytes64 v, u32 bits) { return (Bytes64)((Words32)v >> (u16)bits); }
X_DEVICE Bytes64 left(Bytes64 v, u32 bits) { return (Bytes64)((Words32)v << (u16)bits); }
/** low in the lower half, high shifted right by `bits` in the upper; the caller masks. */
X_DEVICE Bytes64 withRight(Bytes v, u32 bits) {
  typedef u16 Words __attribute__((vector_size(32)));
  return joined(v, (Bytes)((Words)v >> (u16)bits));
}

/** What multiplied signed quants are larger by: VNNI takes bytes without sign (host-dot.h). */
constexpr u8 BIAS = QUANT_VNNI ? 128 : 0;
template <class L>
struct Biased {
  static constexpr u32 EACH = BIAS * 0x01010101u;
  static constexpr u32 W0 = L::W0 ^ EACH, W1 = L::W1 ^ EACH, W2 = L::W2 ^ EACH, W3 = L::W3 ^ EACH;
};

/** levels<L> of 64 bytes. */
template <class L>
X_DEVICE Bytes64 levels64(Bytes64 index) {
#if defined(__AVX512BW__)
  const u32 words[4] = {L::W0, L::W1, L::W2, L::W3};
  const Bytes16 table = loadAs<Bytes16>((const u8*)words);
  return (Bytes64)__builtin_ia32_pshufb512((Chars64)joined4(table, table, table, table), (Chars64)index);
#else
  return joined(levels<L>(loadAs<Bytes>((const u8*)&index)), levels<L>(loadAs<Bytes>((const u8*)&index + 32)));
#endif
}

}  // namespace quant
#endif
