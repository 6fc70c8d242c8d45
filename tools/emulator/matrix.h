// WMMA and MFMA, computed from what the lanes hold, by the layouts of AMD's ISA guides ("Matrix core instructions", RDNA3 7.9,
// RDNA4 7.12, CDNA3 7.1).
#pragma once
#include "lanes.h"

namespace emulated {

struct HalfElements {
  typedef float Sum;
  static float at(const void* words, uint32_t i) { return float(static_cast<const _Float16*>(words)[i]); }
};
struct BrainElements {
  typedef float Sum;
  static float at(const void* words, uint32_t i) {
    return __builtin_bit_cast(float, uint32_t{static_cast<const uint16_t*>(words)[i]} << 16);
  }
};
struct ByteElements {
  typedef int Sum;
  static int at(const void* words, uint32_t i) { return static_cast<const int8_t*>(words)[i]; }
};

/** What a lane has of both matrices and of the result. */
struct Multiply {
  const void *a, *b;
  void* c;
};

/**
 * c += A . B over 16 x 16, of which a lane holds one row of A and one column of B, that of its number mod 16: EACH elements in
 * every one of GROUPS groups of 16 lanes, whose k follow each other. Element i of a result lies in column lane % 16 and in the
 * row that the chip's guide gives: i * ROW + lane / 16 * GROUP_ROW.
 */
template <class E, uint32_t EACH, uint32_t GROUPS, uint32_t ROW, uint32_t GROUP_ROW>
void multiply(Lane* const* lanes);

}  // namespace emulated
