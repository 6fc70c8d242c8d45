// A long short-term memory over whole sequences: what the inputs give to the gates is there for all steps, so that a step is
// one product of the last output with the recurrent weights. A block goes through sequences of its own and meets no other.
// On the host it takes four at once, for which weights are read once.
#pragma once

namespace recurrent {

/**
 * packed [blocks of units][hidden][gate][unit] of weights [gate, unit, hidden], zeros for units that there are not; of pairs
 * (lstm-units.h) half as many.
 */
template <class T>
X_DEVICE void packGates(u32 hidden, const T* weights, float* packed) {
  const u64 blocks = (hidden + LSTM_UNITS - 1) / LSTM_UNITS;
#if X_HOST
  const bool paired = lstm::ofPairs<T>();
  const u64 words = paired ? (hidden + 1) / 2 : hidden;
  X_FOR_SPLIT(item, blocks * LSTM_GATES) {
    const u64 block = item / LSTM_GATES, gate = item % LSTM_GATES, unit = block * LSTM_UNITS;
    const u32 units = hidden - unit < LSTM_UNITS ? hidden - unit : LSTM_UNITS;
    const T* from = weights + (gate * hidden + unit) * hidden;
    float* to = packed + block * words * LSTM_GATES * LSTM_UNITS + gate * LSTM_UNITS;
    if (paired) lstm::packPairs(from, hidden, units, (u32*)to);
    else lstm::packUnits(from, hidden, units, to);
  }
#else
  X_FOR_SPLIT(item, blocks * hidden) {
    const u64 unit = item / hidden * LSTM_UNITS, k = item % hidden;
    X_FOR_BLOCK(j, LSTM_GATES * LSTM_UNITS) {
      const u64 gate = j / LSTM_UNITS, own = unit + j % LSTM_UNITS;
      packed[item * LSTM_GATES * LSTM_UNITS + j] = own < hidden ? to_acc(weights[(gate * hidden + own) * hidden + k]) : 0.0f;
    }
  }
#endif
}

/** T: of the weights. Those of bf16 may be multiplied with outputs rounded to it. */
template <class T>
struct Lstm {
  u64 rows, steps;
  u32 hidden;
  bool reversed;
  const float* gates;   // [rows, steps, gate, hidden]: what the inputs give to input, forget, cell and output gate
  const float* bias;    // [gate, hidden], or null
  const float* packed;  // by packGates
  const float* h;       // [rows, hidden], as c: the state before
  const float* c;
  float* outputs;  // [rows, steps, hidden], as cells
  float* cells;
  float* open;  // [rows, steps, gate, hidden]: what the gates let through, for the gradient; or null

  X_DEVICE u64 at(u64 row, u64 step) const { return row * steps + (reversed ? steps - 1 - step : step); }
  /** The cell before a step. */
  X_DEVICE const float* before(u64 row, u64 step) const {
    return step == 0 ? c + row * hidden : cells + at(row, step - 1) * hidden;
  }

#if X_HOST
  typedef lstm::Units Units;
  typedef lstm::Loose Loose;

  /** ROWS sequences from `row`, whose outputs of the last step and of this one are held beside each other. */
  template <u32 ROWS>
  X_DEVICE void sequences(u64 row) const {
    alignas(64) float held[2][ROWS * lstm::PITCH] = {};
    const bool paired = lstm::ofPairs<T>();
    for (u32 r = 0; r < ROWS; ++r) lstm::hold(paired, held[0] + r * lstm::PITCH, 0, h + (row + r) * hidden, hidden);
    const u64 words = paired ? (hidden + 1) / 2 : hidden;
    for (u64 step = 0; step < steps; ++step) {
      const float* now = held[step % 2];
      float* next = held[1 - step % 2];
      for (u32 unit = 0; unit < hidden; unit += LSTM_UNITS) {
        Units sums[ROWS][LSTM_GATES];
        const float* w = packed + unit * words * LSTM_GATES;
        if (paired) lstm::multiplyPairs<ROWS>((const u32*)w, (const u32*)now, words, sums);
        else lstm::multiply<ROWS>(w, now, words, sums);
        const u32 left = hidden - unit;
        for (u32 r = 0; r < ROWS; ++r) {
          alignas(64) float output[LSTM_UNITS];
          if (left >= LSTM_UNITS) cell<true>(row + r, step, unit, LSTM_UNITS, sums[r], output);
          else cell<false>(row + r, step, unit, left, sums[r], output);
          lstm::hold(paired, next + r * lstm::PITCH, unit, output, left < LSTM_UNITS ? left : LSTM_UNITS);
        }
      }
    }
  }

  /** The units [unit, unit + units) of a sequence's step; WHOLE: LSTM_UNITS of them. */
  template <bool WHOLE>
  X_DEVICE void cell(u64 row, u64 step, u32 unit, u32 units, const Units (&sums)[LSTM_GATES], float* output) const {
    const u64 place = at(row, step), to = place * hidden + unit;
    const float* given = gates + place * LSTM_GATES * hidden + unit;
    alignas(64) float x[LSTM_GATES][LSTM_UNITS], state[LSTM_UNITS];
#pragma unroll
    for (u32 g = 0; g < LSTM_GATES; ++g) {
      const Units input = lstm::load<WHOLE>(given + g * hidden, units);
      *(Loose*)x[g] = sums[g] + (bias ? input + lstm::load<WHOLE>(bias + g * hidden + unit, units) : input);
    }
    *(Loose*)state = lstm::load<WHOLE>(before(row, step) + unit, units);
    for (u32 j = 0; j < LSTM_UNITS; ++j) {
      x[0][j] = lstm::gate<T>(x[0][j]), x[1][j] = lstm::gate<T>(x[1][j]), x[2][j] = lstm::tanh<T>(x[2][j]), x[3][j] = lstm::gate<T>(x[3][j]);
      state[j] = x[1][j] * state[j] + x[0][j] * x[2][j];
      output[j] = x[3][j] * lstm::tanh<T>(state[j]);
    }
    if (open)
      for (u32 g = 0; g < LSTM_GATES; ++g) lstm::store<WHOLE>(open + (place * LSTM_GATES + g) * hidden + unit, x[g], units);
    lstm::store<WHOLE>(cells + to, state, units);
    lstm::store<WHOLE>(outputs + to, output, units);
  }

  X_DEVICE void run() const {
    for (u64 row = split::begin(rows), end = split::end(rows); row < end;) {
      if (end - row >= 4) sequences<4>(row), row += 4;
      else if (end - row >= 2) sequences<2>(row), row += 2;
      else sequences<1>(row), row += 1;
    }
  }
#else
  /** A thread a gate of a unit, whose products follow the last step's outputs; then one a unit. */
  X_DEVICE void run() const {
    X_SHARED(float, held, LSTM_HIDDEN);
    X_SHARED(float, state, LSTM_HIDDEN);
    X_SHARED(float, given, LSTM_GATES * LSTM_HIDDEN);
    X_FOR_SPLIT(row, rows) {
      X_FOR_BLOCK(j, hidden) held[j] = h[row * hidden + j], state[j] = c[row * hidden + j];
      barrier();
      for (u64 step = 0; step < steps; ++step) {
        // Not known to be the same at every step: what follows from it would take scalar registers over all of them.
        const u32 units = opaque(hidden);
        const u64 place = opaque(at(row, step));
        X_FOR_BLOCK(item, LSTM_GATES * units) {
          // Neighbours are units, whose weights lie side by side.
          const u32 g = gateOf((u32)item, units), j = (u32)item - g * units;
          given[item] = product(packed + (j / LSTM_UNITS * units * LSTM_GATES + g) * LSTM_UNITS + j % LSTM_UNITS, held,
                                gates[place * LSTM_GATES * units + item] + (bias ? bias[item] : 0.0f));
        }
        barrier();
        X_FOR_BLOCK(j, units) {
          float x[LSTM_GATES];
#pragma unroll
          for (u32 g = 0; g < LSTM_GATES; ++g) x[g] = given[g * units + j];
          x[0] = sigmoid(x[0]), x[1] = sigmoid(x[1]), x[2] = m::tanh(x[2]), x[3] = sigmoid(x[3]);
          const float cell = x[1] * state[j] + x[0] * x[2];
          cells[place * units + j] = state[j] = cell;
          outputs[place * units + j] = held[j] = x[3] * m::tanh(cell);
          if (open) {
#pragma unroll
            for (u32 g = 0; g < LSTM_GATES; ++g) open[(place * LSTM_GATES + g) * units + j] = x[g];
          }
        }
        barrier();
      }
    }
  }

  /** sum + what weights, a unit's every LSTM_GATES * LSTM_UNITS, give with the outputs: many loads at once, in the order of one. */
  X_DEVICE float product(const float* w, const float* now, float sum) const {
    constexpr u32 APART = LSTM_GATES * LSTM_UNITS;
#pragma unroll 4
    for (u32 k = 0; k < hidden; ++k, w += APART) sum += now[k] * *w;
    return sum;
  }
#endif
};

}  // namespace recurrent
