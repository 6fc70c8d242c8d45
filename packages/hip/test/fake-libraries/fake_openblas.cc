// A stand-in for libopenblas of the kind that Debian does not ship: with bf16 products, and built without threads when
// FAKE_OPENBLAS=sequential. Each product notes its type and sizes; two at a time in a sequential build are noted too.
#include <atomic>

#include "values.h"

namespace {

std::atomic<int> gInside{0};

void multiply(Format in, Format out, int order, int transA, int transB, int m, int n, int k, double alpha, const void* a, int lda, const void* b,
              int ldb, double beta, void* c, int ldc) {
  if (++gInside > 1) note("concurrent");
  const bool valid = order == 102 && (transA == 111 || transA == 112) && (transB == 111 || transB == 112) && alpha == 1 && beta == 0;
  const bool ta = transA == 112;
  const bool tb = transB == 112;
  if (!valid || lda < (ta ? k : m) || ldb < (tb ? n : k) || ldc < m) note("refused");
  for (int64_t column = 0; column < n; column++) {
    for (int64_t row = 0; row < m; row++) {
      double sum = 0;
      for (int64_t x = 0; x < k; x++) {
        sum += load(in, a, ta ? row * lda + x : x * lda + row) * load(in, b, tb ? x * ldb + column : column * ldb + x);
      }
      store(out, c, column * ldc + row, sum);
    }
  }
  char line[64];
  std::snprintf(line, sizeof line, "%s %d %d %d", in == Format::BF16 ? "bf16" : in == Format::F32 ? "f32" : "f64", m, n, k);
  note(line);
  --gInside;
}

}  // namespace

#define API extern "C" __attribute__((visibility("default")))

API void cblas_sgemm(int order, int ta, int tb, int m, int n, int k, float alpha, const float* a, int lda, const float* b, int ldb, float beta,
                     float* c, int ldc) {
  multiply(Format::F32, Format::F32, order, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
API void cblas_dgemm(int order, int ta, int tb, int m, int n, int k, double alpha, const double* a, int lda, const double* b, int ldb, double beta,
                     double* c, int ldc) {
  multiply(Format::F64, Format::F64, order, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
API void cblas_sbgemm(int order, int ta, int tb, int m, int n, int k, float alpha, const uint16_t* a, int lda, const uint16_t* b, int ldb, float beta,
                      float* c, int ldc) {
  multiply(Format::BF16, Format::F32, order, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
API void openblas_set_num_threads(int count) { note("threads " + std::to_string(count)); }
API int openblas_get_parallel() {
  const char* mode = std::getenv("FAKE_OPENBLAS");
  return mode && !std::strcmp(mode, "sequential") ? 0 : 1;
}
API const char* openblas_get_config() { return "OpenBLAS 0.3.99 FAKE"; }
