// Matrix products through rocBLAS. Atomics are switched off, so that a product gives the same bits each time; memory for
// split products is ours when the caller sets a workspace, which also keeps captured graphs free of allocations.
#include "blas.h"
#include "loaded_library.h"
#include "rocblas_api.h"

namespace xhip {
namespace {

using rocblas::Api;

using Loaded = LoadedLibrary<Api>;

Loaded& loaded() {
  return loadedOnce<Loaded>([](Loaded& entry) {
    Api& api = entry.api;
    entry.info = loadVendorLibrary(
        LibraryId::RocBlas,
        {X_SYMBOL(rocblas_gemm_strided_batched_ex, false), X_SYMBOL(rocblas_create_handle, false),
         X_SYMBOL(rocblas_destroy_handle, false), X_SYMBOL(rocblas_set_stream, false),
         X_SYMBOL(rocblas_set_workspace, true), X_SYMBOL(rocblas_set_atomics_mode, true),
         X_SYMBOL(rocblas_get_version_string, true), X_SYMBOL(rocblas_status_to_string, true)});
    char text[128] = {0};
    if (entry.info.available && api.rocblas_get_version_string && api.rocblas_get_version_string(text, sizeof text) == 0) {
      entry.info.version = text;
    }
  });
}

int datatype(ScalarType type) {
  static const int types[kScalarTypeCount] = {rocblas::kBF16, rocblas::kF16, rocblas::kF32, rocblas::kF64};
  return types[uint32_t(type)];
}

class RocBlas final : public BlasHandle {
 public:
  explicit RocBlas(const Api& api) : api_(api) {
    check("rocblas_create_handle", api_.rocblas_create_handle(&handle_), "a new handle");
    if (api_.rocblas_set_atomics_mode) (void)api_.rocblas_set_atomics_mode(handle_, rocblas::kAtomicsNotAllowed);
  }
  ~RocBlas() override { (void)api_.rocblas_destroy_handle(handle_); }

  void setWorkspace(DevicePtr pointer, size_t bytes) override {
    if (!api_.rocblas_set_workspace) return;  // before ROCm 5.1 the library keeps its own
    check("rocblas_set_workspace", api_.rocblas_set_workspace(handle_, reinterpret_cast<void*>(pointer), bytes), "");
  }

  bool takes(ScalarType type, ScalarType outType) const override { return type == outType || widens(type, outType); }

  void gemm(Device&, const GemmProblem& problem, Stream stream) override {
    if (stream != stream_) {
      check("rocblas_set_stream", api_.rocblas_set_stream(handle_, stream), "");
      stream_ = stream;
    }
    const ColumnMajor p(problem);
    const bool isDouble = problem.type == ScalarType::F64;
    const float ones[] = {1, 0};
    const double doubles[] = {1, 0};
    const void* alpha = isDouble ? static_cast<const void*>(&doubles[0]) : &ones[0];
    const void* beta = isDouble ? static_cast<const void*>(&doubles[1]) : &ones[1];
    const int type = datatype(problem.type), outType = datatype(problem.outType);
    auto operation = [](const GemmOperand& operand) { return operand.transposed ? rocblas::kTranspose : rocblas::kNone; };
    auto address = [](DevicePtr pointer) { return reinterpret_cast<void*>(pointer); };
    const int status = api_.rocblas_gemm_strided_batched_ex(
        handle_, operation(p.a), operation(p.b), p.m, p.n, p.k, alpha, address(p.a.pointer), type, int(p.a.ld),
        p.a.batchStride, address(p.b.pointer), type, int(p.b.ld), p.b.batchStride, beta, address(p.c), outType, p.ldc,
        p.strideC, address(p.c), outType, p.ldc, p.strideC, p.batch, isDouble ? rocblas::kF64 : rocblas::kF32,
        rocblas::kAlgoStandard, 0, rocblas::kFlagsNone);
    if (status != 0) check("rocblas_gemm_strided_batched_ex", status, describe(problem));
  }

 private:
  void check(const char* call, int status, const std::string& context) const {
    if (status == rocblas::kSuccess) return;
    const char* name = api_.rocblas_status_to_string ? api_.rocblas_status_to_string(status) : nullptr;
    throwLibraryFailure(LibraryId::RocBlas, call, status, name ? name : "rocblas_status", context,
                        status == rocblas::kMemoryError);
  }

  const Api& api_;
  void* handle_ = nullptr;
  Stream stream_ = nullptr;
};

}  // namespace

LibraryInfo findRocBlas() { return loaded().info; }

std::unique_ptr<BlasHandle> createRocBlas(Device&) {
  Loaded& library = loaded();
  requireLibrary(LibraryId::RocBlas, library.info);
  return std::make_unique<RocBlas>(library.api);
}

}  // namespace xhip
