// The part of MIOpen that we call, as function pointers: the immediate mode, which is the same in ROCm 5.2, 6 and 7
// (test/library-signatures.ts has the table). No ROCm header is included.
#pragma once

#include <cstddef>
#include <cstdint>

namespace xhip {
namespace miopen {

constexpr int kSuccess = 0;
constexpr int kAllocFailed = 4;

enum Datatype : int { kHalf = 0, kFloat = 1, kBFloat16 = 5 };
constexpr int kConvolution = 0;

struct Solution {
  float time;  // milliseconds, or negative when not measured
  size_t workspaceBytes;
  uint64_t id;
  int algorithm;
};
static_assert(sizeof(Solution) == 32, "as miopenConvSolution_t in miopen.h");

struct Api {
  int (*miopenCreateWithStream)(void** handle, void* stream);
  int (*miopenDestroy)(void* handle);
  int (*miopenSetStream)(void* handle, void* stream);
  int (*miopenGetVersion)(size_t* major, size_t* minor, size_t* patch);
  const char* (*miopenGetErrorString)(int status);
  int (*miopenCreateTensorDescriptor)(void** desc);
  int (*miopenDestroyTensorDescriptor)(void* desc);
  int (*miopenSet4dTensorDescriptor)(void* desc, int type, int n, int c, int h, int w);
  int (*miopenCreateConvolutionDescriptor)(void** desc);
  int (*miopenDestroyConvolutionDescriptor)(void* desc);
  int (*miopenInitConvolutionDescriptor)(void* desc, int mode, int padH, int padW, int strideH, int strideW, int dilationH,
                                         int dilationW);
  int (*miopenConvolutionForwardGetSolutionCount)(void* handle, void* w, void* x, void* conv, void* y, size_t* count);
  int (*miopenConvolutionForwardGetSolution)(void* handle, void* w, void* x, void* conv, void* y, size_t maxCount,
                                             size_t* count, Solution* solutions);
  int (*miopenConvolutionForwardCompileSolution)(void* handle, void* w, void* x, void* conv, void* y, uint64_t id);
  int (*miopenConvolutionForwardImmediate)(void* handle, void* wDesc, const void* w, void* xDesc, const void* x, void* conv,
                                           void* yDesc, void* y, void* workspace, size_t workspaceBytes, uint64_t id);
  int (*miopenConvolutionBackwardDataGetSolutionCount)(void* handle, void* dy, void* w, void* conv, void* dx, size_t* count);
  int (*miopenConvolutionBackwardDataGetSolution)(void* handle, void* dy, void* w, void* conv, void* dx, size_t maxCount,
                                                  size_t* count, Solution* solutions);
  int (*miopenConvolutionBackwardDataCompileSolution)(void* handle, void* dy, void* w, void* conv, void* dx, uint64_t id);
  int (*miopenConvolutionBackwardDataImmediate)(void* handle, void* dyDesc, const void* dy, void* wDesc, const void* w,
                                                void* conv, void* dxDesc, void* dx, void* workspace, size_t workspaceBytes,
                                                uint64_t id);
};

}  // namespace miopen
}  // namespace xhip
