// Matrix products through cuBLAS. It chooses between its own kernels and cuBLASLt's by itself, so the latter has no path of
// its own here. TF32 and short sums only when the problem says `reduced`.
#include "blas.h"
#include "cublas_api.h"
#include "loaded_library.h"

namespace xhip {
namespace {

using cublas::Api;

using Loaded = LoadedLibrary<Api>;

Loaded& loaded() {
  return loadedOnce<Loaded>([](Loaded& entry) {
    Api& api = entry.api;
    // cublasGetStatusName came with 11.4, and with it nothing older is taken by mistake.
    entry.info = loadVendorLibrary(
        LibraryId::CuBlas,
        {X_SYMBOL(cublasGemmStridedBatchedEx, false), X_SYMBOL(cublasCreate_v2, false), X_SYMBOL(cublasDestroy_v2, false),
         X_SYMBOL(cublasSetStream_v2, false), X_SYMBOL(cublasSetWorkspace_v2, false), X_SYMBOL(cublasSetMathMode, false),
         X_SYMBOL(cublasGetProperty, false), X_SYMBOL(cublasGetStatusName, false)});
    if (!entry.info.available) return;
    int parts[3] = {0, 0, 0};
    for (int i = 0; i < 3; i++) (void)api.cublasGetProperty(cublas::kPropertyMajor + i, &parts[i]);
    entry.info.version = std::to_string(parts[0]) + "." + std::to_string(parts[1]) + "." + std::to_string(parts[2]);
  });
}

int datatype(ScalarType type) {
  static const int types[kScalarTypeCount] = {cublas::kBF16, cublas::kF16, cublas::kF32, cublas::kF64};
  return types[uint32_t(type)];
}

class CuBlas final : public BlasHandle {
 public:
  explicit CuBlas(const Api& api) : api_(api) {
    check("cublasCreate_v2", api_.cublasCreate_v2(&handle_), "a new handle");
    setMath(false);
  }
  ~CuBlas() override { (void)api_.cublasDestroy_v2(handle_); }

  void setWorkspace(DevicePtr pointer, size_t bytes) override {
    workspace_ = pointer;
    workspaceBytes_ = bytes;
    stream_ = nullptr;  // set again with the stream, which resets it
  }

  bool takes(ScalarType type, ScalarType outType) const override { return type == outType || widens(type, outType); }

  void gemm(Device&, const GemmProblem& problem, Stream stream) override {
    if (stream != stream_) {
      check("cublasSetStream_v2", api_.cublasSetStream_v2(handle_, stream), "");
      if (workspaceBytes_ > 0) {
        check("cublasSetWorkspace_v2",
              api_.cublasSetWorkspace_v2(handle_, reinterpret_cast<void*>(workspace_), workspaceBytes_), "");
      }
      stream_ = stream;
    }
    const bool isHalf = problem.type == ScalarType::F16;
    const bool shortType = isHalf || problem.type == ScalarType::BF16;
    if (shortType && problem.reduced != reducedMath_) setMath(problem.reduced);
    const ColumnMajor p(problem);
    int compute = cublas::kCompute32F;
    if (problem.type == ScalarType::F64) compute = cublas::kCompute64F;
    if (problem.type == ScalarType::F32 && problem.reduced) compute = cublas::kCompute32FFastTF32;
    if (problem.type == ScalarType::BF16 && problem.reduced) compute = cublas::kCompute32FFastBF16;
    if (isHalf && problem.reduced) compute = cublas::kCompute16F;
    // The scalars are of the compute type; 0x3c00 is 1 in f16.
    const float floats[] = {1, 0};
    const double doubles[] = {1, 0};
    const uint16_t halves[] = {0x3c00, 0};
    const void* alpha = &floats[0];
    const void* beta = &floats[1];
    if (compute == cublas::kCompute64F) alpha = &doubles[0], beta = &doubles[1];
    if (compute == cublas::kCompute16F) alpha = &halves[0], beta = &halves[1];
    const int type = datatype(problem.type), outType = datatype(problem.outType);
    auto operation = [](const GemmOperand& operand) { return operand.transposed ? cublas::kTranspose : cublas::kNone; };
    auto address = [](DevicePtr pointer) { return reinterpret_cast<void*>(pointer); };
    const int status = api_.cublasGemmStridedBatchedEx(
        handle_, operation(p.a), operation(p.b), p.m, p.n, p.k, alpha, address(p.a.pointer), type, int(p.a.ld),
        p.a.batchStride, address(p.b.pointer), type, int(p.b.ld), p.b.batchStride, beta, address(p.c), outType, p.ldc,
        p.strideC, p.batch, compute, cublas::kAlgoDefault);
    if (status != 0) check("cublasGemmStridedBatchedEx", status, describe(problem));
  }

 private:
  void setMath(bool reduced) {
    const int mode = reduced ? cublas::kDefaultMath : cublas::kDisallowReducedPrecisionReduction;
    check("cublasSetMathMode", api_.cublasSetMathMode(handle_, mode), "");
    reducedMath_ = reduced;
  }
  void check(const char* call, int status, const std::string& context) const {
    if (status == cublas::kSuccess) return;
    throwLibraryFailure(LibraryId::CuBlas, call, status, api_.cublasGetStatusName(status), context,
                        status == cublas::kAllocFailed);
  }

  const Api& api_;
  void* handle_ = nullptr;
  Stream stream_ = nullptr;
  DevicePtr workspace_ = 0;
  size_t workspaceBytes_ = 0;
  bool reducedMath_ = false;
};

}  // namespace

LibraryInfo findCuBlas() { return loaded().info; }

std::unique_ptr<BlasHandle> createCuBlas(Device&) {
  Loaded& library = loaded();
  requireLibrary(LibraryId::CuBlas, library.info);
  return std::make_unique<CuBlas>(library.api);
}

}  // namespace xhip
