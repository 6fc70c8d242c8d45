// Convolutions through MIOpen's immediate mode: it names solutions with their expected time and workspace without running
// anything, so planning neither times kernels nor touches data. The fastest whose workspace is acceptable is compiled.
#include <algorithm>

#include "convolution.h"
#include "loaded_library.h"
#include "miopen_api.h"

namespace xhip {
namespace {

using miopen::Api;

using Loaded = LoadedLibrary<Api>;

Loaded& loaded() {
  return loadedOnce<Loaded>([](Loaded& entry) {
    Api& api = entry.api;
    entry.info = loadVendorLibrary(
        LibraryId::MiOpen,
        {X_SYMBOL(miopenConvolutionForwardImmediate, false), X_SYMBOL(miopenCreateWithStream, false),
         X_SYMBOL(miopenDestroy, false), X_SYMBOL(miopenSetStream, false), X_SYMBOL(miopenGetVersion, true),
         X_SYMBOL(miopenGetErrorString, false), X_SYMBOL(miopenCreateTensorDescriptor, false),
         X_SYMBOL(miopenDestroyTensorDescriptor, false), X_SYMBOL(miopenSet4dTensorDescriptor, false),
         X_SYMBOL(miopenCreateConvolutionDescriptor, false), X_SYMBOL(miopenDestroyConvolutionDescriptor, false),
         X_SYMBOL(miopenInitConvolutionDescriptor, false), X_SYMBOL(miopenConvolutionForwardGetSolutionCount, false),
         X_SYMBOL(miopenConvolutionForwardGetSolution, false), X_SYMBOL(miopenConvolutionForwardCompileSolution, false),
         X_SYMBOL(miopenConvolutionBackwardDataGetSolutionCount, false),
         X_SYMBOL(miopenConvolutionBackwardDataGetSolution, false),
         X_SYMBOL(miopenConvolutionBackwardDataCompileSolution, false),
         X_SYMBOL(miopenConvolutionBackwardDataImmediate, false)});
    size_t parts[3] = {0, 0, 0};
    if (entry.info.available && api.miopenGetVersion && api.miopenGetVersion(&parts[0], &parts[1], &parts[2]) == 0) {
      entry.info.version = std::to_string(parts[0]) + "." + std::to_string(parts[1]) + "." + std::to_string(parts[2]);
    }
  });
}

void check(const Api& api, const char* call, int status, const std::string& context = "") {
  if (status == miopen::kSuccess) return;
  throwLibraryFailure(LibraryId::MiOpen, call, status, api.miopenGetErrorString(status), context, status == miopen::kAllocFailed);
}

struct MiOpenPlan final : ConvolutionHandle::Plan {
  explicit MiOpenPlan(const Api& api) : api(api) {}
  ~MiOpenPlan() override {
    for (void* tensor : {x, filter, y}) {
      if (tensor) (void)api.miopenDestroyTensorDescriptor(tensor);
    }
    if (convolution) (void)api.miopenDestroyConvolutionDescriptor(convolution);
  }
  const Api& api;
  bool transposed = false;
  void* x = nullptr;
  void* filter = nullptr;
  void* y = nullptr;
  void* convolution = nullptr;
  uint64_t solution = 0;
};

class MiOpen final : public ConvolutionHandle {
 public:
  MiOpen(const Api& api, Stream stream) : api_(api), stream_(stream) {
    check(api_, "miopenCreateWithStream", api_.miopenCreateWithStream(&handle_, stream));
  }
  ~MiOpen() override {
    plans.clear();
    (void)api_.miopenDestroy(handle_);
  }

  std::unique_ptr<Plan> plan(const ConvolutionShape& s, Stream stream) override {
    if (s.channelsLast) throwLibraryFailure(LibraryId::MiOpen, "miopenSetTensorDescriptor", 0, "channels are first here", describe(s));
    use(stream);
    auto plan = std::make_unique<MiOpenPlan>(api_);
    plan->transposed = s.transposed;
    plan->x = tensor(s, s.x);
    plan->filter = tensor(s, s.filter);
    plan->y = tensor(s, s.y);
    check(api_, "miopenCreateConvolutionDescriptor", api_.miopenCreateConvolutionDescriptor(&plan->convolution));
    check(api_, "miopenInitConvolutionDescriptor",
          api_.miopenInitConvolutionDescriptor(plan->convolution, miopen::kConvolution, s.padding[0], s.padding[1], s.stride[0],
                                               s.stride[1], s.dilation[0], s.dilation[1]),
          describe(s));
    const miopen::Solution chosen = choose(*plan, s);
    plan->solution = chosen.id;
    plan->algorithm = "solution " + std::to_string(chosen.id);
    plan->workspaceBytes = chosen.workspaceBytes;
    if (s.transposed) {
      check(api_, "miopenConvolutionBackwardDataCompileSolution",
            api_.miopenConvolutionBackwardDataCompileSolution(handle_, plan->x, plan->filter, plan->convolution, plan->y, chosen.id),
            describe(s));
    } else {
      check(api_, "miopenConvolutionForwardCompileSolution",
            api_.miopenConvolutionForwardCompileSolution(handle_, plan->filter, plan->x, plan->convolution, plan->y, chosen.id),
            describe(s));
    }
    return plan;
  }

  void run(Plan& planned, DevicePtr x, DevicePtr filter, DevicePtr y, DevicePtr workspace, Stream stream) override {
    use(stream);
    auto& p = static_cast<MiOpenPlan&>(planned);
    auto at = [](DevicePtr pointer) { return reinterpret_cast<void*>(pointer); };
    if (p.transposed) {
      check(api_, "miopenConvolutionBackwardDataImmediate",
            api_.miopenConvolutionBackwardDataImmediate(handle_, p.x, at(x), p.filter, at(filter), p.convolution, p.y, at(y),
                                                        at(workspace), p.workspaceBytes, p.solution));
    } else {
      check(api_, "miopenConvolutionForwardImmediate",
            api_.miopenConvolutionForwardImmediate(handle_, p.filter, at(filter), p.x, at(x), p.convolution, p.y, at(y),
                                                   at(workspace), p.workspaceBytes, p.solution));
    }
  }

 private:
  void use(Stream stream) {
    if (stream == stream_) return;
    check(api_, "miopenSetStream", api_.miopenSetStream(handle_, stream));
    stream_ = stream;
  }

  void* tensor(const ConvolutionShape& s, const int* dims) const {
    static const int types[] = {miopen::kBFloat16, miopen::kHalf, miopen::kFloat};
    void* desc = nullptr;
    check(api_, "miopenCreateTensorDescriptor", api_.miopenCreateTensorDescriptor(&desc));
    const int status = api_.miopenSet4dTensorDescriptor(desc, types[uint32_t(s.type)], dims[0], dims[1], dims[2], dims[3]);
    if (status != miopen::kSuccess) (void)api_.miopenDestroyTensorDescriptor(desc);
    check(api_, "miopenSet4dTensorDescriptor", status, describe(s));
    return desc;
  }

  miopen::Solution choose(const MiOpenPlan& p, const ConvolutionShape& s) const {
    size_t count = 0;
    int status = s.transposed
                     ? api_.miopenConvolutionBackwardDataGetSolutionCount(handle_, p.x, p.filter, p.convolution, p.y, &count)
                     : api_.miopenConvolutionForwardGetSolutionCount(handle_, p.filter, p.x, p.convolution, p.y, &count);
    const char* const call = s.transposed ? "miopenConvolutionBackwardDataGetSolution" : "miopenConvolutionForwardGetSolution";
    check(api_, call, status, describe(s));
    std::vector<miopen::Solution> solutions(count);
    if (count > 0) {
      status = s.transposed ? api_.miopenConvolutionBackwardDataGetSolution(handle_, p.x, p.filter, p.convolution, p.y, count,
                                                                            &count, solutions.data())
                            : api_.miopenConvolutionForwardGetSolution(handle_, p.filter, p.x, p.convolution, p.y, count, &count,
                                                                       solutions.data());
      check(api_, call, status, describe(s));
      solutions.resize(std::min(count, solutions.size()));
    }
    // They come fastest first.
    for (const miopen::Solution& solution : solutions) {
      if (solution.workspaceBytes <= kMaxConvolutionWorkspace) return solution;
    }
    throwLibraryFailure(LibraryId::MiOpen, call, 0, "no solution", describe(s));
  }

  const Api& api_;
  void* handle_ = nullptr;
  Stream stream_;
};

}  // namespace

LibraryInfo findMiOpen() { return loaded().info; }

std::unique_ptr<ConvolutionHandle> createMiOpen(Device& device) {
  Loaded& library = loaded();
  requireLibrary(LibraryId::MiOpen, library.info);
  return std::make_unique<MiOpen>(library.api, device.stream(0));
}

}  // namespace xhip
