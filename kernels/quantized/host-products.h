// Quantised rows times q8_1 columns on the host. Activations are brought into the order of a format's steps
// (host-steps.h), then rows pass by, each unpacked once for up to eight columns; more columns meet panels of rows
// (host-panels.h). With one column cores are faster than their memory, so rows are four streams, each prefetched ahead, across
// their ends; with more it is caches that count, so few steps are taken for several rows before the next steps.
//
// However many columns there are, a column's sums are added in one order, so that it gives the same bits in any company (but
// for host-amx-pairs.h): each
// unit (what shares a scale) of a step is an integer, multiplied and added to its lanes' sums, up to 16384 values; then lanes
// are added up, those 8, 4, 2 and 1 apart. A unit of 32 has two lanes with one sum, so lanes then have twice what is asked for.
#pragma once

#if X_HOST
namespace quant {

/** The sums of units in their lanes, from those of sixteens. */
template <class Q>
X_DEVICE Ints16 ofUnits(Ints16 sixteens) {
  if constexpr (Units<Q>::SIZE == 16) return sixteens;
#define OTHER(i) Step<Q>::laneOf(Step<Q>::valueOfLane(i) ^ 16)
  else return sixteens + __builtin_shufflevector(sixteens, sixteens, OTHER(0), OTHER(1), OTHER(2), OTHER(3), OTHER(4),
                                                 OTHER(5), OTHER(6), OTHER(7), OTHER(8), OTHER(9), OTHER(10), OTHER(11),
                                                 OTHER(12), OTHER(13), OTHER(14), OTHER(15));
#undef OTHER
}
/**
 * Whether a single column's row stays as it was unpacked, and sums of sixteens are added up behind its products: less than to
 * transpose it where two vectors have the same units.
 */
template <class Q, u32 COLS>
constexpr bool ADDED_LATER = COLS == 1 && Step<Q>::ORDER == Order::Halves;

/** Of what two pairs of vectors gave, the sums of units in their lanes then: in lane 4t + i of unit t where i is even, else of 4 + t. */
X_DEVICE Ints16 addedLater(Ints16 a, Ints16 b) {
#define IN_QUARTERS(i, j, k, l) \
  i, j, k, l, i + 4, j + 4, k + 4, l + 4, i + 8, j + 8, k + 8, l + 8, i + 12, j + 12, k + 12, l + 12
  const Ints16 halves = __builtin_shufflevector(a, b, IN_QUARTERS(0, 16, 1, 17)) + __builtin_shufflevector(a, b, IN_QUARTERS(2, 18, 3, 19));
  return halves + __builtin_shufflevector(halves, halves, IN_QUARTERS(2, 3, 0, 1));
#undef IN_QUARTERS
}
template <class V>
X_DEVICE Floats16 inLanesLater(V units) {
  return __builtin_shufflevector(units, units, 0, 4, 0, 4, 1, 5, 1, 5, 2, 6, 2, 6, 3, 7, 3, 7);
}
template <u32 N>
X_DEVICE const Bytes64 (&pairOf(const Bytes64 (&v)[4]))[2] { return *(const Bytes64(*)[2])(v + N); }

/** What is left of lanes' sums where a unit has two. */
template <class Q>
constexpr float LANE_SHARE = Units<Q>::SIZE == 16 ? 1.0f : 0.5f;

/** 256 activations in a format's order, and what those of a lane have in common. */
template <class Q, bool LATER = false>
struct alignas(64) StepColumn {
  Bytes64 u[4];
  Floats16 d;  // their scale
  union {
    Ints16 start;   // what products begin with: minus their sum times what quants are too large by
    Floats16 sums;  // where there are minima: d times their sum
  };

  /** The first `groups` 32s from y, then zeros. */
  QUANT_CALL void open(const u8* y, u32 groups) {
    alignas(64) u8 values[256] = {};
    alignas(32) float scales[8] = {};
    for (u32 g = 0; g < groups; ++g) {
      __builtin_memcpy(values + 32 * g, y + g * Q8_1::BYTES + 4, 32);
      scales[g] = Q8_1::scale(y + g * Q8_1::BYTES);
    }
    if constexpr (Step<Q>::ORDER == Order::Entries) {
      codebookOrder<Q>(values, u);
    } else {
#pragma unroll
      for (u32 v = 0; v < 4; ++v)
        u[v] = joined4(loadAs<Bytes16>(values + Step<Q>::at(v, 0)), loadAs<Bytes16>(values + Step<Q>::at(v, 1)),
                       loadAs<Bytes16>(values + Step<Q>::at(v, 2)), loadAs<Bytes16>(values + Step<Q>::at(v, 3)));
      if constexpr (!LATER) transpose(u);
    }
    const Floats each = loadAs<Floats>((const u8*)scales);
    Ints16 sum;
    if constexpr (LATER) {
      d = inLanesLater(each);
      sum = addedLater(sumsOf(pairOf<0>(u)), sumsOf(pairOf<2>(u)));
    } else {
      d = ofLanes<Q, 32>(each);
      sum = sumsOf(u);
      if constexpr (Q::MINS) sum = ofUnits<Q>(sum);
    }
    if constexpr (Q::MINS) sums = __builtin_convertvector(sum, Floats16) * d;
    else start = sum * -Step<Q>::OFFSET;
  }
};

/** A step of a row, unpacked. */
template <class Q, bool LATER>
struct alignas(64) StepRow {
  Bytes64 q[4];
  Floats16 units[Q::MINS ? 2 : 1];  // scales, and minima where there are such

  X_DEVICE void open(const u8* b) {
    units[0] = inLanes(Units<Q>::scales(b));
    if constexpr (Q::MINS) units[1] = inLanes(Units<Q>::minima(b));
    if constexpr (LATER) Step<Q>::unpack(b, q);
    else Step<Q>::quants(b, q);
  }

  /** Adds the step's product with a column. */
  X_DEVICE void addTo(Floats16& acc, const StepColumn<Q, LATER>& y) const {
    Ints16 start = {};
    if constexpr (Step<Q>::OFFSET != 0) start = y.start;
    Ints16 products;
    if constexpr (LATER) products = addedLater(dotsOf<0>(y), dotsOf<2>(y)) + start;
    else products = ofUnits<Q>(dots<Q::SIGNED, largestOf<Q>()>(q, y.u, start));
    acc += __builtin_convertvector(products, Floats16) * (units[0] * y.d);
    if constexpr (Q::MINS) acc -= units[1] * y.sums;
  }

 private:
  template <class V>
  static X_DEVICE Floats16 inLanes(V v) {
    if constexpr (LATER) return inLanesLater(v);
    else return ofLanes<Q, Units<Q>::SIZE>(v);
  }
  template <u32 PAIR>
  X_DEVICE Ints16 dotsOf(const StepColumn<Q, LATER>& y) const {
    return dots<Q::SIGNED, largestOf<Q>()>(pairOf<PAIR>(q), pairOf<PAIR>(y.u), Ints16{});
  }
};

// Groups of 2 * W lanes of a, then b, as groups of W: their halves added.
template <u32 W>
X_DEVICE Floats16 halved(Floats16 a, Floats16 b) {
#define LOW(i) (i) / W * 2 * W + (i) % W
#define LANES(at) \
  at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7), at(8), at(9), at(10), at(11), at(12), at(13), at(14), at(15)
#define HIGH(i) W + LOW(i)
  return __builtin_shufflevector(a, b, LANES(LOW)) + __builtin_shufflevector(a, b, LANES(HIGH));
#undef LOW
#undef HIGH
#undef LANES
}
/** Lane c is the sum of v[c]'s lanes. */
template <u32 COLS, u32 W = 8>
X_DEVICE Floats16 laneSums(const Floats16 (&v)[COLS]) {
  constexpr u32 LEFT = COLS == 1 ? 1 : COLS / 2;
  Floats16 fewer[LEFT];
#pragma unroll
  for (u32 c = 0; c < LEFT; ++c) fewer[c] = halved<W>(v[2 * c % COLS], v[(2 * c + 1) % COLS]);
  if constexpr (W == 1) return fewer[0];
  else return laneSums<LEFT, W / 2>(fewer);
}

/** Rows `begin` to `end` of x times columns of y: dst[column * stride + row]. */
template <class Q>
struct HostProducts {
  /** Rows of a part that meet one column together, and how far ahead each is fetched: a core's prefetchers follow several streams. */
  static constexpr u32 STREAMS = 4, AHEAD = 2048;
  static constexpr u64 STEPS = 64;  // whose sums are added up before lanes are: what a stack and the second cache hold
  template <u32 COLS>
  using Column = StepColumn<Q, ADDED_LATER<Q, COLS>>;
  const u8* x;
  u64 begin, end, inner;
  const u8* y;
  u64 columnBytes;
  float* dst;
  u64 stride;

  X_DEVICE u64 steps() const { return (inner + 255) / 256; }
  X_DEVICE u64 rowBytes() const { return inner / Q::SIZE * Q::BYTES; }

  /** The blocks that are left behind whole steps, and no scales beyond them. */
  X_DEVICE const u8* lastStep(const u8* b, u8 (&step)[Step<Q>::BYTES]) const {
    __builtin_memset(step, 0, sizeof(step));
    __builtin_memcpy(step, b, inner % 256 / Q::SIZE * Q::BYTES);
    return step;
  }

  /** What steps `first` to `first + STEPS` add, for `left` of COLS columns from `column` on. */
  template <u32 COLS>
  X_DEVICE void add(u64 first, u64 column, u64 left) const {
    // Steps whose activations the first cache holds, and rows that wait in the second.
    [[maybe_unused]] constexpr u64 AT_ONCE = STEPS / COLS, ROWS = 32;
    const u64 count = steps() - first < STEPS ? steps() - first : STEPS;
    Column<COLS> columns[STEPS][COLS];
    for (u64 k = 0; k < count; ++k) {
      const u64 at = 8 * (first + k), groups = inner / 32 - at < 8 ? inner / 32 - at : 8;
      for (u32 c = 0; c < COLS; ++c)
        columns[k][c].open(y + (column + (c < left ? c : 0)) * columnBytes + at * Q8_1::BYTES, (u32)groups);
    }
    if constexpr (COLS == 1) {
      const u64 apart = (end - begin) / STREAMS, alone = begin + STREAMS * apart;
      for (u64 row = begin; row < begin + apart; ++row) addRows<STREAMS>(row, apart, first, count, columns);
      for (u64 row = alone; row < end; ++row) addRows<1>(row, 0, first, count, columns);
    } else {
      for (u64 row0 = begin, rowEnd; row0 < end; row0 = rowEnd) {
        rowEnd = end - row0 > ROWS ? row0 + ROWS : end;
        Floats16 sums[ROWS][COLS];
        for (u64 k = 0; k < count; k += AT_ONCE) {
          const u64 most = count - k < AT_ONCE ? count - k : AT_ONCE;
          for (u64 row = row0; row < rowEnd; ++row) {
            addRow<COLS>(row, first + k, most, columns + k, k > 0, sums[row - row0]);
            if (k + most == count) store<COLS>(sums[row - row0], dst + column * stride + row, left, first > 0);
          }
        }
      }
    }
  }

 private:
  /** Steps that are whole, of `count` from `first` on. */
  X_DEVICE u64 wholeSteps(u64 first, u64 count) const {
    const u64 whole = inner / 256 - first;
    return Q::SIZE == 256 || whole > count ? count : whole;
  }

  /** A step, on its way into the caches. */
  static X_DEVICE void fetch(const u8* b) {
    constexpr u32 LINE = 64;
#pragma unroll
    for (u32 at = 0; at < Step<Q>::BYTES; at += LINE) __builtin_prefetch(b + at);
  }

  /** What `count` steps add to the sums of N rows that are `apart` rows apart, with one column. */
  template <u32 N>
  X_DEVICE void addRows(u64 row, u64 apart, u64 first, u64 count, const Column<1> (*columns)[1]) const {
    const u64 whole = wholeSteps(first, count);
    const u8* b = x + row * rowBytes() + first * Step<Q>::BYTES;
    alignas(64) u8 last[Step<Q>::BYTES];
    Floats16 sums[N][1] = {};
    for (u64 k = 0; k < count; ++k, b += Step<Q>::BYTES) {
#pragma unroll
      for (u32 r = 0; r < N; ++r) {
        const u8* own = b + r * apart * rowBytes();
        fetch(own + AHEAD);
        StepRow<Q, ADDED_LATER<Q, 1>> step;
        step.open(k < whole ? own : lastStep(own, last));
        step.addTo(sums[r][0], columns[k][0]);
      }
    }
    for (u32 r = 0; r < N; ++r) store<1>(sums[r], dst + row + r * apart, 1, first > 0);
  }

  /** Lanes' sums of `count` steps, added to what there is in `sums` where that `continues`. */
  template <u32 COLS>
  QUANT_NARROW_CALL void addRow(u64 row, u64 first, u64 count, const Column<COLS> (*columns)[COLS], bool continues,
                       Floats16 (&sums)[COLS]) const {
    const HostProducts p = *this;  // what nothing else can point to stays in registers
    const u64 whole = p.wholeSteps(first, count);
    const u8* b = p.x + row * p.rowBytes() + first * Step<Q>::BYTES;
    alignas(64) u8 last[Step<Q>::BYTES];
    Floats16 acc[COLS];
#pragma unroll
    for (u32 c = 0; c < COLS; ++c) acc[c] = continues ? sums[c] : Floats16{};
    for (u64 k = 0; k < count; ++k, b += Step<Q>::BYTES) {
      // A part of each row comes next: that of the row after the next is fetched.
      fetch(b + 2 * p.rowBytes());
      StepRow<Q, ADDED_LATER<Q, COLS>> step;
      step.open(k < whole ? b : p.lastStep(b, last));
#pragma unroll
      for (u32 c = 0; c < COLS; ++c) step.addTo(acc[c], columns[k][c]);
    }
#pragma unroll
    for (u32 c = 0; c < COLS; ++c) sums[c] = acc[c];
  }

  template <u32 COLS>
  X_DEVICE void store(const Floats16 (&lanes)[COLS], float* out, u64 left, bool adds) const {
    const Floats16 sums = laneSums<COLS>(lanes) * LANE_SHARE<Q>;
#pragma unroll
    for (u32 c = 0; c < COLS; ++c)
      if (c < left) out[c * stride] = adds ? out[c * stride] + sums[c] : sums[c];
  }
};

/** dst[row] = row . y for rows begin to end. */
template <class Q>
QUANT_CALL void hostColumn(const u8* x, u64 begin, u64 end, u64 inner, const u8* y, float* dst) {
  const HostProducts<Q> products{x, begin, end, inner, y, 0, dst, 1};
  for (u64 first = 0; first < products.steps(); first += HostProducts<Q>::STEPS) products.template add<1>(first, 0, 1);
}

}  // namespace quant
#endif
