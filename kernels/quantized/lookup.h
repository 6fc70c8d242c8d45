// Bytes chosen from small tables that lie in registers: how four-bit levels and codebook entries become int8 quants. AMD's
// v_perm_b32 takes a selector a byte, NVIDIA's prmt a selector a nibble; both pick four of eight bytes at once.
#pragma once

namespace quant {

#if X_HOST
#define QUANT_TABLE static constexpr
#elif X_NVRTC
#define QUANT_TABLE static __device__ const
#elif X_NVPTX  // const would put it into constant memory, which serves one address of a warp at a time
#define QUANT_TABLE static __attribute__((device))
#else
#define QUANT_TABLE static __attribute__((device)) const
#endif

// Sixteen signed levels, four a word, the first in the lowest byte.
// IQ4_NL and IQ4_XS: -127 -104 -83 -65 -49 -35 -22 -10 1 13 25 38 53 69 89 113.
struct Uneven {
  static constexpr u32 W0 = 0xbfad9881u, W1 = 0xf6eaddcfu, W2 = 0x26190d01u, W3 = 0x71594535u;
};
// Twice a float of one sign, two exponent and one fraction bit (MXFP4, NVFP4): 0 1 2 3 4 6 8 12 and their negatives.
struct Float4 {
  static constexpr u32 W0 = 0x03020100u, W1 = 0x0c080604u, W2 = 0xfdfeff00u, W3 = 0xf4f8fafcu;
};

#if X_NVPTX
X_DEVICE u32 permute(u32 low, u32 high, u32 nibbles) {
  u32 r;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(low), "r"(high), "r"(nibbles));
  return r;
}
#else
// Byte i is byte `selector byte i` (0 to 7) of high:low.
X_DEVICE u32 permute(u32 low, u32 high, u32 selectors) {
#if X_AMDGCN
  return __builtin_amdgcn_perm(high, low, selectors);
#else
  const u64 table = (u64)high << 32 | low;
  u32 r = 0;
  for (u32 i = 0; i < 4; ++i) r |= (u32)(u8)(table >> (8 * ((selectors >> (8 * i)) & 7))) << (8 * i);
  return r;
#endif
}
#endif

/** Four levels: byte i is the one of the lowest four bits of byte i, the others being 0. */
template <class L>
X_DEVICE u32 pick16(u32 bytes) {
#if X_NVPTX
  const u32 nibbles = permute(bytes | bytes >> 4, 0, 0x4420);
  const u32 low = permute(L::W0, L::W1, nibbles & 0x7777u);
  const u32 high = permute(L::W2, L::W3, nibbles & 0x7777u);
  return permute(low, high, 0x3210u | (nibbles & 0x8888u) >> 1);
#else
  const u32 low = permute(L::W0, L::W1, bytes & 0x07070707u);
  const u32 high = permute(L::W2, L::W3, bytes & 0x07070707u);
  return permute(low, high, 0x03020100u | ((bytes >> 1) & 0x04040404u));
#endif
}

/** Four of the eight bytes high:low, by four fields of four bits below 8. */
X_DEVICE u32 pick8(u32 low, u32 high, u32 fields) {
#if X_NVPTX
  return permute(low, high, fields);
#else
  const u32 pairs = (fields | fields << 8) & 0x00ff00ffu;
  return permute(low, high, (pairs | pairs << 4) & 0x0f0f0f0fu);
#endif
}

/** Four of the four bytes of `table`, by four fields of two bits. */
X_DEVICE u32 pick4(u32 table, u32 fields) {
#if X_NVPTX
  const u32 pairs = (fields | fields << 4) & 0x0f0fu;
  return permute(table, 0, (pairs | pairs << 2) & 0x3333u);
#else
  const u32 pairs = (fields | fields << 12) & 0x000f000fu;
  return permute(table, 0, (pairs | pairs << 6) & 0x03030303u);
#endif
}

/** Four bytes from 1 to 127, byte i negated where bit i of `signs` (four bits) is set. */
X_DEVICE u32 negated(u32 bytes, u32 signs) {
  const u32 ones = (signs * 0x00204081u) & 0x01010101u;
  return (bytes ^ ((ones << 8) - ones)) + ones;
}

/** Eight signs of seven: the last makes the number of minus signs even. */
X_DEVICE u32 evenSigns(u32 seven) {
  u32 parity = seven ^ seven >> 4;
  parity ^= parity >> 2;
  parity ^= parity >> 1;
  return seven | (parity & 1) << 7;
}

/** Four bytes at any address, of words that hold at least one of them. */
X_DEVICE u32 load1(const u8* p) {
#if X_NVPTX
  const u32 shift = (u32)((u64)p & 3) * 8;
  const u32* word = (const u32*)(p - shift / 8);
  const u32 high = shift ? word[1] : 0;
  return (u32)(((u64)high << 32 | word[0]) >> shift);
#else
  u32 v;
  __builtin_memcpy(&v, p, 4);
  return v;
#endif
}

}  // namespace quant
