// Matrix products through hipBLASLt. A problem's layouts and the algorithm that the library suggests for it are kept, so a
// repeated product is one call; a problem for which it has no algorithm is an error that the caller may answer with rocBLAS.
#include <cstring>
#include <map>
#include <tuple>

#include "blas.h"
#include "hipblaslt_api.h"
#include "loaded_library.h"

namespace xhip {
namespace {

using hipblaslt::Api;

using Loaded = LoadedLibrary<Api>;

Loaded& loaded() {
  return loadedOnce<Loaded>([](Loaded& entry) {
    Api& api = entry.api;
    entry.info = loadVendorLibrary(
        LibraryId::HipBlasLt,
        {X_SYMBOL(hipblasLtMatmul, false), X_SYMBOL(hipblasLtCreate, false), X_SYMBOL(hipblasLtDestroy, false), X_SYMBOL(hipblasLtGetVersion, false),
         X_SYMBOL(hipblasLtMatmulDescCreate, false), X_SYMBOL(hipblasLtMatmulDescDestroy, false),
         X_SYMBOL(hipblasLtMatmulDescSetAttribute, false), X_SYMBOL(hipblasLtMatrixLayoutCreate, false),
         X_SYMBOL(hipblasLtMatrixLayoutDestroy, false), X_SYMBOL(hipblasLtMatrixLayoutSetAttribute, false),
         X_SYMBOL(hipblasLtMatmulPreferenceCreate, false), X_SYMBOL(hipblasLtMatmulPreferenceDestroy, false),
         X_SYMBOL(hipblasLtMatmulPreferenceSetAttribute, false), X_SYMBOL(hipblasLtMatmulAlgoGetHeuristic, false)});
  });
}

int datatype(ScalarType type) {
  static const int types[kScalarTypeCount] = {hipblaslt::kBF16, hipblaslt::kF16, hipblaslt::kF32, hipblaslt::kF64};
  return types[uint32_t(type)];
}

constexpr size_t kMaxPlans = 512;

class HipBlasLt final : public BlasHandle {
 public:
  explicit HipBlasLt(const Api& api) : api_(api) {
    check("hipblasLtCreate", api_.hipblasLtCreate(&handle_), "a new handle");
    int version = 0;
    if (api_.hipblasLtGetVersion(handle_, &version) != hipblaslt::kSuccess || version < hipblaslt::kFirstVersion) {
      (void)api_.hipblasLtDestroy(handle_);
      FailureInfo failure;
      failure.code = "SYMBOL_MISSING";
      failure.platform = "rocm";
      failure.message = findLibrary(LibraryId::HipBlasLt).library + " is version " + std::to_string(version) +
                        " of hipBLASLt, older than 0.6. Install hipblaslt of ROCm 6.0 or later, or use rocBLAS";
      throw HipFailure{std::move(failure)};
    }
  }
  ~HipBlasLt() override {
    plans_.clear();
    (void)api_.hipblasLtDestroy(handle_);
  }

  void setWorkspace(DevicePtr pointer, size_t bytes) override {
    workspace_ = pointer;
    workspaceBytes_ = bytes;
    plans_.clear();  // their algorithms were chosen for the old size
  }

  void gemm(Device&, const GemmProblem& problem, Stream stream) override {
    const Plan& plan = planOf(problem);
    const bool isDouble = problem.type == ScalarType::F64;
    const float floats[] = {1, 0};
    const double doubles[] = {1, 0};
    const void* alpha = isDouble ? static_cast<const void*>(&doubles[0]) : &floats[0];
    const void* beta = isDouble ? static_cast<const void*>(&doubles[1]) : &floats[1];
    auto address = [](DevicePtr pointer) { return reinterpret_cast<void*>(pointer); };
    const ColumnMajor p(problem);
    const int status = api_.hipblasLtMatmul(handle_, plan.desc, alpha, address(p.a.pointer), plan.a, address(p.b.pointer),
                                            plan.b, beta, address(p.c), plan.c, address(p.c), plan.c, &plan.algorithm,
                                            address(workspace_), workspaceBytes_, stream);
    if (status != hipblaslt::kSuccess) check("hipblasLtMatmul", status, describe(problem));
  }

 private:
  using Key = std::tuple<ScalarType, int64_t, int64_t, int64_t, int64_t, bool, int64_t, int64_t, bool, int64_t, int64_t>;

  struct Plan {
    explicit Plan(const Api& api) : api(&api) {}
    Plan(const Plan&) = delete;
    ~Plan() {
      for (void* layout : {a, b, c}) {
        if (layout) (void)api->hipblasLtMatrixLayoutDestroy(layout);
      }
      if (desc) (void)api->hipblasLtMatmulDescDestroy(desc);
      if (preference) (void)api->hipblasLtMatmulPreferenceDestroy(preference);
    }
    const Api* api;
    void* desc = nullptr;
    void* a = nullptr;
    void* b = nullptr;
    void* c = nullptr;
    void* preference = nullptr;
    hipblaslt::Algorithm algorithm = {};
  };

  const Plan& planOf(const GemmProblem& problem) {
    const ColumnMajor p(problem);
    const Key key(problem.type, problem.batch, problem.m, problem.n, problem.k, p.a.transposed, p.a.ld, p.a.batchStride,
                  p.b.transposed, p.b.ld, p.b.batchStride);
    auto found = plans_.find(key);
    if (found != plans_.end()) return *found->second;
    if (plans_.size() >= kMaxPlans) plans_.clear();
    auto plan = std::make_unique<Plan>(api_);
    const std::string what = describe(problem);
    const bool isDouble = problem.type == ScalarType::F64;
    check("hipblasLtMatmulDescCreate",
          api_.hipblasLtMatmulDescCreate(&plan->desc, isDouble ? hipblaslt::kCompute64F : hipblaslt::kCompute32F,
                                         isDouble ? hipblaslt::kF64 : hipblaslt::kF32),
          what);
    setOperation(plan->desc, hipblaslt::kTransA, p.a, what);
    setOperation(plan->desc, hipblaslt::kTransB, p.b, what);
    plan->a = layout(problem.type, p.a.transposed ? p.k : p.m, p.a.transposed ? p.m : p.k, p.a.ld, p.batch, p.a.batchStride, what);
    plan->b = layout(problem.type, p.b.transposed ? p.n : p.k, p.b.transposed ? p.k : p.n, p.b.ld, p.batch, p.b.batchStride, what);
    plan->c = layout(problem.type, p.m, p.n, p.ldc, p.batch, p.strideC, what);
    check("hipblasLtMatmulPreferenceCreate", api_.hipblasLtMatmulPreferenceCreate(&plan->preference), what);
    const uint64_t limit = workspaceBytes_;
    check("hipblasLtMatmulPreferenceSetAttribute",
          api_.hipblasLtMatmulPreferenceSetAttribute(plan->preference, hipblaslt::kMaxWorkspaceBytes, &limit, sizeof limit), what);
    hipblaslt::HeuristicResult result;
    std::memset(&result, 0, sizeof result);
    int returned = 0;
    check("hipblasLtMatmulAlgoGetHeuristic",
          api_.hipblasLtMatmulAlgoGetHeuristic(handle_, plan->desc, plan->a, plan->b, plan->c, plan->c, plan->preference, 1,
                                               &result, &returned),
          what);
    if (returned < 1 || result.state != hipblaslt::kSuccess) {
      throwLibraryFailure(LibraryId::HipBlasLt, "hipblasLtMatmulAlgoGetHeuristic", result.state, "no algorithm", what);
    }
    plan->algorithm = result.algorithm;
    return *(plans_[key] = std::move(plan));
  }

  void setOperation(void* desc, int which, const GemmOperand& operand, const std::string& what) const {
    const int32_t operation = operand.transposed ? hipblaslt::kTranspose : hipblaslt::kNone;
    check("hipblasLtMatmulDescSetAttribute",
          api_.hipblasLtMatmulDescSetAttribute(desc, which, &operation, sizeof operation), what);
  }

  void* layout(ScalarType type, int rows, int columns, int64_t ld, int32_t batch, int64_t stride, const std::string& what) const {
    void* layout = nullptr;
    check("hipblasLtMatrixLayoutCreate",
          api_.hipblasLtMatrixLayoutCreate(&layout, datatype(type), uint64_t(rows), uint64_t(columns), ld), what);
    int status = api_.hipblasLtMatrixLayoutSetAttribute(layout, hipblaslt::kBatchCount, &batch, sizeof batch);
    if (status == 0) status = api_.hipblasLtMatrixLayoutSetAttribute(layout, hipblaslt::kBatchStride, &stride, sizeof stride);
    if (status != 0) (void)api_.hipblasLtMatrixLayoutDestroy(layout);
    check("hipblasLtMatrixLayoutSetAttribute", status, what);
    return layout;
  }

  void check(const char* call, int status, const std::string& context) const {
    if (status == hipblaslt::kSuccess) return;
    throwLibraryFailure(LibraryId::HipBlasLt, call, status, "hipblasStatus_t", context, status == hipblaslt::kAllocFailed);
  }

  const Api& api_;
  void* handle_ = nullptr;
  std::map<Key, std::unique_ptr<Plan>> plans_;
  DevicePtr workspace_ = 0;
  size_t workspaceBytes_ = 0;
};

}  // namespace

LibraryInfo findHipBlasLt() { return loaded().info; }

std::unique_ptr<BlasHandle> createHipBlasLt(Device&) {
  Loaded& library = loaded();
  requireLibrary(LibraryId::HipBlasLt, library.info);
  return std::make_unique<HipBlasLt>(library.api);
}

}  // namespace xhip
