// Quantised rows times many q8_1 columns in the processor's tile registers (AMX-INT8). Sixteen rows are unpacked for all columns of a
// tile, in the order of their values; columns are turned, four values of sixteen columns to a vector. A unit of both is then one
// instruction, which gives the integers that dot products give; lanes are columns, and sums are added up as host-products.h says.
// A unit's integers are stored two units after their product began, and scaled at the next, so that no unit waits for its own.
#pragma once

#if X_AMX && defined(__AVX512VNNI__)
#define QUANT_AMX 1
namespace quant {

/** Formats whose values `unpack` leaves in their order. */
template <class Q>
constexpr bool IN_TILES = Step<Q>::HAS_SIXTEENS;

/** `p` for columns `column0` to `column0 + columns`: what HostTile computes. */
template <class Q>
struct AmxTile {
  static constexpr u64 COLUMNS = HostTile<Q>::COLUMNS, STEPS = 8;
  static constexpr u32 UNITS = Units<Q>::COUNT, SIZE = Units<Q>::SIZE;
  const HostProducts<Q>& p;
  u64 column0, columns;

  /** What steps `first` to `first + HostProducts::STEPS` add. */
  X_DEVICE void add(u64 first) const {
    constexpr u64 MOST = HostProducts<Q>::STEPS;
    const u64 steps = p.steps() - first < MOST ? p.steps() - first : MOST;
    Unit opened[COLUMNS / 16 * MOST * UNITS];
    for (u64 c = 0; c < columns; c += 16)
      for (u64 k0 = 0; k0 < steps; k0 += STEPS)
        openColumns(c, first + k0, steps - k0 < STEPS ? steps - k0 : STEPS, opened + (c / 16 * steps + k0) * UNITS);
    // 0 to 3 hold products, 4 and 5 rows, 6 and 7 columns.
    amx::Shape shape;
    for (u32 i = 0; i < 4; ++i) shape.set(i, 16, 64);
    for (u32 i = 0; i < 2; ++i) {
      shape.set(4 + i, 16, SIZE);
      shape.set(6 + i, SIZE / 4, 64);
    }
    const amx::Registers registers(shape);
    for (u64 row = p.begin; row < p.end; row += 16) addPanel(row, first, steps, opened);
  }

 private:
  /** A unit of sixteen columns. */
  struct alignas(64) Unit {
    i8 values[SIZE / 4][16][4];
    Floats16 d;
    Floats16 sums[Q::MINS ? 1 : 0];  // d times the sum of the values
  };
  /** `count` steps of sixteen rows. */
  struct Panel {
    alignas(64) i8 values[16][STEPS * 256];
    float scales[STEPS][16][UNITS];
    float minima[Q::MINS ? STEPS : 1][16][UNITS];
    u64 count;
  };

  /** Units of `count` steps of columns c to c + 16, unit after unit; what is beyond the last column or value is zero. */
  X_DEVICE void openColumns(u64 c, u64 step, u64 count, Unit* units) const {
    constexpr u32 PER = 64 / SIZE;  // units in 64 values
    for (u64 k = 0; k < count; ++k) {
      for (u64 g = 0; g < 8; g += 2) {
        const u64 at = 8 * (step + k) + g;
        Ints16 quads[16];
        alignas(32) u16 d[2][16];
        for (u32 i = 0; i < 16; ++i) {
          const bool there = c + i < columns;
          const u8* y = p.y + (column0 + (there ? c + i : 0)) * p.columnBytes + at * Q8_1::BYTES;
          const bool one = there && at < p.inner / 32, two = there && at + 1 < p.inner / 32;
          quads[i] = (Ints16)joined(one ? loadAs<Bytes>(y + 4) : Bytes{}, two ? loadAs<Bytes>(y + Q8_1::BYTES + 4) : Bytes{});
          d[0][i] = one ? *(const u16*)y : 0;
          d[1][i] = two ? *(const u16*)(y + Q8_1::BYTES) : 0;
        }
        turnSixteen(quads);
#pragma unroll
        for (u32 u = 0; u < PER; ++u) {
          Unit& unit = units[(g / 2 * PER + u) * count + k];
          typedef _Float16 Halves __attribute__((vector_size(32)));
          unit.d = __builtin_convertvector(loadAs<Halves>((const u8*)d[u * SIZE / 32]), Floats16);
          Ints16 sum = {};
#pragma unroll
          for (u32 i = 0; i < SIZE / 4; ++i) {
            const Ints16 quad = quads[u * SIZE / 4 + i];
            __builtin_memcpy(unit.values[i], &quad, 64);
            if constexpr (Q::MINS) sum = (Ints16)__builtin_ia32_vpdpbusd512(sum, Bytes64{} + 1, (Chars64)quad);
          }
          if constexpr (Q::MINS) unit.sums[0] = __builtin_convertvector(sum, Floats16) * unit.d;
        }
      }
    }
  }

  X_DEVICE void addPanel(u64 row, u64 first, u64 steps, const Unit* opened) const {
    Floats16 sums[COLUMNS / 16][UNITS][16];
    Panel panel;
    for (u64 k0 = 0; k0 < steps; k0 += STEPS) {
      panel.count = steps - k0 < STEPS ? steps - k0 : STEPS;
      openRows(row, first + k0, panel);
      for (u64 c = 0; c < columns; c += 16)
        multiply(panel, opened + (c / 16 * steps + k0) * UNITS, k0 > 0, sums[c / 16]);
    }
    for (u64 c = 0; c < columns; c += 16) store(sums[c / 16], row, c, first > 0);
  }

  X_DEVICE void openRows(u64 row, u64 step, Panel& panel) const {
    for (u64 r = 0; r < 16; ++r) {
      const u64 own = row + r < p.end ? row + r : p.end - 1;
      const u8* b = p.x + own * p.rowBytes() + step * Step<Q>::BYTES;
      alignas(64) u8 last[Step<Q>::BYTES];
      for (u64 k = 0; k < panel.count; ++k, b += Step<Q>::BYTES) {
        if (Q::SIZE < 256 && step + k >= p.inner / 256) b = p.lastStep(b, last);
        Bytes64 q[4];
        Step<Q>::unpack(b, q);
#pragma unroll
        for (u32 v = 0; v < 4; ++v) write(q[v] - (u8)Step<Q>::OFFSET, v, panel.values[r] + 256 * k);
        const auto scales = Units<Q>::scales(b);
        __builtin_memcpy(panel.scales[k][r], &scales, sizeof(scales));
        if constexpr (Q::MINS) {
          const auto minima = Units<Q>::minima(b);
          __builtin_memcpy(panel.minima[k][r], &minima, sizeof(minima));
        }
      }
    }
  }

  /** The sixteens of vector v where their values belong, those together that stay together. */
  static X_DEVICE void write(const Bytes64& q, u32 v, i8* values) {
    const u32 to[4] = {Step<Q>::at(v, 0), Step<Q>::at(v, 1), Step<Q>::at(v, 2), Step<Q>::at(v, 3)};
    const bool inPairs = to[1] == to[0] + 16 && to[3] == to[2] + 16;
    const u32 bytes = !inPairs ? 16 : to[2] == to[1] + 16 ? 64 : 32;
#pragma unroll
    for (u32 t = 0; t < 4; t += bytes / 16) __builtin_memcpy(values + to[t], (const u8*)&q + 16 * t, bytes);
  }

  /** The units of a panel, one after the other: which is multiplied, and which is scaled. */
  struct Cursor {
    u64 unit = 0, step = 0;
    X_DEVICE void advance(u64 count) {
      if (++step == count) {
        step = 0;
        ++unit;
      }
    }
  };
  struct Pipe {
    const Panel& panel;
    const Unit* columns;
    bool continues;
    Floats16 (&sums)[UNITS][16];
    Ints16 (&products)[2][16];
    Cursor begun, scaled;
    u64 count = UNITS * panel.count;

    /** Begins product i, scales product i - 3 and stores product i - 2; i % 4 is N. */
    template <u32 N>
    X_DEVICE void step(u64 i, Floats16 (&acc)[16]) {
      if (i < count) {
        constexpr u32 A = 4 + N % 2, B = 6 + N % 2;
        amx::load<A>(panel.values[0] + 256 * begun.step + SIZE * begun.unit, STEPS * 256);
        amx::load<B>(columns[i].values, 64);
        amx::zero<N>();
        amx::multiplyBytes<N, A, B>();
        begun.advance(panel.count);
      }
      if (i >= 3 && i - 3 < count) scale(i - 3, products[(N + 1) % 2], acc);
      if (i >= 2 && i - 2 < count) amx::store<(N + 2) % 4>(products[N % 2], 64);
    }

    X_DEVICE void scale(u64 i, const Ints16 (&own)[16], Floats16 (&acc)[16]) {
      if (scaled.step == 0) {
#pragma unroll
        for (u32 r = 0; r < 16; ++r) acc[r] = continues ? sums[scaled.unit][r] : Floats16{};
      }
      const Floats16 d = columns[i].d;
#pragma unroll
      for (u32 r = 0; r < 16; ++r) {
        acc[r] += __builtin_convertvector(own[r], Floats16) * (d * panel.scales[scaled.step][r][scaled.unit]);
        if constexpr (Q::MINS) acc[r] -= columns[i].sums[0] * panel.minima[scaled.step][r][scaled.unit];
      }
      if (scaled.step + 1 == panel.count) {
#pragma unroll
        for (u32 r = 0; r < 16; ++r) sums[scaled.unit][r] = acc[r];
      }
      scaled.advance(panel.count);
    }
  };

  static X_DEVICE void multiply(const Panel& panel, const Unit* columns, bool continues, Floats16 (&sums)[UNITS][16]) {
    Ints16 products[2][16];
    Pipe pipe{panel, columns, continues, sums, products, {}, {}};
    Floats16 acc[16];
    for (u64 i = 0; i < pipe.count + 3; i += 4) {
      pipe.template step<0>(i, acc);
      pipe.template step<1>(i + 1, acc);
      pipe.template step<2>(i + 2, acc);
      pipe.template step<3>(i + 3, acc);
    }
  }

  X_DEVICE void store(const Floats16 (&units)[UNITS][16], u64 row, u64 c, bool adds) const {
    Floats16 sums[16];
    for (u32 r = 0; r < 16; ++r) sums[r] = addedUnits<Q>([&](u32 unit, Floats16& own) { own = units[unit][r]; });
    turnSixteen(sums);
    for (u64 i = 0; i < 16 && c + i < columns; ++i)
      storeRows(p.dst + (column0 + c + i) * p.stride + row, sums[i], p.end - row, adds);
  }
};

}  // namespace quant
#else
#define QUANT_AMX 0
#endif
