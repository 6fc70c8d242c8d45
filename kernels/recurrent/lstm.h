// A long short-term memory over whole sequences: what the inputs give to the gates is there for all steps, so that a step is
// one product of the last output with the recurrent weights. A block goes through sequences of its own and meets no other.
// On the host it takes four at once, for which weights are read once.
#pragma once

namespace recurrent {

constexpr u32 LSTM_GATES = 4, LSTM_HIDDEN = 1024;
/** Units whose weights lie side by side. */
#if !X_HOST
constexpr u32 LSTM_UNITS = 32;
#elif defined(__AVX512F__)
constexpr u32 LSTM_UNITS = 16;
#else
constexpr u32 LSTM_UNITS = 8;
#endif

/** packed [blocks of units][hidden][gate][unit] of weights [gate, unit, hidden], zeros for units that there are not. */
X_DEVICE void packGates(u32 hidden, const float* weights, float* packed) {
  const u64 blocks = (hidden + LSTM_UNITS - 1) / LSTM_UNITS;
  X_FOR_SPLIT(item, blocks * hidden) {
    const u64 unit = item / hidden * LSTM_UNITS, k = item % hidden;
    X_FOR_BLOCK(j, LSTM_GATES * LSTM_UNITS) {
      const u64 gate = j / LSTM_UNITS, own = unit + j % LSTM_UNITS;
      packed[item * LSTM_GATES * LSTM_UNITS + j] = own < hidden ? weights[(gate * hidden + own) * hidden + k] : 0.0f;
    }
  }
}

struct Lstm {
  u64 rows, steps;
  u32 hidden;
  bool reversed;
  const float* gates;   // [rows, steps, gate, hidden]: input, forget, cell and output gate, before the recurrent part
  const float* packed;  // by packGates
  const float* h;       // [rows, hidden], as c: the state before
  const float* c;
  float* outputs;  // [rows, steps, hidden], as cells
  float* cells;

  X_DEVICE u64 at(u64 row, u64 step) const { return row * steps + (reversed ? steps - 1 - step : step); }
  /** The cell before a step. */
  X_DEVICE const float* before(u64 row, u64 step) const {
    return step == 0 ? c + row * hidden : cells + at(row, step - 1) * hidden;
  }

#if X_HOST
  typedef float Units __attribute__((vector_size(LSTM_UNITS * 4)));
  typedef float Loose __attribute__((vector_size(LSTM_UNITS * 4), aligned(4), may_alias));

  /** Of a sequence's output in the thread's memory to that of the next; not 4 KiB, which share places of the cache. */
  static constexpr u32 PITCH = LSTM_HIDDEN + LSTM_UNITS;

  /** ROWS sequences from `row`, with their outputs as [ROWS][hidden] beside. */
  template <u32 ROWS>
  X_DEVICE void sequences(u64 row) const {
    alignas(64) float held[2][ROWS * PITCH];
    for (u32 r = 0; r < ROWS; ++r)
      for (u32 k = 0; k < hidden; ++k) held[0][r * PITCH + k] = h[(row + r) * hidden + k];
    for (u64 step = 0; step < steps; ++step) {
      const float* now = held[step % 2];
      float* next = held[1 - step % 2];
      for (u32 unit = 0; unit < hidden; unit += LSTM_UNITS) {
        Units sums[ROWS][LSTM_GATES] = {};
        const float* w = packed + (u64)unit * hidden * LSTM_GATES;
        for (u32 k = 0; k < hidden; ++k, w += LSTM_GATES * LSTM_UNITS) {
#pragma unroll
          for (u32 g = 0; g < LSTM_GATES; ++g) {
            const Units x = *(const Loose*)(w + g * LSTM_UNITS);
#pragma unroll
            for (u32 r = 0; r < ROWS; ++r) sums[r][g] += now[r * PITCH + k] * x;
          }
        }
        const u32 left = hidden - unit;
        for (u32 r = 0; r < ROWS; ++r) {
          float* to = next + r * PITCH + unit;
          if (left >= LSTM_UNITS) cell<true>(row + r, step, unit, LSTM_UNITS, sums[r], to);
          else cell<false>(row + r, step, unit, left, sums[r], to);
        }
      }
    }
  }

  /** The units [unit, unit + units) of a sequence's step; WHOLE: LSTM_UNITS of them. */
  template <bool WHOLE>
  X_DEVICE void cell(u64 row, u64 step, u32 unit, u32 units, const Units (&sums)[LSTM_GATES], float* next) const {
    const u64 place = at(row, step), to = place * hidden + unit;
    const float* given = gates + place * LSTM_GATES * hidden + unit;
    alignas(64) float x[LSTM_GATES][LSTM_UNITS], state[LSTM_UNITS], output[LSTM_UNITS];
#pragma unroll
    for (u32 g = 0; g < LSTM_GATES; ++g) *(Loose*)x[g] = sums[g] + load<WHOLE>(given + g * hidden, units);
    *(Loose*)state = load<WHOLE>(before(row, step) + unit, units);
    for (u32 j = 0; j < LSTM_UNITS; ++j) {
      state[j] = sigmoid(x[1][j]) * state[j] + sigmoid(x[0][j]) * m::tanh(x[2][j]);
      output[j] = sigmoid(x[3][j]) * m::tanh(state[j]);
    }
    store<WHOLE>(cells + to, state, units);
    store<WHOLE>(outputs + to, output, units);
    store<WHOLE>(next, output, units);
  }

  /** Units that lie side by side, zeros from `count` on. Loops would make gathers of them. */
  template <bool WHOLE>
  X_DEVICE static Units load(const float* from, u32 count) {
    if (WHOLE) return *(const Loose*)from;
    Units x = {};
    for (u32 j = 0; j < count; ++j) x[j] = from[j];
    return x;
  }
  template <bool WHOLE>
  X_DEVICE static void store(float* to, const float* units, u32 count) {
    if (WHOLE) *(Loose*)to = *(const Loose*)units;
    else
      for (u32 j = 0; j < count; ++j) to[j] = units[j];
  }

  X_DEVICE void run() const {
    for (u64 row = split::begin(rows), end = split::end(rows); row < end;) {
      if (end - row >= 4) sequences<4>(row), row += 4;
      else if (end - row >= 2) sequences<2>(row), row += 2;
      else sequences<1>(row), row += 1;
    }
  }
#else
  X_DEVICE void run() const {
    X_SHARED(float, held, 2 * LSTM_HIDDEN);
    X_FOR_SPLIT(row, rows) {
      X_FOR_BLOCK(j, hidden) held[j] = h[row * hidden + j];
      barrier();
      for (u64 step = 0; step < steps; ++step) {
        const float* now = held + step % 2 * LSTM_HIDDEN;
        float* next = held + (1 - step % 2) * LSTM_HIDDEN;
        const u64 place = at(row, step);
        const float *given = gates + place * LSTM_GATES * hidden, *last = before(row, step);
        X_FOR_BLOCK(j, hidden) {
          float x[LSTM_GATES];
#pragma unroll
          for (u32 g = 0; g < LSTM_GATES; ++g) x[g] = given[g * hidden + j];
          const float* w = packed + j / LSTM_UNITS * LSTM_UNITS * hidden * LSTM_GATES + j % LSTM_UNITS;
          for (u32 k = 0; k < hidden; ++k, w += LSTM_GATES * LSTM_UNITS) {
#pragma unroll
            for (u32 g = 0; g < LSTM_GATES; ++g) x[g] += now[k] * w[g * LSTM_UNITS];
          }
          const float state = sigmoid(x[1]) * last[j] + sigmoid(x[0]) * m::tanh(x[2]);
          cells[place * hidden + j] = state;
          outputs[place * hidden + j] = next[j] = sigmoid(x[3]) * m::tanh(state);
        }
        barrier();
      }
    }
  }
#endif
};

}  // namespace recurrent
