// Convolutions of bf16 in a host's tile registers (AMX-BF16): 32 channels of the result times 32 of its places at a time. The planes of
// pairs of channels (conv/planes.h) are what the registers read as they lie: a row of a tile is a pair's plane, from the place on that
// the tap begins at. The kernel is packed so that a row is a channel of the result, with 16 pairs side by side.
#pragma once

#if X_AMX
namespace conv::tiles {

/** Of a register: channels of the result, pairs of channels, places; and channels and places of a tile. */
constexpr u32 ROWS = 16, PAIRS = 16, LANES = 16, STRIP = 32, WIDTH = 32;
/** Channels of a group that fill registers so far that they are faster. */
constexpr u64 LEAST_IN = 16, LEAST_OUT = 8;

X_DEVICE bool pay(const Counts& n) { return x_amx && pairs::supported() && n.c_in >= LEAST_IN && n.c_out >= LEAST_OUT; }

/** Words of a group's kernel for so many taps of all its phases. */
X_DEVICE u64 wordsOf(const Counts& n, u64 taps) {
  return stepsTo(n.c_out, ROWS) * ROWS * stepsTo(n.c_in, 2 * PAIRS) * PAIRS * taps;
}

/** As conv::packTaps: dst [group][phase][block of ROWS][PAIRS at a time][tap][row][pair], zeros for channels that there are not. */
inline __attribute__((noinline)) void packTaps(const Counts& n, u64 group_stride, u64 out_stride, u64 in_stride, const u64* table,
                                               const bf16* kernel, u32* dst) {
  const Phase last = phaseAt(table, n.phases - 1);
  const u64 each = wordsOf(n, last.first + last.taps), blocks = stepsTo(n.c_out, ROWS), steps = stepsTo(n.c_in, 2 * PAIRS);
  X_FOR_SPLIT(item, n.groups * n.phases * blocks) {
    const u64 group = item / blocks / n.phases, block = item % blocks;
    const Phase phase = phaseAt(table, item / blocks % n.phases);
    const u64* taps = tapsOf(table, n, phase);
    u32* to = dst + group * each + wordsOf(n, phase.first) + block * ROWS * PAIRS * steps * phase.taps;
    for (u64 step = 0; step < steps; ++step)
      for (u64 t = 0; t < phase.taps; ++t)
        for (u64 row = block * ROWS; row < (block + 1) * ROWS; ++row)
          for (u64 c = step * 2 * PAIRS; c < (step + 1) * 2 * PAIRS; c += 2) {
            const bf16* from = kernel + group * group_stride + row * out_stride + c * in_stride + taps[t * TAP_WORDS + 1];
            const bool first = row < n.c_out && c < n.c_in, second = row < n.c_out && c + 1 < n.c_in;
            *to++ = Channels::of(first ? from[0] : bf16{}, second ? from[in_stride] : bf16{});
          }
  }
}

/** A kernel's strips, from one of ROWS channels to the next, planes, and what is multiplied of both. */
struct Factors {
  const u32* strips;
  u64 strip_size;
  const u32* planes;
  u64 plane_size;
  const u64* taps;
  u64 count;
};

/** sums [STRIP][WIDTH], or of ROWS channels unless BOTH, = what they were, or `first` nothing, + `steps` times PAIRS pairs of channels of all taps. */
template <bool BOTH>
inline __attribute__((noinline)) void multiply(Factors p, u64 steps, float* sums, bool first) {
  constexpr u64 ROW = WIDTH * sizeof(float);
  const u64 apart = p.plane_size * sizeof(u32);
  // Registers 4 and 5 hold the kernel, 6 and 7 planes.
  amx::loadSums<BOTH, true>(sums, ROW, first);
  for (u64 step = 0; step < steps; ++step, p.planes += PAIRS * p.plane_size) {
    for (u64 t = 0; t < p.count; ++t, p.strips += ROWS * PAIRS) {
      const u32* from = p.planes + p.taps[t * TAP_WORDS];
      amx::load<6>(from, apart);
      amx::load<4>(p.strips, PAIRS * sizeof(u32));
      amx::multiplyBf16<0, 4, 6>();
      amx::load<7>(from + LANES, apart);
      amx::multiplyBf16<2, 4, 7>();
      if constexpr (BOTH) {
        amx::load<5>(p.strips + p.strip_size, PAIRS * sizeof(u32));
        amx::multiplyBf16<1, 5, 6>();
        amx::multiplyBf16<3, 5, 7>();
      }
    }
  }
  amx::storeSums<BOTH, true>(sums, ROW);
}

/** Of registers that hold so many pairs of channels. */
X_DEVICE amx::Shape shapeOf(u32 pairs) {
  amx::Shape shape;
  for (u32 i = 0; i < 4; ++i) shape.set(i, ROWS, 64);
  for (u32 i = 4; i < 6; ++i) shape.set(i, ROWS, pairs * sizeof(u32));
  for (u32 i = 6; i < 8; ++i) shape.set(i, pairs, 64);
  return shape;
}

/** As conv::multiplyPlanes, of planes and strips of pairs. */
inline __attribute__((noinline)) void multiplyPlanes(const Counts& n, u64 plane_size, u64 rows_each, const Target& target,
                                                     const u64* table, const u32* planes, const u32* strips, bf16* dst) {
  const u64 deep = stepsTo(n.c_in, 2), steps = deep / PAIRS, rest = deep % PAIRS;
  const Phase last = phaseAt(table, n.phases - 1);
  const u64 each = wordsOf(n, last.first + last.taps);
  const amx::Shape whole = shapeOf(PAIRS), end = shapeOf(rest == 0 ? PAIRS : (u32)rest);
  alignas(64) float sums[STRIP * WIDTH];
  bf16 values[STRIP * WIDTH];
  Run runs[WIDTH];
  eachTile(n, stepsTo(rows_each, STRIP) * STRIP, WIDTH, target, table, [&](const Piece& at) {
    const Phase& phase = at.phase;
    const u64 size = stepsTo(n.c_in, 2 * PAIRS) * phase.taps * ROWS * PAIRS;
    const u32* own = strips + at.channels % n.groups * each + wordsOf(n, phase.first);
    const u32* plane = planes + at.channels * deep * plane_size + at.from;
    const u32 count = runsOf(target, phase, at.first, WIDTH, runs);
    for (u64 row = at.row; row < at.end; row += STRIP) {
      const u64 rows = at.end - row < STRIP ? at.end - row : STRIP;
      const u32* strip = own + row / ROWS * size;
      const auto run = [&](const amx::Shape& shape, u64 from, u64 count, bool first) {
        const Factors factors{strip + from * phase.taps * ROWS * PAIRS, size, plane + from * PAIRS * plane_size, plane_size, at.taps, phase.taps};
        const amx::Registers registers(shape);
        if (rows > ROWS) multiply<true>(factors, count, sums, first);
        else multiply<false>(factors, count, sums, first);
      };
      if (steps > 0) run(whole, 0, steps, true);
      if (rest > 0) run(end, steps, 1, steps == 0);
      for (u64 i = 0; i < rows * WIDTH; ++i) values[i] = from_acc<bf16>(sums[i]);
      bf16* to = dst + at.channels * n.c_out * target.channel + phase.start + row * target.channel;
      for (u32 i = 0; i < count; ++i) storeRun(runs[i], target, (u32)rows, WIDTH, values, to);
    }
  });
}

}  // namespace conv::tiles
#endif

#if X_HOST
namespace conv {

/** packTaps in the form that this CPU multiplies T in. */
template <class T>
X_DEVICE void strips(const Counts& n, u64 group_stride, u64 out_stride, u64 in_stride, const u64* table, const T* kernel,
                     acc_t<T>* dst) {
#if X_AMX
  if constexpr (sameType<T, bf16>)
    if (tiles::pay(n)) return tiles::packTaps(n, group_stride, out_stride, in_stride, table, kernel, (u32*)dst);
#endif
  withForm<T, Channels>([&](auto form) {
    typedef decltype(form) Form;
    packTaps<T, Form>(n, group_stride, out_stride, in_stride, table, kernel, (typename Form::Element*)dst);
  });
}

/** multiplyPlanes of these strips. */
template <class T>
X_DEVICE void products(const Counts& n, u64 plane_size, u64 rows_each, const Target& target, const u64* table, const acc_t<T>* planes,
                       const acc_t<T>* strips, T* dst) {
#if X_AMX
  if constexpr (sameType<T, bf16>)
    if (tiles::pay(n))
      return tiles::multiplyPlanes(n, plane_size, rows_each, target, table, (const u32*)planes, (const u32*)strips, dst);
#endif
  withForm<T, Channels>([&](auto form) {
    typedef decltype(form) Form;
    typedef typename Form::Element Element;
    multiplyPlanes<T, Form>(n, plane_size, rows_each, target, table, (const Element*)planes, (const Element*)strips, dst);
  });
}

}  // namespace conv
#endif
