// The part of cuDNN that we call, as function pointers: versions 8 and 9, which still have the descriptor interface of 7.
// No header is included.
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
};

}  // namespace cudnn
}  // namespace xhip
