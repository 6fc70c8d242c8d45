// Matrix products through a vendor's BLAS: the problem in our terms (row-major, as candle's matmul has it), its
// column-major form, and one handle a library and device.
#pragma once

#include <memory>

#include "device.h"
#include "vendor_library.h"

namespace xhip {

enum class ScalarType : uint32_t { BF16 = 0, F16 = 1, F32 = 2, F64 = 3 };
constexpr uint32_t kScalarTypeCount = 4;

inline size_t bytesOf(ScalarType type) { return type == ScalarType::F64 ? 8 : type == ScalarType::F32 ? 4 : 2; }
inline const char* nameOf(ScalarType type) {
  static const char* const names[kScalarTypeCount] = {"bf16", "f16", "f32", "f64"};
  return names[uint32_t(type)];
}

// A batch of matrices, strides in elements. Row-major with `ld` elements from row to row, or, when `transposed`, stored
// column by column with `ld` elements from column to column.
struct GemmOperand {
  DevicePtr pointer = 0;
  bool transposed = false;
  int64_t ld = 0;
  int64_t batchStride = 0;
};

// out [batch, m, n], contiguous, = lhs [batch, m, k] times rhs [batch, k, n]; every size is at least 1 and fits 31 bits.
// f16 and bf16 accumulate in f32; `reduced` lets f32 products run in TF32 (or bf16), f16 and bf16 sums in the short type.
struct GemmProblem {
  ScalarType type = ScalarType::F32;
  ScalarType outType = ScalarType::F32;  // of `type`, or f32 for bf16 operands
  bool reduced = false;
  int64_t batch = 0;
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  GemmOperand lhs;
  GemmOperand rhs;
  DevicePtr out = 0;
};

// The same product as BLAS takes it. A row-major matrix is its transpose in column-major order, so the operands change
// places: out^T [n, m] = rhs^T [n, k] lhs^T [k, m].
struct ColumnMajor {
  explicit ColumnMajor(const GemmProblem& p)
      : m(int(p.n)), n(int(p.m)), k(int(p.k)), batch(int(p.batch)), a(p.rhs), b(p.lhs), c(p.out), ldc(int(p.n)),
        strideC(p.m * p.n) {}
  int m, n, k, batch;
  const GemmOperand& a;
  const GemmOperand& b;
  DevicePtr c;
  int ldc;
  int64_t strideC;
};

std::string describe(const GemmProblem&);

// f16 and bf16 into f32, which GPUs' libraries have beside results of the operands' type.
inline bool widens(ScalarType type, ScalarType outType) {
  return outType == ScalarType::F32 && (type == ScalarType::F16 || type == ScalarType::BF16);
}

class BlasHandle : public VendorHandle {
 public:
  // Enqueues the product on the stream. Throws HipFailure.
  virtual void gemm(Device& device, const GemmProblem& problem, Stream stream) = 0;
  // Memory of the device that the library may use while a product runs; it must live as long as the handle.
  virtual void setWorkspace(DevicePtr, size_t) {}
  // Whether the library multiplies these: every combination of equal types, unless it says otherwise.
  virtual bool takes(ScalarType type, ScalarType outType) const { return type == outType; }
};

std::unique_ptr<BlasHandle> createRocBlas(Device&);
std::unique_ptr<BlasHandle> createHipBlasLt(Device&);
std::unique_ptr<BlasHandle> createCuBlas(Device&);
std::unique_ptr<BlasHandle> createOpenBlas(Device&);

}  // namespace xhip
