// Convolutions through cuDNN: as operation graphs (cudnn_graph.cc), or through the descriptor interface of version 7 where a
// shape has no plan as a graph. Its heuristics name the algorithms (nothing is timed or run); the first that is
// deterministic, in the arithmetic asked for and modest in workspace is taken.
#include "cudnn_plan.h"
#include "loaded_library.h"

namespace xhip {
namespace {

using cudnn::Api;
using cudnn::check;

using Loaded = LoadedLibrary<Api>;

Loaded& loaded() {
  return loadedOnce<Loaded>([](Loaded& entry) {
    Api& api = entry.api;
    entry.info = loadVendorLibrary(
        LibraryId::CuDnn,
        {X_SYMBOL(cudnnGetVersion, false), X_SYMBOL(cudnnCreate, false), X_SYMBOL(cudnnDestroy, false), X_SYMBOL(cudnnSetStream, false),
         X_SYMBOL(cudnnGetErrorString, false), X_SYMBOL(cudnnCreateTensorDescriptor, false), X_SYMBOL(cudnnDestroyTensorDescriptor, false),
         X_SYMBOL(cudnnSetTensor4dDescriptor, false), X_SYMBOL(cudnnCreateFilterDescriptor, false), X_SYMBOL(cudnnDestroyFilterDescriptor, false),
         X_SYMBOL(cudnnSetFilter4dDescriptor, false), X_SYMBOL(cudnnCreateConvolutionDescriptor, false),
         X_SYMBOL(cudnnDestroyConvolutionDescriptor, false), X_SYMBOL(cudnnSetConvolution2dDescriptor, false),
         X_SYMBOL(cudnnSetConvolutionMathType, false), X_SYMBOL(cudnnGetConvolutionForwardAlgorithm_v7, false),
         X_SYMBOL(cudnnGetConvolutionForwardWorkspaceSize, false), X_SYMBOL(cudnnConvolutionForward, false),
         X_SYMBOL(cudnnGetConvolutionBackwardDataAlgorithm_v7, false), X_SYMBOL(cudnnGetConvolutionBackwardDataWorkspaceSize, false),
         X_SYMBOL(cudnnConvolutionBackwardData, false), X_SYMBOL(cudnnBackendCreateDescriptor, true),
         X_SYMBOL(cudnnBackendDestroyDescriptor, true), X_SYMBOL(cudnnBackendSetAttribute, true),
         X_SYMBOL(cudnnBackendGetAttribute, true), X_SYMBOL(cudnnBackendFinalize, true), X_SYMBOL(cudnnBackendExecute, true)});
    if (!entry.info.available) return;
    // 8907 is 8.9.7, 91002 is 9.10.2.
    const size_t packed = api.cudnnGetVersion();
    const size_t major = packed >= 90000 ? packed / 10000 : packed / 1000;
    const size_t rest = packed - major * (packed >= 90000 ? 10000 : 1000);
    entry.info.version = std::to_string(major) + "." + std::to_string(rest / 100) + "." + std::to_string(rest % 100);
  });
}

struct LegacyPlan final : cudnn::CuDnnPlan {
  explicit LegacyPlan(const Api& api) : api(api) {}
  ~LegacyPlan() override {
    for (void* tensor : {x, y}) {
      if (tensor) (void)api.cudnnDestroyTensorDescriptor(tensor);
    }
    if (filter) (void)api.cudnnDestroyFilterDescriptor(filter);
    if (convolution) (void)api.cudnnDestroyConvolutionDescriptor(convolution);
  }

  void enqueue(void* handle, void* xData, void* filterData, void* yData, void* workspace) override {
    const float one = 1;
    const float zero = 0;
    if (transposed) {
      check(api, "cudnnConvolutionBackwardData",
            api.cudnnConvolutionBackwardData(handle, &one, filter, filterData, x, xData, convolution, number, workspace,
                                             workspaceBytes, &zero, y, yData));
    } else {
      check(api, "cudnnConvolutionForward",
            api.cudnnConvolutionForward(handle, &one, x, xData, filter, filterData, convolution, number, workspace,
                                        workspaceBytes, &zero, y, yData));
    }
  }

  const Api& api;
  bool transposed = false;
  void* x = nullptr;
  void* filter = nullptr;
  void* y = nullptr;
  void* convolution = nullptr;
  int number = 0;
};

class CuDnn final : public ConvolutionHandle {
 public:
  explicit CuDnn(const Api& api) : api_(api) { check(api_, "cudnnCreate", api_.cudnnCreate(&handle_)); }
  ~CuDnn() override {
    plans.clear();
    (void)api_.cudnnDestroy(handle_);
  }

  std::unique_ptr<Plan> plan(const ConvolutionShape& s, Stream) override {
    if (auto graph = cudnn::planGraph(api_, handle_, s)) return graph;
    if (s.channelsLast) throwLibraryFailure(LibraryId::CuDnn, "cudnnBackendFinalize", 0, "no plan", describe(s));
    return legacyPlan(s);
  }

  void run(Plan& planned, DevicePtr x, DevicePtr filter, DevicePtr y, DevicePtr workspace, Stream stream) override {
    if (stream != stream_) {
      check(api_, "cudnnSetStream", api_.cudnnSetStream(handle_, stream));
      stream_ = stream;
    }
    auto at = [](DevicePtr pointer) { return reinterpret_cast<void*>(pointer); };
    static_cast<cudnn::CuDnnPlan&>(planned).enqueue(handle_, at(x), at(filter), at(y), at(workspace));
  }

 private:
  std::unique_ptr<Plan> legacyPlan(const ConvolutionShape& s) const {
    static const int types[] = {cudnn::kBFloat16, cudnn::kHalf, cudnn::kFloat};
    const int type = types[uint32_t(s.type)];
    const std::string what = describe(s);
    auto plan = std::make_unique<LegacyPlan>(api_);
    plan->transposed = s.transposed;
    for (const auto& [desc, dims] : {std::pair<void**, const int*>{&plan->x, s.x}, {&plan->y, s.y}}) {
      check(api_, "cudnnCreateTensorDescriptor", api_.cudnnCreateTensorDescriptor(desc));
      check(api_, "cudnnSetTensor4dDescriptor",
            api_.cudnnSetTensor4dDescriptor(*desc, cudnn::kLayoutNchw, type, dims[0], dims[1], dims[2], dims[3]), what);
    }
    check(api_, "cudnnCreateFilterDescriptor", api_.cudnnCreateFilterDescriptor(&plan->filter));
    check(api_, "cudnnSetFilter4dDescriptor",
          api_.cudnnSetFilter4dDescriptor(plan->filter, type, cudnn::kLayoutNchw, s.filter[0], s.filter[1], s.filter[2], s.filter[3]),
          what);
    check(api_, "cudnnCreateConvolutionDescriptor", api_.cudnnCreateConvolutionDescriptor(&plan->convolution));
    check(api_, "cudnnSetConvolution2dDescriptor",
          api_.cudnnSetConvolution2dDescriptor(plan->convolution, s.padding[0], s.padding[1], s.stride[0], s.stride[1],
                                               s.dilation[0], s.dilation[1], cudnn::kCrossCorrelation, cudnn::kFloat),
          what);
    choose(*plan, s, what);
    return plan;
  }

  void choose(LegacyPlan& p, const ConvolutionShape& s, const std::string& what) const {
    const bool plainF32 = s.type == ScalarType::F32 && !s.reduced;
    const int wanted = plainF32 ? cudnn::kFmaMath : cudnn::kTensorOpMath;
    check(api_, "cudnnSetConvolutionMathType", api_.cudnnSetConvolutionMathType(p.convolution, wanted), what);
    cudnn::AlgorithmPerf results[cudnn::kMaxAlgorithms];
    int count = 0;
    const char* const call =
        s.transposed ? "cudnnGetConvolutionBackwardDataAlgorithm_v7" : "cudnnGetConvolutionForwardAlgorithm_v7";
    const int status = s.transposed
                           ? api_.cudnnGetConvolutionBackwardDataAlgorithm_v7(handle_, p.filter, p.x, p.convolution, p.y,
                                                                              cudnn::kMaxAlgorithms, &count, results)
                           : api_.cudnnGetConvolutionForwardAlgorithm_v7(handle_, p.x, p.filter, p.convolution, p.y,
                                                                         cudnn::kMaxAlgorithms, &count, results);
    check(api_, call, status, what);
    for (int i = 0; i < count; i++) {
      const cudnn::AlgorithmPerf& found = results[i];
      if (found.status != cudnn::kSuccess || found.determinism != cudnn::kDeterministic) continue;
      if (found.memory > kMaxConvolutionWorkspace || (plainF32 && found.math != cudnn::kFmaMath)) continue;
      if (api_.cudnnSetConvolutionMathType(p.convolution, found.math) != cudnn::kSuccess) continue;
      size_t bytes = 0;
      const int sized = s.transposed
                            ? api_.cudnnGetConvolutionBackwardDataWorkspaceSize(handle_, p.filter, p.x, p.convolution, p.y,
                                                                                found.algorithm, &bytes)
                            : api_.cudnnGetConvolutionForwardWorkspaceSize(handle_, p.x, p.filter, p.convolution, p.y,
                                                                           found.algorithm, &bytes);
      if (sized != cudnn::kSuccess || bytes > kMaxConvolutionWorkspace) continue;
      p.number = found.algorithm;
      p.algorithm = "algorithm " + std::to_string(found.algorithm) + ", math " + std::to_string(found.math);
      p.workspaceBytes = bytes;
      return;
    }
    throwLibraryFailure(LibraryId::CuDnn, call, 0, "no algorithm", what);
  }

  const Api& api_;
  void* handle_ = nullptr;
  Stream stream_ = nullptr;
};

}  // namespace

LibraryInfo findCuDnn() { return loaded().info; }

std::unique_ptr<ConvolutionHandle> createCuDnn(Device&) {
  Loaded& library = loaded();
  requireLibrary(LibraryId::CuDnn, library.info);
  return std::make_unique<CuDnn>(library.api);
}

}  // namespace xhip
