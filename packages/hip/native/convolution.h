// Convolutions through a vendor's library: the shape in our terms, and one handle a library and device that plans a shape
// once (descriptors, the algorithm) and runs it as often as wanted.
#pragma once

#include <memory>

#include "blas.h"

namespace xhip {

// A cross-correlation of x [n, c, h, w] with a filter, all contiguous, in two dimensions (one dimension has h = 1).
//   forward     filter [cOut, cIn, kh, kw], y [n, cOut, hOut, wOut]
//   transposed  filter [cIn, cOut, kh, kw], y likewise: the gradient of the forward form with respect to its input
// f16 and bf16 accumulate in f32; `reduced` lets f32 run in TF32. `channelsLast`: all three lie in memory with the channels
// innermost, [n, h, w, c], though their sizes are given as above.
struct ConvolutionShape {
  ScalarType type = ScalarType::F32;
  bool transposed = false;
  bool reduced = false;
  bool channelsLast = false;
  int x[4] = {};
  int filter[4] = {};
  int y[4] = {};
  int padding[2] = {};
  int stride[2] = {};
  int dilation[2] = {};
};

std::string describe(const ConvolutionShape&);

// A plan that needs more is passed over for one with less.
constexpr size_t kMaxConvolutionWorkspace = size_t(1) << 30;
// What cuDNN is told of addresses, in bytes: its engines load and store as many at once.
constexpr size_t kConvolutionAlignment = 16;

class ConvolutionHandle : public VendorHandle {
 public:
  struct Plan {
    virtual ~Plan() = default;
    size_t workspaceBytes = 0;
    std::string algorithm;  // what was chosen, by the library's numbers
  };

  // Throws HipFailure; LIBRARY_ERROR when the library has no algorithm for the shape.
  virtual std::unique_ptr<Plan> plan(const ConvolutionShape& shape, Stream stream) = 0;
  // Enqueues y = x * filter, at aligned addresses. `workspace` has the plan's bytes and may be reused by later work of the stream.
  virtual void run(Plan& plan, DevicePtr x, DevicePtr filter, DevicePtr y, DevicePtr workspace, Stream stream) = 0;

  // Plans under small integers, as JavaScript refers to them.
  struct Entry {
    ConvolutionShape shape;
    std::unique_ptr<Plan> plan;
  };
  Slots<Entry> plans;
};

std::unique_ptr<ConvolutionHandle> createMiOpen(Device&);
std::unique_ptr<ConvolutionHandle> createCuDnn(Device&);

}  // namespace xhip
