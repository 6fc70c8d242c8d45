// Convolutions as cuDNN's operation graphs of one operation, which reach engines that version 7's interface does not. The
// heuristics rank configurations of engines without running any; the first that is deterministic, in the arithmetic asked
// for and modest in workspace, and of which a plan can be made, is taken.
#include <algorithm>
#include <utility>

#include "cudnn_plan.h"

namespace xhip {
namespace cudnn {
namespace {

// A backend descriptor. Its first failure stays with it and passes to what it is set on, so a chain of them is built
// through and asked once.
class Descriptor {
 public:
  Descriptor(const Api& api, Kind kind) : api_(&api), status_(api.cudnnBackendCreateDescriptor(kind, &raw_)) {}
  Descriptor(Descriptor&& other) noexcept
      : api_(other.api_), raw_(std::exchange(other.raw_, nullptr)), status_(other.status_) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (raw_) (void)api_->cudnnBackendDestroyDescriptor(raw_);
  }

  void* get() const { return raw_; }
  int status() const { return status_; }

  Descriptor& set(Attribute name, Type type, int64_t count, const void* values) {
    if (status_ == kSuccess) status_ = api_->cudnnBackendSetAttribute(raw_, name, type, count, values);
    return *this;
  }
  Descriptor& set(Attribute name, const Descriptor& other) {
    if (status_ == kSuccess) status_ = other.status_;
    return set(name, kDescriptorType, 1, &other.raw_);
  }
  int finalize() {
    if (status_ == kSuccess) status_ = api_->cudnnBackendFinalize(raw_);
    return status_;
  }

  // How many values were written, at most `capacity`; -1 when they cannot be had.
  int64_t read(Attribute name, Type type, int64_t capacity, void* values) const {
    int64_t count = 0;
    if (status_ != kSuccess) return -1;
    if (api_->cudnnBackendGetAttribute(raw_, name, type, capacity, &count, values) != kSuccess) return -1;
    return std::min(count, capacity);
  }

  // Up to `capacity` descriptors, which cuDNN fills in: it may deliver fewer than it announces.
  std::vector<Descriptor> read(Attribute name, Kind kind, int64_t capacity) const {
    std::vector<Descriptor> found;
    std::vector<void*> raw;
    for (int64_t i = 0; i < capacity; i++) {
      found.emplace_back(*api_, kind);
      if (found.back().status_ != kSuccess) return {};
      raw.push_back(found.back().raw_);
    }
    const int64_t delivered = read(name, kDescriptorType, capacity, raw.data());
    while (int64_t(found.size()) > std::max<int64_t>(delivered, 0)) found.pop_back();
    return found;
  }
  int64_t announced(Attribute name) const {
    int64_t count = 0;
    return api_->cudnnBackendGetAttribute(raw_, name, kDescriptorType, 0, &count, nullptr) == kSuccess ? count : 0;
  }

 private:
  const Api* api_;
  void* raw_ = nullptr;
  int status_;
};

enum TensorId : int64_t { kX = 1, kFilter = 2, kY = 3 };

Descriptor tensor(const Api& api, const ConvolutionShape& s, const int* sizes, TensorId id) {
  static const int types[] = {kBFloat16, kHalf, kFloat};
  const int64_t dims[] = {sizes[0], sizes[1], sizes[2], sizes[3]};
  const int64_t image = dims[1] * dims[2] * dims[3];
  const int64_t channelsFirst[] = {image, dims[2] * dims[3], dims[3], 1};
  const int64_t channelsLast[] = {image, 1, dims[3] * dims[1], dims[1]};
  const int64_t alignment = kConvolutionAlignment;
  Descriptor made(api, kTensorKind);
  made.set(kTensorType, kDataTypeType, 1, &types[uint32_t(s.type)])
      .set(kTensorDims, kInt64Type, 4, dims)
      .set(kTensorStrides, kInt64Type, 4, s.channelsLast ? channelsLast : channelsFirst)
      .set(kTensorAlignment, kInt64Type, 1, &alignment)
      .set(kTensorId, kInt64Type, 1, &id)
      .finalize();
  return made;
}

Descriptor convolutionOf(const Api& api, const ConvolutionShape& s) {
  const int computed = kFloat;
  const int mode = kCrossCorrelation;
  const int64_t spatialDims = 2;
  const int64_t padding[] = {s.padding[0], s.padding[1]};
  const int64_t stride[] = {s.stride[0], s.stride[1]};
  const int64_t dilation[] = {s.dilation[0], s.dilation[1]};
  Descriptor made(api, kConvolutionKind);
  made.set(kConvolutionComputeType, kDataTypeType, 1, &computed)
      .set(kConvolutionMode, kConvolutionModeType, 1, &mode)
      .set(kConvolutionSpatialDims, kInt64Type, 1, &spatialDims)
      .set(kConvolutionPrePaddings, kInt64Type, 2, padding)
      .set(kConvolutionPostPaddings, kInt64Type, 2, padding)
      .set(kConvolutionStrides, kInt64Type, 2, stride)
      .set(kConvolutionDilations, kInt64Type, 2, dilation)
      .finalize();
  return made;
}

// A plan refers to all of this, and cuDNN does not say that it keeps what it refers to.
struct Graph {
  Graph(const Api& api, void* handle, const ConvolutionShape& s)
      : x(tensor(api, s, s.x, kX)),
        filter(tensor(api, s, s.filter, kFilter)),
        y(tensor(api, s, s.y, kY)),
        convolution(convolutionOf(api, s)),
        operation(api, s.transposed ? kBackwardDataKind : kForwardKind),
        graph(api, kOperationGraphKind) {
    const float one = 1;
    const float zero = 0;
    operation.set(s.transposed ? kBackwardDataAlpha : kForwardAlpha, kFloatType, 1, &one)
        .set(s.transposed ? kBackwardDataBeta : kForwardBeta, kFloatType, 1, &zero)
        .set(s.transposed ? kBackwardDataConvolution : kForwardConvolution, convolution)
        .set(s.transposed ? kBackwardDataW : kForwardW, filter)
        .set(s.transposed ? kBackwardDataDy : kForwardX, x)
        .set(s.transposed ? kBackwardDataDx : kForwardY, y)
        .finalize();
    graph.set(kGraphHandle, kHandleType, 1, &handle).set(kGraphOperations, operation).finalize();
  }
  Descriptor x, filter, y, convolution, operation, graph;
};

// Whether the engine's notes keep our terms; an engine without notes to read is passed over.
bool allowed(const Descriptor& engine, const ConvolutionShape& s) {
  int notes[kMaxNotes];
  const int64_t count = engine.read(kEngineNotes, kNoteType, kMaxNotes, notes);
  const bool plainF32 = s.type == ScalarType::F32 && !s.reduced;
  return count >= 0 && std::none_of(notes, notes + count, [&](int note) {
           return note == kNondeterministic || note == kReducesInLowPrecision || note == kDownConvertsInputs ||
                  (plainF32 && note == kTensorCore);
         });
}

// As cuDNN's own logs number them: "engine 62 (2=0, 13=1)".
std::string numbersOf(const Descriptor& config, const Descriptor& engine) {
  int64_t index = -1;
  (void)engine.read(kEngineIndex, kInt64Type, 1, &index);
  std::string knobs;
  for (const Descriptor& choice : config.read(kConfigKnobs, kKnobChoiceKind, kMaxKnobs)) {
    int knob = -1;
    int64_t value = 0;
    if (choice.read(kKnobType, kKnobTypeType, 1, &knob) != 1 || choice.read(kKnobValue, kInt64Type, 1, &value) != 1) continue;
    knobs += (knobs.empty() ? " (" : ", ") + std::to_string(knob) + "=" + std::to_string(value);
  }
  return "engine " + std::to_string(index) + knobs + (knobs.empty() ? "" : ")");
}

struct GraphPlan final : CuDnnPlan {
  GraphPlan(const Api& api, std::unique_ptr<Graph> graph, Descriptor config, Descriptor plan)
      : api(api), graph(std::move(graph)), config(std::move(config)), plan(std::move(plan)) {}

  // A pack is made anew: cuDNN changes none that is finalized, and making one takes a quarter of a microsecond.
  void enqueue(void* handle, void* x, void* filter, void* y, void* workspace) override {
    const int64_t ids[] = {kX, kFilter, kY};
    void* const pointers[] = {x, filter, y};
    Descriptor pack(api, kVariantPackKind);
    pack.set(kPackIds, kInt64Type, 3, ids).set(kPackPointers, kPointerType, 3, pointers).set(kPackWorkspace, kPointerType, 1, &workspace);
    check(api, "cudnnBackendFinalize", pack.finalize(), "a variant pack");
    check(api, "cudnnBackendExecute", api.cudnnBackendExecute(handle, plan.get(), pack.get()), algorithm);
  }

  const Api& api;
  std::unique_ptr<Graph> graph;
  Descriptor config;
  Descriptor plan;
};

bool hasGraphs(const Api& api) {
  return api.cudnnBackendCreateDescriptor && api.cudnnBackendDestroyDescriptor && api.cudnnBackendSetAttribute &&
         api.cudnnBackendGetAttribute && api.cudnnBackendFinalize && api.cudnnBackendExecute;
}

}  // namespace

std::unique_ptr<CuDnnPlan> planGraph(const Api& api, void* handle, const ConvolutionShape& s) {
  if (!hasGraphs(api)) return nullptr;
  auto graph = std::make_unique<Graph>(api, handle, s);
  if (graph->graph.status() != kSuccess) return nullptr;
  for (const int mode : {kModeA, kModeFallback}) {
    Descriptor heuristics(api, kHeuristicsKind);
    heuristics.set(kHeuristicsGraph, graph->graph).set(kHeuristicsMode, kHeuristicsModeType, 1, &mode);
    if (heuristics.finalize() != kSuccess) continue;
    const int64_t count = heuristics.announced(kHeuristicsResults);
    for (Descriptor& config : heuristics.read(kHeuristicsResults, kEngineConfigKind, count)) {
      Descriptor engine(api, kEngineKind);
      void* raw = engine.get();
      if (config.read(kConfigEngine, kDescriptorType, 1, &raw) != 1 || !allowed(engine, s)) continue;
      Descriptor plan(api, kExecutionPlanKind);
      if (plan.set(kPlanHandle, kHandleType, 1, &handle).set(kPlanConfig, config).finalize() != kSuccess) continue;
      int64_t bytes = 0;
      if (plan.read(kPlanWorkspaceSize, kInt64Type, 1, &bytes) != 1 || bytes < 0) continue;
      if (uint64_t(bytes) > kMaxConvolutionWorkspace) continue;
      std::string algorithm = numbersOf(config, engine);
      auto found = std::make_unique<GraphPlan>(api, std::move(graph), std::move(config), std::move(plan));
      found->workspaceBytes = size_t(bytes);
      found->algorithm = std::move(algorithm);
      return found;
    }
  }
  return nullptr;
}

}  // namespace cudnn
}  // namespace xhip
