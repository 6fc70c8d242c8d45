// A stand-in for librocblas with its real C interface: signatures.h is made from library-signatures.ts, so a definition that
// differs from the table does not compile. It refuses what a real one would and anything else that we do not mean to pass,
// multiplies, and writes each call to FAKE_LOG. FAKE_ROCBLAS=refuse makes every product fail.
#include "signatures.h"

#include "values.h"

namespace {

struct Handle {
  int magic = 0x0b1a5;
  void* stream = nullptr;
  void* workspace = nullptr;
  size_t workspaceBytes = 0;
  int atomics = 1;
};
int gHandles = 0;

Handle* live(void* handle) {
  auto* h = static_cast<Handle*>(handle);
  return h && h->magic == 0x0b1a5 ? h : nullptr;
}

bool formatOf(int type, Format* f) {
  switch (type) {
    case rocblas_datatype_f16_r: return *f = Format::F16, true;
    case rocblas_datatype_bf16_r: return *f = Format::BF16, true;
    case rocblas_datatype_f32_r: return *f = Format::F32, true;
    case rocblas_datatype_f64_r: return *f = Format::F64, true;
  }
  return false;
}

}  // namespace

extern "C" {

rocblas_status rocblas_create_handle(rocblas_handle* handle) {
  *handle = new Handle;
  note("create " + std::to_string(++gHandles));
  return rocblas_status_success;
}
rocblas_status rocblas_destroy_handle(rocblas_handle handle) {
  if (!live(handle)) return rocblas_status_invalid_handle;
  live(handle)->magic = 0;
  note("destroy " + std::to_string(--gHandles));
  return rocblas_status_success;
}
rocblas_status rocblas_set_stream(rocblas_handle handle, hipStream_t stream) {
  if (!live(handle) || !stream) return rocblas_status_invalid_handle;
  live(handle)->stream = stream;
  note("stream");
  return rocblas_status_success;
}
rocblas_status rocblas_set_workspace(rocblas_handle handle, void* address, size_t bytes) {
  if (!live(handle)) return rocblas_status_invalid_handle;
  live(handle)->workspace = address;
  live(handle)->workspaceBytes = bytes;
  // It is writable to its end.
  std::memset(address, 0x5a, bytes);
  note("workspace " + std::to_string(bytes));
  return rocblas_status_success;
}
rocblas_status rocblas_set_atomics_mode(rocblas_handle handle, rocblas_atomics_mode mode) {
  if (!live(handle)) return rocblas_status_invalid_handle;
  live(handle)->atomics = mode;
  return rocblas_status_success;
}
rocblas_status rocblas_get_version_string(char* text, size_t bytes) {
  return std::snprintf(text, bytes, "4.2.1.fake"), rocblas_status_success;
}
const char* rocblas_status_to_string(rocblas_status status) {
  return status == rocblas_status_invalid_value ? "rocblas_status_invalid_value" : "rocblas_status_other";
}

rocblas_status rocblas_gemm_strided_batched_ex(
    rocblas_handle handle, rocblas_operation transA, rocblas_operation transB, rocblas_int m, rocblas_int n, rocblas_int k,
    const void* alpha, const void* a, rocblas_datatype aType, rocblas_int lda, rocblas_stride strideA, const void* b,
    rocblas_datatype bType, rocblas_int ldb, rocblas_stride strideB, const void* beta, const void* c, rocblas_datatype cType,
    rocblas_int ldc, rocblas_stride strideC, void* d, rocblas_datatype dType, rocblas_int ldd, rocblas_stride strideD,
    rocblas_int batch, rocblas_datatype computeType, rocblas_gemm_algo algo, int32_t solution, uint32_t flags) {
  Handle* h = live(handle);
  if (!h || !h->stream) return rocblas_status_invalid_handle;
  const char* mode = std::getenv("FAKE_ROCBLAS");
  if (mode && !std::strcmp(mode, "refuse")) return rocblas_status_invalid_value;
  if (h->atomics != rocblas_atomics_not_allowed || !h->workspace) return rocblas_status_invalid_value;
  auto isOperation = [](int t) { return t == rocblas_operation_none || t == rocblas_operation_transpose; };
  if (!isOperation(transA) || !isOperation(transB)) return rocblas_status_invalid_value;
  if (m < 1 || n < 1 || k < 1 || batch < 1) return rocblas_status_invalid_size;
  const bool ta = transA == rocblas_operation_transpose;
  const bool tb = transB == rocblas_operation_transpose;
  if (lda < (ta ? k : m) || ldb < (tb ? n : k) || ldc < m || ldd < m) return rocblas_status_invalid_size;
  Format f;
  if (!formatOf(aType, &f) || bType != aType || cType != aType || dType != aType) return rocblas_status_invalid_value;
  const bool isDouble = f == Format::F64;
  if (computeType != (isDouble ? rocblas_datatype_f64_r : rocblas_datatype_f32_r)) return rocblas_status_invalid_value;
  if (algo != rocblas_gemm_algo_standard || solution != 0 || flags != rocblas_gemm_flags_none) return rocblas_status_invalid_value;
  if (c != d || ldc != ldd || strideC != strideD) return rocblas_status_invalid_pointer;
  const double scale = load(isDouble ? Format::F64 : Format::F32, alpha, 0);
  if (scale != 1 || load(isDouble ? Format::F64 : Format::F32, beta, 0) != 0) return rocblas_status_invalid_value;
  for (int64_t i = 0; i < batch; i++) {
    for (int64_t column = 0; column < n; column++) {
      for (int64_t row = 0; row < m; row++) {
        double sum = 0;
        for (int64_t x = 0; x < k; x++) {
          sum += load(f, a, i * strideA + (ta ? row * lda + x : x * lda + row)) *
                 load(f, b, i * strideB + (tb ? x * ldb + column : column * ldb + x));
        }
        store(f, d, i * strideD + column * ldd + row, sum);
      }
    }
  }
  char line[256];
  std::snprintf(line, sizeof line, "gemm %d %c%c m%d n%d k%d lda%d/%lld ldb%d/%lld ldc%d/%lld x%d", aType, ta ? 'T' : 'N',
                tb ? 'T' : 'N', m, n, k, lda, (long long)strideA, ldb, (long long)strideB, ldc, (long long)strideC, batch);
  note(line);
  return rocblas_status_success;
}

}  // extern "C"
