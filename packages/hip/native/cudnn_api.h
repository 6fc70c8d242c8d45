// The part of cuDNN that we call, as function pointers: versions 8 and 9, whose operation graphs ("backend") are asked
// first, and which still have the descriptor interface of 7. No header is included.
#pragma once

#include <cstddef>
#include <cstdint>

namespace xhip {
namespace cudnn {

constexpr int kSuccess = 0;

enum Datatype : int { kFloat = 0, kDouble = 1, kHalf = 2, kBFloat16 = 9 };
constexpr int kLayoutNchw = 0;
constexpr int kCrossCorrelation = 1;
// Plain f32 arithmetic: cuDNN's default would take TF32 on its own.
enum Math : int { kDefaultMath = 0, kTensorOpMath = 1, kFmaMath = 3 };
constexpr int kDeterministic = 1;
constexpr int kMaxAlgorithms = 16;

// cudnnConvolutionFwdAlgoPerf_t and its backward twin.
struct AlgorithmPerf {
  int algorithm;
  int status;
  float time;
  size_t memory;
  int determinism;
  int math;
  int reserved[3];
};
static_assert(sizeof(AlgorithmPerf) == 48, "as in cudnn's headers");

// Backend descriptors: what they are, the attributes that they have, and the types of those.
enum Kind : int {
  kConvolutionKind = 1,
  kEngineKind = 2,
  kEngineConfigKind = 3,
  kHeuristicsKind = 4,
  kExecutionPlanKind = 5,
  kKnobChoiceKind = 7,
  kForwardKind = 10,
  kBackwardDataKind = 12,
  kOperationGraphKind = 15,
  kVariantPackKind = 16,
  kTensorKind = 17,
};

enum Attribute : int {
  kConvolutionComputeType = 100,
  kConvolutionMode = 101,
  kConvolutionDilations = 102,
  kConvolutionStrides = 103,
  kConvolutionPostPaddings = 104,
  kConvolutionPrePaddings = 105,
  kConvolutionSpatialDims = 106,
  kHeuristicsMode = 200,
  kHeuristicsGraph = 201,
  kHeuristicsResults = 202,
  kConfigEngine = 300,
  kConfigKnobs = 302,
  kPlanHandle = 400,
  kPlanConfig = 401,
  kPlanWorkspaceSize = 402,
  kKnobType = 600,
  kKnobValue = 601,
  kForwardAlpha = 700,
  kForwardBeta = 701,
  kForwardConvolution = 702,
  kForwardW = 703,
  kForwardX = 704,
  kForwardY = 705,
  kBackwardDataAlpha = 706,
  kBackwardDataBeta = 707,
  kBackwardDataConvolution = 708,
  kBackwardDataW = 709,
  kBackwardDataDx = 710,
  kBackwardDataDy = 711,
  kGraphHandle = 800,
  kGraphOperations = 801,
  kTensorAlignment = 900,
  kTensorType = 901,
  kTensorDims = 902,
  kTensorStrides = 903,
  kTensorId = 906,
  kPackIds = 1000,
  kPackPointers = 1001,
  kPackWorkspace = 1003,
  kEngineIndex = 1301,
  kEngineNotes = 1303,
};

enum Type : int {
  kHandleType = 0,
  kDataTypeType = 1,
  kInt64Type = 3,
  kFloatType = 4,
  kPointerType = 6,
  kConvolutionModeType = 7,
  kHeuristicsModeType = 8,
  kKnobTypeType = 9,
  kNoteType = 11,
  kDescriptorType = 15,
};

// The first ranks engines by the time that it expects; the second names the slow ones that take nearly everything.
enum HeuristicsMode : int { kModeFallback = 2, kModeA = 3 };

// What an engine says of its arithmetic.
enum Note : int { kTensorCore = 0, kDownConvertsInputs = 1, kReducesInLowPrecision = 2, kNondeterministic = 4 };
constexpr int kMaxNotes = 16;
constexpr int kMaxKnobs = 64;

struct Api {
  int (*cudnnCreate)(void** handle);
  int (*cudnnDestroy)(void* handle);
  int (*cudnnSetStream)(void* handle, void* stream);
  size_t (*cudnnGetVersion)();
  const char* (*cudnnGetErrorString)(int status);
  int (*cudnnCreateTensorDescriptor)(void** desc);
  int (*cudnnDestroyTensorDescriptor)(void* desc);
  int (*cudnnSetTensor4dDescriptor)(void* desc, int layout, int type, int n, int c, int h, int w);
  int (*cudnnCreateFilterDescriptor)(void** desc);
  int (*cudnnDestroyFilterDescriptor)(void* desc);
  int (*cudnnSetFilter4dDescriptor)(void* desc, int type, int layout, int k, int c, int h, int w);
  int (*cudnnCreateConvolutionDescriptor)(void** desc);
  int (*cudnnDestroyConvolutionDescriptor)(void* desc);
  int (*cudnnSetConvolution2dDescriptor)(void* desc, int padH, int padW, int strideH, int strideW, int dilationH,
                                         int dilationW, int mode, int computeType);
  int (*cudnnSetConvolutionMathType)(void* desc, int math);
  int (*cudnnGetConvolutionForwardAlgorithm_v7)(void* handle, void* x, void* w, void* conv, void* y, int requested,
                                                int* returned, AlgorithmPerf* results);
  int (*cudnnGetConvolutionForwardWorkspaceSize)(void* handle, void* x, void* w, void* conv, void* y, int algorithm,
                                                 size_t* bytes);
  int (*cudnnConvolutionForward)(void* handle, const void* alpha, void* xDesc, const void* x, void* wDesc, const void* w,
                                 void* conv, int algorithm, void* workspace, size_t workspaceBytes, const void* beta,
                                 void* yDesc, void* y);
  int (*cudnnGetConvolutionBackwardDataAlgorithm_v7)(void* handle, void* w, void* dy, void* conv, void* dx, int requested,
                                                     int* returned, AlgorithmPerf* results);
  int (*cudnnGetConvolutionBackwardDataWorkspaceSize)(void* handle, void* w, void* dy, void* conv, void* dx, int algorithm,
                                                      size_t* bytes);
  int (*cudnnConvolutionBackwardData)(void* handle, const void* alpha, void* wDesc, const void* w, void* dyDesc,
                                      const void* dy, void* conv, int algorithm, void* workspace, size_t workspaceBytes,
                                      const void* beta, void* dxDesc, void* dx);

  int (*cudnnBackendCreateDescriptor)(int kind, void** desc);
  int (*cudnnBackendDestroyDescriptor)(void* desc);
  int (*cudnnBackendSetAttribute)(void* desc, int name, int type, int64_t count, const void* values);
  int (*cudnnBackendGetAttribute)(void* desc, int name, int type, int64_t requested, int64_t* count, void* values);
  int (*cudnnBackendFinalize)(void* desc);
  int (*cudnnBackendExecute)(void* handle, void* plan, void* variantPack);
};

}  // namespace cudnn
}  // namespace xhip
