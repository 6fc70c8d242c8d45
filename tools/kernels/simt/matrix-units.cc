// gemm_mma_* and attention_* of AMD GPUs in a workgroup on the host, against plain sums in f64: one line a case, "ok" or
// "wrong". See simt.h for the macros that choose the chip.
#include "simt.h"

#include "../../../kernels/shared/mma.h"
#include "../../../kernels/shared/rough.h"

namespace gemm {
template <class T>
struct Operand {
  const T* data;
  u64 batch, row, column;
  Operand of(u64 b) const { return {data + b * batch, batch, row, column}; }
};
}  // namespace gemm

#include "../../../kernels/gemm/mma.h"
#include "../../../kernels/attention/problem.h"
#include "../../../kernels/attention/slabs.h"
#include "../../../kernels/attention/flash.h"

template <class T>
constexpr const char* NAME = sameType<T, f16> ? "f16" : "bf16";

template <class T>
std::vector<T> randomNumbers(u64 n) {
  static u32 state = 1;
  std::vector<T> numbers(n + 8);
  for (T& number : numbers) {
    state = state * 1664525 + 1013904223;
    number = from_acc<T>((float)(state >> 8) / (1 << 23) - 1.0f);
  }
  return numbers;
}

// What cases read begins at 16 bytes, as allocations on devices do.
template <class T>
struct Buffer {
  std::vector<T> numbers;
  explicit Buffer(u64 n) : numbers(randomNumbers<T>(n)) {}
  T* data() { return (T*)(((uintptr_t)numbers.data() + 15) & ~(uintptr_t)15); }
};

bool report(const char* what, const char* type, double worst, double allowed) {
  const bool ok = worst <= allowed;  // false for NaN
  std::printf("%s %s: error %.2g of %.2g, %s\n", what, type, worst, allowed, ok ? "ok" : "wrong");
  return ok;
}

template <class T>
bool product(u64 b, u64 m, u64 n, u64 k, bool leftAlong, bool rightAlong) {
  const auto padded = [](u64 size) { return (size + 7) / 8 * 8; };
  const u64 ls = padded(leftAlong ? k : m), rs = padded(rightAlong ? k : n);
  const u64 lb = ls * (leftAlong ? m : k), rb = rs * (rightAlong ? n : k);
  Buffer<T> left(lb * b), right(rb * b), out(b * m * n);
  const gemm::Operand<T> l{left.data(), lb, leftAlong ? ls : 1, leftAlong ? 1 : ls};
  const gemm::Operand<T> r{right.data(), rb, rightAlong ? 1 : rs, rightAlong ? rs : 1};
  T* result = out.data();
  runBlock([=] { gemm::multiplyMma(b, m, n, k, l, r, result); });
  double worst = 0;
  for (u64 i = 0; i < b * m * n; ++i) {
    const u64 batch = i / (m * n), row = i / n % m, column = i % n;
    double sum = 0;
    for (u64 d = 0; d < k; ++d)
      sum += (double)to_acc(l.of(batch).data[row * l.row + d * l.column]) * to_acc(r.of(batch).data[d * r.row + column * r.column]);
    const double error = std::fabs(sum - to_acc(result[i])) / (1 + std::fabs(sum));
    if (!(error <= worst)) worst = error;
  }
  char what[80];
  std::snprintf(what, sizeof what, "product %zu x %zux%zux%zu %d%d", (size_t)b, (size_t)m, (size_t)n, (size_t)k, leftAlong, rightAlong);
  return report(what, NAME<T>, worst, sameType<T, f16> ? 1e-3 : 8e-3);
}

template <u32 D, class T>
bool attend(u64 b, u64 heads, u64 kvHeads, u32 seq, u32 kv, bool causal) {
  Buffer<T> q(b * heads * seq * D), k(b * kvHeads * kv * D), v(b * kvHeads * kv * D), out(b * heads * seq * D);
  const attention::Problem<T> p{b, heads, kvHeads, seq, kv, {q.data(), heads * seq * D, D, heads * D},
                                {k.data(), kvHeads * kv * D, D, kvHeads * D}, {v.data(), kvHeads * kv * D, D, kvHeads * D},
                                out.data(), 0.3f, causal};
  runBlock([=] { attention::attendMma<D>(p); });
  double worst = 0;
  for (u64 i = 0; i < b * heads * seq; ++i) {
    const u32 row = (u32)(i % seq), seen = p.visible(row);
    const u64 batch = i / seq / heads, head = i / seq % heads, kvHead = head / (heads / kvHeads);
    const T* query = p.q.at(batch, head) + row * p.q.row;
    std::vector<double> weights(seen);
    double sum = 0;
    for (u32 j = 0; j < seen; ++j) {
      double dot = 0;
      for (u32 e = 0; e < D; ++e) dot += (double)to_acc(query[e]) * to_acc(p.k.at(batch, kvHead)[j * p.k.row + e]);
      sum += weights[j] = std::exp(dot * p.scale);
    }
    for (u32 e = 0; e < D; ++e) {
      double value = 0;
      for (u32 j = 0; j < seen; ++j) value += weights[j] * to_acc(p.v.at(batch, kvHead)[j * p.v.row + e]);
      const float got = to_acc(p.out[i * D + e]);
      // A query that sees nothing gives NaN.
      const double error = seen == 0 ? (std::isnan(got) ? 0.0 : NAN) : std::fabs(value / sum - got);
      if (!(error <= worst)) worst = error;
    }
  }
  char what[80];
  std::snprintf(what, sizeof what, "attention %u, %zu x %zu/%zu, %ux%u %d", D, (size_t)b, (size_t)heads, (size_t)kvHeads, seq, kv, causal);
  return report(what, NAME<T>, worst, sameType<T, f16> ? 1e-3 : 8e-3);
}

int main() {
  bool ok = true;
  for (u32 way = 0; way < 4; ++way) {
    ok &= product<f16>(1, 130, 140, 40, way & 1, way & 2);
    ok &= product<bf16>(2, 17, 33, 70, way & 1, way & 2);
  }
  ok &= attend<64, f16>(1, 2, 1, 130, 130, true);
  ok &= attend<128, bf16>(1, 2, 2, 40, 100, true);
  ok &= attend<128, f16>(2, 2, 1, 20, 33, false);
  ok &= attend<64, bf16>(1, 1, 1, 140, 70, true);
  return ok ? 0 : 1;
}
