// What the outputs' gradients of a long short-term memory are worth to its gates, over whole sequences (backpropagation through time):
// from the last step to the first one product of the next step's gates' gradients with the recurrent weights.
// A block goes through sequences of its own, as in recurrent/lstm.h; on the host through four at once.
#pragma once

namespace recurrent {

struct LstmGradient {
  u64 rows, steps;
  u32 hidden;
  bool reversed;
  const float* open;     // [rows, steps, gate, hidden]: what the gates let through
  const float* cells;    // [rows, steps, hidden]
  const float* weights;  // [gate, hidden, hidden]
  const float* c;        // [rows, hidden], the cells before
  const float* grad;     // [rows, steps, hidden], of the outputs
  float* gates;          // [rows, steps, gate, hidden]: the gradients of all that the gates were given

  X_DEVICE u64 at(u64 row, u64 step) const { return row * steps + (reversed ? steps - 1 - step : step); }

#if X_HOST
  /** Vectors of units at a time. */
  static constexpr u32 VECTORS = 4, AT_ONCE = VECTORS * LSTM_UNITS;

  /** outputs[row][units] = gradients of `units` outputs, which are side by side, and what the next step's gates add. */
  template <u32 ROWS, u32 COUNT>
  X_DEVICE void outputsOf(u64 row, u64 step, u32 unit, const float* next, float (&outputs)[ROWS][AT_ONCE]) const {
    lstm::Units acc[ROWS][COUNT];
#pragma unroll
    for (u32 r = 0; r < ROWS; ++r)
#pragma unroll
      for (u32 v = 0; v < COUNT; ++v)
        acc[r][v] = *(const lstm::Loose*)(grad + at(row + r, step) * hidden + unit + v * LSTM_UNITS);
    const float* w = weights + unit;
    for (u64 k = 0; k < (next ? (u64)LSTM_GATES * hidden : 0); ++k, w += hidden) {
      lstm::Units x[COUNT];
#pragma unroll
      for (u32 v = 0; v < COUNT; ++v) x[v] = *(const lstm::Loose*)(w + v * LSTM_UNITS);
#pragma unroll
      for (u32 r = 0; r < ROWS; ++r)
#pragma unroll
        for (u32 v = 0; v < COUNT; ++v) acc[r][v] += next[r * PITCH + k] * x[v];
    }
#pragma unroll
    for (u32 r = 0; r < ROWS; ++r)
#pragma unroll
      for (u32 v = 0; v < COUNT; ++v) *(lstm::Loose*)(outputs[r] + v * LSTM_UNITS) = acc[r][v];
  }
  template <u32 ROWS>
  X_DEVICE void lastOutputs(u64 row, u64 step, u32 unit, const float* next, float (&outputs)[ROWS][AT_ONCE]) const {
    for (u32 r = 0; r < ROWS; ++r) {
      for (u32 j = unit; j < hidden; ++j) {
        float sum = grad[at(row + r, step) * hidden + j];
        for (u64 k = 0; k < (next ? (u64)LSTM_GATES * hidden : 0); ++k) sum += next[r * PITCH + k] * weights[k * hidden + j];
        outputs[r][j - unit] = sum;
      }
    }
  }

  static constexpr u64 PITCH = LSTM_GATES * LSTM_HIDDEN + LSTM_UNITS;

  typedef float Own[LSTM_UNITS];

  /**
   * The gradients of some units' gates at a step, also into `next`; `change` is that of their cells, and becomes that of the cells
   * before.
   */
  template <bool WHOLE>
  X_DEVICE void retreat(u64 row, u64 step, u32 unit, u32 units, const float* output, float* change, float* next) const {
    const u64 place = at(row, step), first = place * LSTM_GATES * hidden + unit;
    float* to = gates + first;
    alignas(64) Own x[LSTM_GATES], before, cell;
    for (u32 g = 0; g < LSTM_GATES; ++g) *(lstm::Loose*)x[g] = lstm::load<WHOLE>(open + first + g * hidden, units);
    *(lstm::Loose*)before = lstm::load<WHOLE>((step == 0 ? c + row * hidden : cells + at(row, step - 1) * hidden) + unit, units);
    *(lstm::Loose*)cell = lstm::load<WHOLE>(cells + place * hidden + unit, units);
    for (u32 j = 0; j < LSTM_UNITS; ++j) {
      const float in = x[0][j], forget = x[1][j], fresh = x[2][j], out = x[3][j], state = lstm::tanh<float>(cell[j]);
      const float own = change[j] + output[j] * out * (1.0f - state * state);
      x[0][j] = own * fresh * in * (1.0f - in);
      x[1][j] = own * before[j] * forget * (1.0f - forget);
      x[2][j] = own * in * (1.0f - fresh * fresh);
      x[3][j] = output[j] * state * out * (1.0f - out);
      change[j] = own * forget;
    }
    for (u32 g = 0; g < LSTM_GATES; ++g) {
      lstm::store<WHOLE>(to + g * hidden, x[g], units);
      lstm::store<WHOLE>(next + g * hidden, x[g], units);
    }
  }

  template <u32 ROWS>
  X_DEVICE void sequences(u64 row) const {
    alignas(64) float held[2][ROWS * PITCH], change[ROWS][LSTM_HIDDEN] = {}, outputs[ROWS][AT_ONCE];
    for (u64 step = steps; step-- > 0;) {
      const float* next = step + 1 < steps ? held[step % 2] : nullptr;
      float* own = held[1 - step % 2];
      for (u32 unit = 0; unit < hidden;) {
        const u32 left = hidden - unit;
        u32 count = left < LSTM_UNITS ? left : LSTM_UNITS;
        if (left >= AT_ONCE) outputsOf<ROWS, VECTORS>(row, step, unit, next, outputs), count = AT_ONCE;
        else if (left >= LSTM_UNITS) outputsOf<ROWS, 1>(row, step, unit, next, outputs);
        else lastOutputs(row, step, unit, next, outputs);
        for (u32 r = 0; r < ROWS; ++r) {
          for (u32 j = 0; j < count; j += LSTM_UNITS) {
            float *changed = change[r] + unit + j, *gate = own + r * PITCH + unit + j;
            if (count >= LSTM_UNITS) retreat<true>(row + r, step, unit + j, LSTM_UNITS, outputs[r] + j, changed, gate);
            else retreat<false>(row + r, step, unit, count, outputs[r], changed, gate);
          }
        }
        unit += count;
      }
    }
  }

  X_DEVICE void run() const {
    for (u64 row = split::begin(rows), end = split::end(rows); row < end;) {
      if (end - row >= 4) sequences<4>(row), row += 4;
      else sequences<1>(row), row += 1;
    }
  }
#else
  /**
   * The gradients of a unit's gates at a step, also into `next`, rows of which are `apart`; `change` is that of the cell, and
   * becomes that of the cell before.
   */
  X_DEVICE void retreat(u64 row, u64 step, u32 unit, float output, float& change, float* next, u64 apart) const {
    const u64 place = at(row, step), first = place * LSTM_GATES * hidden + unit;
    const float in = open[first], forget = open[first + hidden], fresh = open[first + 2 * hidden], out = open[first + 3 * hidden];
    float* x = gates + first;
    const float before = step == 0 ? c[row * hidden + unit] : cells[at(row, step - 1) * hidden + unit];
    const float state = m::tanh(cells[place * hidden + unit]), cell = change + output * out * (1.0f - state * state);
    x[0] = next[0] = cell * fresh * in * (1.0f - in);
    x[hidden] = next[apart] = cell * before * forget * (1.0f - forget);
    x[2 * hidden] = next[2 * apart] = cell * in * (1.0f - fresh * fresh);
    x[3 * hidden] = next[3 * apart] = output * state * out * (1.0f - out);
    change = cell * forget;
  }

  /** A thread a unit and a part of what the next step's gates add to its output; then one a unit. */
  X_DEVICE void run() const {
    X_SHARED(float, held, LSTM_GATES * LSTM_HIDDEN);
    X_SHARED(float, part, LSTM_GATES * LSTM_HIDDEN);
    X_SHARED(float, change, LSTM_HIDDEN);
    X_FOR_SPLIT(row, rows) {
      X_FOR_BLOCK(j, hidden) change[j] = 0.0f;
      for (u64 step = steps; step-- > 0;) {
        // As in recurrent/lstm.h.
        const u32 units = opaque(hidden);
        if (step + 1 < steps) {
          // Neighbours are units, whose weights lie side by side; a gate's rows are a part.
          X_FOR_BLOCK(item, LSTM_GATES * units) {
            const u32 g = gateOf((u32)item, units), j = (u32)item - g * units;
            part[item] = product(weights + (u64)g * units * units + j, held + g * units);
          }
          barrier();
        }
        X_FOR_BLOCK(j, units) {
          float output = grad[at(row, step) * units + j];
          if (step + 1 < steps) output += (part[j] + part[units + j]) + (part[2 * units + j] + part[3 * units + j]);
          retreat(row, step, (u32)j, output, change[j], held + j, units);
        }
        barrier();
      }
    }
  }

  /** What `hidden` rows of weights give with gates' gradients: many loads at once. */
  X_DEVICE float product(const float* w, const float* next) const {
    float sum = 0.0f;
#pragma unroll 4
    for (u32 k = 0; k < hidden; ++k, w += hidden) sum += next[k] * *w;
    return sum;
  }
#endif
};

}  // namespace recurrent
