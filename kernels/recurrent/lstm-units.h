// How the weights of a long short-term memory are packed, and what a step multiplies on the host: for some units side by side the
// four gates' weights with the outputs of some sequences. Weights of bf16 are packed as pairs of neighbours along the outputs where
// the host has dot products of pairs (shared/pairs.h); outputs are rounded to bf16 for them, as those of the layer are.
#pragma once

namespace recurrent {

constexpr u32 LSTM_GATES = 4;
constexpr u32 LSTM_HIDDEN = 1024;  // launchers: LSTM_HIDDEN
/** Units whose weights lie side by side. */
#if !X_HOST
constexpr u32 LSTM_UNITS = 32;  // launchers: LSTM_UNITS
#elif defined(__AVX512F__)
constexpr u32 LSTM_UNITS = 16, GATES_AT_ONCE = 4;
#else
// Registers have no room for the sums of all gates of four sequences.
constexpr u32 LSTM_UNITS = 8, GATES_AT_ONCE = 2;
#endif

/** The gate that an item of [gate, hidden] is of; a division would take scalar registers. */
X_DEVICE u32 gateOf(u32 item, u32 hidden) { return (u32)(item >= hidden) + (u32)(item >= 2 * hidden) + (u32)(item >= 3 * hidden); }

}  // namespace recurrent

#if X_HOST
namespace recurrent::lstm {

typedef float Units __attribute__((vector_size(LSTM_UNITS * 4)));
typedef float Loose __attribute__((vector_size(LSTM_UNITS * 4), aligned(4), may_alias));

/** Words from a sequence's outputs to those of the next; not 4 KiB, which share places of the cache. */
constexpr u32 PITCH = LSTM_HIDDEN + LSTM_UNITS;

/** Units that lie side by side, zeros from `count` on. Loops would make gathers of them. */
template <bool WHOLE>
X_DEVICE Units load(const float* from, u32 count) {
  if (WHOLE) return *(const Loose*)from;
  Units x = {};
  for (u32 j = 0; j < count; ++j) x[j] = from[j];
  return x;
}
template <bool WHOLE>
X_DEVICE void store(float* to, const float* units, u32 count) {
  if (WHOLE) *(Loose*)to = *(const Loose*)units;
  else
    for (u32 j = 0; j < count; ++j) to[j] = units[j];
}

/** Whether weights of T are packed as pairs. */
template <class T>
X_DEVICE bool ofPairs() {
#ifdef __AVX512F__
  if constexpr (sameType<T, bf16>) return pairs::supported();
#endif
  return false;
}

/** The sigmoid: 1 from 18 on, 0 below -88.3, where the exact result is less than 1e-38. Brief where results are rounded to 16 bits. */
template <class T>
X_DEVICE float gate(float x) {
  return 1.0f / (1.0f + m::expInline<!sameType<T, float>, true>(-x));
}

/** As m::tanh, from the same exponential. */
template <class T>
X_DEVICE float tanh(float x) {
  const float a = m::abs(x), z = a * a, large = 1.0f - 2.0f / (m::expInline<!sameType<T, float>, true>(2.0f * a) + 1.0f);
  return __builtin_copysignf(a < 0.625f ? a + a * (z * series::tangent(z)) : large, x);
}

/** to[words][gate][unit], of one gate, of `words` words a unit that lie `apart` bytes; the vectors of squares are turned. */
X_DEVICE void packWords(const u8* from, u64 apart, u64 words, u32 units, u32* to) {
  u64 k = 0;
  for (; units == LSTM_UNITS && k + LSTM_UNITS <= words; k += LSTM_UNITS) {
    Units v[LSTM_UNITS];
    for (u32 j = 0; j < LSTM_UNITS; ++j) __builtin_memcpy(&v[j], from + j * apart + k * 4, sizeof(Units));
    [](auto& square) {
      if constexpr (LSTM_UNITS == 16) turnSixteen(square);
      else turnEight(square);
    }(v);
    for (u32 j = 0; j < LSTM_UNITS; ++j) *(Loose*)(to + (k + j) * LSTM_GATES * LSTM_UNITS) = v[j];
  }
  for (; k < words; ++k) {
    for (u32 j = 0; j < LSTM_UNITS; ++j) {
      u32 word = 0;
      if (j < units) __builtin_memcpy(&word, from + j * apart + k * 4, 4);
      to[k * LSTM_GATES * LSTM_UNITS + j] = word;
    }
  }
}

/** Rows of `hidden` weights, a unit each. */
template <class T>
X_DEVICE void packUnits(const T* from, u32 hidden, u32 units, float* to) {
  if constexpr (sameType<T, float>) return packWords((const u8*)from, hidden * 4ull, hidden, units, (u32*)to);
  for (u64 k = 0; k < hidden; ++k)
    for (u32 j = 0; j < LSTM_UNITS; ++j)
      to[k * LSTM_GATES * LSTM_UNITS + j] = j < units ? to_acc(from[(u64)j * hidden + k]) : 0.0f;
}

/** The same as pairs; the last one of an odd number has a zero. */
template <class T>
X_DEVICE void packPairs(const T* from, u32 hidden, u32 units, u32* to) {
  const u64 whole = hidden / 2;
  packWords((const u8*)from, hidden * 2ull, whole, units, to);
  if (hidden % 2 == 0) return;
  for (u32 j = 0; j < LSTM_UNITS; ++j) {
    u16 last = 0;
    if (j < units) __builtin_memcpy(&last, from + (u64)j * hidden + hidden - 1, 2);
    to[whole * LSTM_GATES * LSTM_UNITS + j] = last;
  }
}

/** Outputs from `first` on into a sequence's, as the products take them. */
X_DEVICE void hold(bool paired, float* held, u32 first, const float* outputs, u32 count) {
  if (paired)
    for (u32 j = 0; j < count; ++j) ((bf16*)held)[first + j] = from_acc<bf16>(outputs[j]);
  else
    for (u32 j = 0; j < count; ++j) held[first + j] = outputs[j];
}

template <u32 ROWS>
X_DEVICE void multiply(const float* w, const float* now, u64 words, Units (&sums)[ROWS][LSTM_GATES]) {
  for (u32 first = 0; first < LSTM_GATES; first += GATES_AT_ONCE, w += GATES_AT_ONCE * LSTM_UNITS) {
    Units acc[ROWS][GATES_AT_ONCE] = {};
    const float* at = w;
    for (u64 k = 0; k < words; ++k, at += LSTM_GATES * LSTM_UNITS) {
#pragma unroll
      for (u32 g = 0; g < GATES_AT_ONCE; ++g) {
        const Units x = *(const Loose*)(at + g * LSTM_UNITS);
#pragma unroll
        for (u32 r = 0; r < ROWS; ++r) acc[r][g] += now[r * PITCH + k] * x;
      }
    }
    for (u32 r = 0; r < ROWS; ++r)
      for (u32 g = 0; g < GATES_AT_ONCE; ++g) sums[r][first + g] = acc[r][g];
  }
}

#ifdef __AVX512F__
template <u32 ROWS>
X_PAIRS_TARGET inline __attribute__((noinline)) void multiplyPairs(const u32* w, const u32* now, u64 words,
                                                                   Units (&sums)[ROWS][LSTM_GATES]) {
  Units acc[ROWS][LSTM_GATES] = {};
  for (u64 k = 0; k < words; ++k, w += LSTM_GATES * LSTM_UNITS) {
    pairs::Words x[LSTM_GATES];
#pragma unroll
    for (u32 g = 0; g < LSTM_GATES; ++g) x[g] = *(const pairs::LooseWords*)(w + g * LSTM_UNITS);
#pragma unroll
    for (u32 r = 0; r < ROWS; ++r) {
      const pairs::Words left = pairs::Words{} + now[r * PITCH + k];
#pragma unroll
      for (u32 g = 0; g < LSTM_GATES; ++g) acc[r][g] = pairs::add(acc[r][g], left, x[g]);
    }
  }
#pragma unroll
  for (u32 r = 0; r < ROWS; ++r)
#pragma unroll
    for (u32 g = 0; g < LSTM_GATES; ++g) sums[r][g] = acc[r][g];
}
#else
template <u32 ROWS>
X_DEVICE void multiplyPairs(const u32*, const u32*, u64, Units (&)[ROWS][LSTM_GATES]) {}
#endif

}  // namespace recurrent::lstm
#endif
