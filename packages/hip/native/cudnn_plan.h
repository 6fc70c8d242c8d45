// What cudnn.cc and cudnn_graph.cc share: a planned convolution, and the failure of a call.
#pragma once

#include "convolution.h"
#include "cudnn_api.h"

namespace xhip {
namespace cudnn {

struct CuDnnPlan : ConvolutionHandle::Plan {
  // On the handle's stream.
  virtual void enqueue(void* handle, void* x, void* filter, void* y, void* workspace) = 0;
};

inline void check(const Api& api, const char* call, int status, const std::string& context = "") {
  if (status != kSuccess) throwLibraryFailure(LibraryId::CuDnn, call, status, api.cudnnGetErrorString(status), context);
}

// The convolution as an operation graph, or null when the library has no graphs or no engine that keeps our terms.
std::unique_ptr<CuDnnPlan> planGraph(const Api& api, void* handle, const ConvolutionShape& shape);

}  // namespace cudnn
}  // namespace xhip
