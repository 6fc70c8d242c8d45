// Convolutions of floats on the host, as products whose right matrix is never written down. Each channel of the image, or a pair
// of them, is copied once to a plane (conv/planes.h). The rows of the right matrix are then the planes themselves, begun at
// another offset for every tap of the kernel. `table` has these offsets (ops/conv-host.ts).
#pragma once

#if X_HOST
namespace conv {

/** Vectors that a tile is wide: as many as registers hold sums of, with BLOCK_ROWS rows and with one or two. */
constexpr u32 BLOCK_VECTORS = 3, WIDE_VECTORS = BLOCK_ROWS == 8 ? 8 : 4, WIDE_ROWS = 2;

template <u32 v>
struct Number {
  static constexpr u32 value = v;
};

/** f(number) with the rows of a block as a constant: BLOCK_ROWS, or a power of two of what is left. */
template <u32 ROWS = BLOCK_ROWS, class F>
X_DEVICE u32 withRows(u64 left, F f) {
  if constexpr (ROWS > 1) {
    if (left < ROWS) return withRows<ROWS / 2>(left, f);
  }
  f(Number<ROWS>());
  return ROWS;
}

/** f(number) for 1 to MOST. */
template <u32 MOST, class F>
X_DEVICE void withCount(u64 count, F f) {
  if constexpr (MOST > 1) {
    if (count < MOST) return withCount<MOST - 1>(count, f);
  }
  f(Number<MOST>());
}

/** What a convolution has of each: channels are those of a group. */
struct Counts {
  u64 images, groups, c_out, c_in, phases;
};

/**
 * Outputs that read the same taps: all of them, or in a transposed convolution those of one remainder by the stride. In the
 * table as many words, the taps of all phases behind: each two words, its offset in a plane and in the kernel.
 */
struct Phase {
  u64 taps, first, rows, columns, start;
};
constexpr u64 PHASE_WORDS = 5, TAP_WORDS = 2;

X_DEVICE Phase phaseAt(const u64* table, u64 i) {
  const u64* p = table + i * PHASE_WORDS;
  return Phase{p[0], p[1], p[2], p[3], p[4]};
}
X_DEVICE const u64* tapsOf(const u64* table, const Counts& n, const Phase& phase) {
  return table + n.phases * PHASE_WORDS + phase.first * TAP_WORDS;
}

/** dst [group][phase][block of rows][c_in / DEEP][tap][row] from kernel, by whose strides channels and groups go on. */
template <class T, class Form>
X_DEVICE void packTaps(const Counts& n, u64 group_stride, u64 out_stride, u64 in_stride, const u64* table, const T* kernel,
                       typename Form::Element* dst) {
  const Phase last = phaseAt(table, n.phases - 1);
  const u64 deep = stepsTo(n.c_in, Form::DEEP);
  const u64 each = n.c_out * deep * (last.first + last.taps), blocks = stepsTo(n.c_out, BLOCK_ROWS);
  X_FOR_SPLIT(item, n.groups * n.phases * blocks) {
    const u64 group = item / blocks / n.phases, begin = item % blocks * BLOCK_ROWS;
    const u64 end = begin + BLOCK_ROWS < n.c_out ? begin + BLOCK_ROWS : n.c_out;
    const Phase phase = phaseAt(table, item / blocks % n.phases);
    const u64* taps = tapsOf(table, n, phase);
    typename Form::Element* to = dst + group * each + n.c_out * deep * phase.first;
    for (u64 row = begin; row < end;) {
      row += withRows(end - row, [&](auto rows) {
        typename Form::Element* strip = to + row * deep * phase.taps;
        const T* from = kernel + group * group_stride + row * out_stride;
        for (u64 c = 0; c < n.c_in; c += Form::DEEP, from += Form::DEEP * in_stride) {
          for (u64 t = 0; t < phase.taps; ++t) {
            const T* p = from + taps[t * TAP_WORDS + 1];
            if constexpr (Form::DEEP == 2) {
              for (u32 r = 0; r < rows.value; ++r, p += out_stride) *strip++ = Form::of(*p, c + 1 < n.c_in ? p[in_stride] : T{});
            } else {
              for (u32 r = 0; r < rows.value; ++r, p += out_stride) *strip++ = Form::of(*p);
            }
          }
        }
      });
    }
  }
}

/** sums [ROWS][VECTORS of lanes] = strip times the rows of `count` planes from `plane` at all taps. */
template <u32 ROWS, u32 VECTORS, class Form>
X_PAIRS_TARGET __attribute__((noinline)) void multiplyTaps(const typename Form::Element* strip, const typename Form::Element* plane,
                                                           u64 plane_size, u64 planes, const u64* taps, u64 count,
                                                           typename Form::Sum* sums) {
  typedef typename Form::Element A;
  typedef Lanes<A> L;
  typedef Lanes<typename Form::Sum> S;
  typename S::type acc[ROWS][VECTORS] = {};
  for (u64 c = 0; c < planes; ++c, plane += plane_size) {
    for (u64 t = 0; t < count; ++t, strip += ROWS) {
      const A* from = plane + taps[t * TAP_WORDS];
      typename L::type x[VECTORS];
#pragma unroll
      for (u32 v = 0; v < VECTORS; ++v) x[v] = *(const typename L::loose*)(from + v * L::N);
#pragma unroll
      for (u32 r = 0; r < ROWS; ++r) {
#pragma unroll
        for (u32 v = 0; v < VECTORS; ++v) acc[r][v] = Form::add(acc[r][v], strip[r], x[v]);
      }
    }
  }
#pragma unroll
  for (u32 r = 0; r < ROWS; ++r) {
#pragma unroll
    for (u32 v = 0; v < VECTORS; ++v) *(typename S::loose*)(sums + (r * VECTORS + v) * S::N) = acc[r][v];
  }
}

/** Where a phase's outputs go: the elements of a row of planes, of a step down and across in dst, and of a channel. */
struct Target {
  u64 pitch, down, across, channel;
};

/** An output of a phase, by rows as long as the planes', the ends of which are none. */
struct Position {
  u64 row, column;
};

/** Outputs of a tile that lie in one row of dst: the first of them, how many, and where they go. */
struct Run {
  u64 first, count, place;
};

/** The runs of `width` outputs from a position on; as many as there are. */
X_DEVICE u32 runsOf(const Target& target, const Phase& phase, Position at, u64 width, Run* runs) {
  u32 count = 0;
  for (u64 first = 0; first < width && at.row < phase.rows; ++at.row, at.column = 0) {
    const u64 left = target.pitch - at.column < width - first ? target.pitch - at.column : width - first;
    if (at.column < phase.columns) {
      const u64 stored = phase.columns - at.column < left ? phase.columns - at.column : left;
      runs[count++] = Run{first, stored, at.row * target.down + at.column * target.across};
    }
    first += left;
  }
  return count;
}

/** A run of `rows` channels whose values lie `width` apart. One piece of code for all tiles, which objects are the smaller for. */
template <class T>
inline __attribute__((noinline)) void storeRun(const Run& run, const Target& target, u32 rows, u64 width, const T* values, T* dst) {
  values += run.first;
  dst += run.place;
  for (u32 r = 0; r < rows; ++r, values += width, dst += target.channel) {
    if (target.across == 1) {
      copyNeighbours(values, dst, run.count);
    } else {
      for (u64 j = 0; j < run.count; ++j) dst[j * target.across] = values[j];
    }
  }
}

/** Channels [row, end) of a tile of VECTORS vectors, `plane` being what its first output reads. */
template <u32 VECTORS, u32 ROWS, class T, class Form>
X_DEVICE void tile(const Counts& n, const Phase& phase, const u64* taps, const Target& target, u64 plane_size, u64 row, u64 end,
                   Position at, const typename Form::Element* plane, const typename Form::Element* strips, T* dst) {
  constexpr u32 WIDTH = VECTORS * Lanes<acc_t<T>>::N;
  const u64 deep = stepsTo(n.c_in, Form::DEEP);
  alignas(64) acc_t<T> sums[ROWS * WIDTH];
  Run runs[WIDTH];
  const u32 count = runsOf(target, phase, at, WIDTH, runs);
  while (row < end) {
    row += withRows<ROWS>(end - row, [&](auto rows) {
      multiplyTaps<rows.value, VECTORS, Form>(strips + row * deep * phase.taps, plane, plane_size, deep, taps, phase.taps, sums);
      const auto store = [&](const T* values) {
        for (u32 i = 0; i < count; ++i) storeRun(runs[i], target, rows.value, WIDTH, values, dst + row * target.channel);
      };
      if constexpr (sameType<T, acc_t<T>>) {
        store(sums);
      } else {
        T values[ROWS * WIDTH];
        for (u32 i = 0; i < rows.value * WIDTH; ++i) values[i] = from_acc<T>(sums[i]);
        store(values);
      }
    });
  }
}

/** Outputs from `from` on, of channels [row, end) of a group of an image, which is number `channels` of all. */
struct Piece {
  Phase phase;
  const u64* taps;
  u64 channels, row, end, from, outputs;
  Position first;
};

/** f(piece) for each tile of `width` outputs and `rows_each` channels of this block: tiles of the same channels follow each other. */
template <class F>
X_DEVICE void eachTile(const Counts& n, u64 rows_each, u64 width, const Target& target, const u64* table, F f) {
  const u64 parts = stepsTo(n.c_out, rows_each);
  u64 most = 0;
  for (u64 p = 0; p < n.phases; ++p) {
    const Phase phase = phaseAt(table, p);
    const u64 tiles = stepsTo((phase.rows - 1) * target.pitch + phase.columns, width);
    if (tiles > most) most = tiles;
  }
  const u64 items = n.images * n.groups * n.phases * parts * most;
  for (u64 item = split::begin(items), stop = split::end(items); item < stop;) {
    const u64 row = item / most % parts * rows_each, p = item / most / parts % n.phases;
    const Phase phase = phaseAt(table, p);
    Piece piece{phase, tapsOf(table, n, phase), item / most / parts / n.phases, row, row + rows_each < n.c_out ? row + rows_each : n.c_out,
                item % most * width, (phase.rows - 1) * target.pitch + phase.columns, {}};
    piece.first = {piece.from / target.pitch, piece.from % target.pitch};
    const u64 next = item - item % most + most, last = next < stop ? next : stop;
    for (; item < last && piece.from < piece.outputs; ++item, piece.from += width) {
      f(piece);
      for (piece.first.column += width; piece.first.column >= target.pitch; ++piece.first.row) piece.first.column -= target.pitch;
    }
    item = last;
  }
}

/**
 * dst [images][groups * c_out][channel] = strips (packTaps) times planes of `plane_size`. An item of work is one tile of some
 * channels, `rows_each` (a multiple of BLOCK_ROWS).
 */
template <class T, class Form>
X_DEVICE void multiplyPlanes(const Counts& n, u64 plane_size, u64 rows_each, const Target& target, const u64* table,
                             const typename Form::Element* planes, const typename Form::Element* strips, T* dst) {
  typedef Lanes<acc_t<T>> L;
  const Phase last = phaseAt(table, n.phases - 1);
  const u64 deep = stepsTo(n.c_in, Form::DEEP), each = n.c_out * deep * (last.first + last.taps);
  const u64 width = (n.c_out <= WIDE_ROWS ? WIDE_VECTORS : BLOCK_VECTORS) * L::N;
  eachTile(n, rows_each, width, target, table, [&](const Piece& at) {
    const Phase& phase = at.phase;
    const typename Form::Element* plane = planes + at.channels * deep * plane_size + at.from;
    const typename Form::Element* own = strips + at.channels % n.groups * each + n.c_out * deep * phase.first;
    T* to = dst + at.channels * n.c_out * target.channel + phase.start;
    const u64 left = at.outputs - at.from, vectors = stepsTo(left < width ? left : width, L::N);
    const auto run = [&](auto count) {
      constexpr u32 ROWS = count.value > BLOCK_VECTORS ? WIDE_ROWS : BLOCK_ROWS;
      tile<count.value, ROWS, T, Form>(n, phase, at.taps, target, plane_size, at.row, at.end, at.first, plane, own, to);
    };
    if (vectors > BLOCK_VECTORS) run(Number<WIDE_VECTORS>());
    else withCount<BLOCK_VECTORS>(vectors, run);
  });
}

/** The sum of a vector's lanes, halves first. */
template <class A>
X_DEVICE A total(typename Lanes<A>::type v) {
  A lane[Lanes<A>::N];
  *(typename Lanes<A>::loose*)lane = v;
#pragma unroll
  for (u32 half = Lanes<A>::N / 2; half > 0; half /= 2) {
#pragma unroll
    for (u32 i = 0; i < half; ++i) lane[i] += lane[i + half];
  }
  return lane[0];
}

/** Part of a plane as the kernel lies on it: lines, elements of one, and from one to the next in the plane. */
struct Window {
  u64 lines, width, pitch;
};

/**
 * sums[ROWS][COLUMNS] += lines of ROWS channels of the kernel times the plane at COLUMNS places; lanes are added up when all lines
 * are through.
 */
template <u32 ROWS, u32 COLUMNS, class Form>
X_PAIRS_TARGET __attribute__((noinline)) void multiplyLines(const Window& window, const typename Form::Element* kernel,
                                                            u64 kernel_step, const typename Form::Element* plane,
                                                            const u64* places, typename Lanes<typename Form::Sum>::type* sums,
                                                            u64 sums_step) {
  typedef typename Form::Element A;
  typedef Lanes<A> L;
  typedef typename L::type V;
  typedef typename L::loose loose;
  typename Lanes<typename Form::Sum>::type acc[ROWS][COLUMNS];
#pragma unroll
  for (u32 r = 0; r < ROWS; ++r) {
#pragma unroll
    for (u32 c = 0; c < COLUMNS; ++c) acc[r][c] = sums[r * sums_step + c];
  }
  const A* at[COLUMNS];
  for (u32 c = 0; c < COLUMNS; ++c) at[c] = plane + places[c];
  typename L::mask inside;
  for (u32 i = 0; i < L::N; ++i) inside[i] = i < window.width % L::N ? -1 : 0;
  for (u64 y = 0; y < window.lines; ++y, kernel += window.width) {
    u64 x = 0;
    for (; x + L::N <= window.width; x += L::N) {
      V p[COLUMNS];
#pragma unroll
      for (u32 c = 0; c < COLUMNS; ++c) p[c] = *(const loose*)(at[c] + x);
#pragma unroll
      for (u32 r = 0; r < ROWS; ++r) {
        const V w = *(const loose*)(kernel + r * kernel_step + x);
#pragma unroll
        for (u32 c = 0; c < COLUMNS; ++c) acc[r][c] = Form::add(acc[r][c], w, p[c]);
      }
    }
    // Both without what lies behind the end: a NaN there is no part of the sum.
    if (x < window.width) {
      V p[COLUMNS];
#pragma unroll
      for (u32 c = 0; c < COLUMNS; ++c) p[c] = (V)((typename L::mask)*(const loose*)(at[c] + x) & inside);
#pragma unroll
      for (u32 r = 0; r < ROWS; ++r) {
        const V w = (V)((typename L::mask)*(const loose*)(kernel + r * kernel_step + x) & inside);
#pragma unroll
        for (u32 c = 0; c < COLUMNS; ++c) acc[r][c] = Form::add(acc[r][c], w, p[c]);
      }
    }
    for (u32 c = 0; c < COLUMNS; ++c) at[c] += window.pitch;
  }
#pragma unroll
  for (u32 r = 0; r < ROWS; ++r) {
#pragma unroll
    for (u32 c = 0; c < COLUMNS; ++c) sums[r * sums_step + c] = acc[r][c];
  }
}

/**
 * dst [images][groups * c_out][outputs] where the kernel [groups * c_out][c_in][lines][width] is larger than the result: vectors
 * run along the kernel, and `places` has the offset of each output in a plane.
 */
template <class T, class Form>
X_DEVICE void multiplyWindows(const Counts& n, u64 plane_size, const Window& window, u64 outputs, const u64* places,
                              const typename Form::Element* planes, const typename Form::Element* kernel, T* dst) {
  typedef typename Form::Element A;
  typedef Lanes<typename Form::Sum> S;
  // What a chunk of the kernel's lines takes fits a level 1 cache, beside the sums of some images.
  constexpr u64 IMAGES = 4, PLACES = 48, ELEMENTS = 16384 / sizeof(A);
  const u64 blocks = stepsTo(n.c_out, BLOCK_ROWS), some = stepsTo(n.images, IMAGES), parts = stepsTo(outputs, PLACES);
  const u64 size = window.lines * window.width, step = n.c_in * size;
  const u64 fitting = ELEMENTS / BLOCK_ROWS / window.width, most = fitting == 0 ? 1 : fitting;
  typename S::type sums[IMAGES][BLOCK_ROWS * PLACES];
  X_FOR_SPLIT(item, n.groups * blocks * some * parts) {
    const u64 part = item % parts * PLACES, image = item / parts % some * IMAGES;
    const u64 row = item / parts / some % blocks * BLOCK_ROWS, group = item / parts / some / blocks;
    const u64 rows = n.c_out - row < BLOCK_ROWS ? n.c_out - row : BLOCK_ROWS;
    const u64 images = n.images - image < IMAGES ? n.images - image : IMAGES;
    const u64 count = outputs - part < PLACES ? outputs - part : PLACES;
    for (u64 i = 0; i < images; ++i)
      for (u64 r = 0; r < rows; ++r)
        for (u64 j = 0; j < count; ++j) sums[i][r * PLACES + j] = typename S::type{};
    for (u64 c = 0; c < n.c_in; ++c) {
      for (u64 y = 0; y < window.lines; y += most) {
        const Window chunk{window.lines - y < most ? window.lines - y : most, window.width, window.pitch};
        const A* lines = kernel + (group * n.c_out + row) * step + c * size + y * window.width;
        for (u64 i = 0; i < images; ++i) {
          const A* plane = planes + (((image + i) * n.groups + group) * n.c_in + c) * plane_size + y * window.pitch;
          for (u64 r = 0; r < rows;) {
            r += withRows(rows - r, [&](auto height) {
              for (u64 k = 0; k < count; k += BLOCK_VECTORS) {
                withCount<BLOCK_VECTORS>(count - k, [&](auto columns) {
                  multiplyLines<height.value, columns.value, Form>(chunk, lines + r * step, step, plane, places + part + k,
                                                             sums[i] + r * PLACES + k, PLACES);
                });
              }
            });
          }
        }
      }
    }
    for (u64 i = 0; i < images; ++i) {
      for (u64 r = 0; r < rows; ++r) {
        T* to = dst + (((image + i) * n.groups + group) * n.c_out + row + r) * outputs + part;
        for (u64 j = 0; j < count; ++j) to[j] = from_acc<T>(total<typename Form::Sum>(sums[i][r * PLACES + j]));
      }
    }
  }
}

}  // namespace conv
#endif
