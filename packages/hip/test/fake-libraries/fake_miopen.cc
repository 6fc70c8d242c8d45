// A stand-in for libMIOpen (see fake_rocblas.cc), immediate mode only. It offers three solutions, of which the fastest
// needs more workspace than is acceptable; the second must be compiled before it runs and given its workspace.
// FAKE_MIOPEN=none offers nothing.
#include "signatures.h"

#include <set>

#include "convolutions.h"

namespace {

struct Handle {
  void* stream;
  std::set<uint64_t> compiled;
};
int gLive = 0;
constexpr uint64_t kHuge = 41, kGood = 42, kSlow = 43;
constexpr size_t kWorkspace = 1000;

Tensor& tensor(void* desc) { return *static_cast<Tensor*>(desc); }
Convolution& convolution(void* desc) { return *static_cast<Convolution*>(desc); }

int offer(bool fits, size_t maxCount, size_t* count, Solution* solutions) {
  if (!fits) return miopenStatusBadParm;
  const char* mode = std::getenv("FAKE_MIOPEN");
  const Solution offered[] = {{0.1f, size_t(3) << 30, kHuge, 1}, {0.2f, kWorkspace, kGood, 0}, {0.3f, 0, kSlow, 5}};
  *count = mode && !std::strcmp(mode, "none") ? 0 : 3;
  note("offer");
  if (solutions && maxCount < *count) return miopenStatusInvalidValue;
  for (size_t i = 0; solutions && i < *count; i++) solutions[i] = offered[i];
  return miopenStatusSuccess;
}

bool ready(void* handle, void* workspace, size_t bytes, uint64_t solution) {
  auto* h = static_cast<Handle*>(handle);
  if (!h->stream || solution != kGood || !h->compiled.count(solution) || !workspace || bytes != kWorkspace) return false;
  std::memset(workspace, 0x7f, bytes);
  return true;
}

Format formatOf(int type) { return type == miopenHalf ? Format::F16 : type == miopenBFloat16 ? Format::BF16 : Format::F32; }

}  // namespace

extern "C" {

miopenStatus_t miopenCreateWithStream(miopenHandle_t* handle, miopenAcceleratorQueue_t stream) {
  if (!stream) return miopenStatusBadParm;
  note("create");
  return *handle = new Handle{stream, {}}, miopenStatusSuccess;
}
miopenStatus_t miopenDestroy(miopenHandle_t handle) {
  delete static_cast<Handle*>(handle);
  note("destroy, left over " + std::to_string(gLive));
  return miopenStatusSuccess;
}
miopenStatus_t miopenSetStream(miopenHandle_t handle, miopenAcceleratorQueue_t stream) {
  note("stream");
  return static_cast<Handle*>(handle)->stream = stream, miopenStatusSuccess;
}
miopenStatus_t miopenGetVersion(size_t* major, size_t* minor, size_t* patch) { return *major = 3, *minor = 2, *patch = 1, miopenStatusSuccess; }
const char* miopenGetErrorString(miopenStatus_t status) { return status == miopenStatusBadParm ? "miopenStatusBadParm" : "miopenStatusOther"; }
miopenStatus_t miopenCreateTensorDescriptor(miopenTensorDescriptor_t* desc) { return gLive++, *desc = new Tensor, miopenStatusSuccess; }
miopenStatus_t miopenDestroyTensorDescriptor(miopenTensorDescriptor_t desc) {
  return gLive--, delete static_cast<Tensor*>(desc), miopenStatusSuccess;
}
miopenStatus_t miopenSet4dTensorDescriptor(miopenTensorDescriptor_t desc, miopenDataType_t type, int n, int c, int h, int w) {
  if (type != miopenHalf && type != miopenFloat && type != miopenBFloat16) return miopenStatusBadParm;
  tensor(desc) = Tensor{type, {n, c, h, w}};
  return miopenStatusSuccess;
}
miopenStatus_t miopenCreateConvolutionDescriptor(miopenConvolutionDescriptor_t* desc) { return gLive++, *desc = new Convolution, miopenStatusSuccess; }
miopenStatus_t miopenDestroyConvolutionDescriptor(miopenConvolutionDescriptor_t desc) {
  return gLive--, delete static_cast<Convolution*>(desc), miopenStatusSuccess;
}
miopenStatus_t miopenInitConvolutionDescriptor(miopenConvolutionDescriptor_t desc, miopenConvolutionMode_t mode, int padH, int padW, int strideH,
                                               int strideW, int dilationH, int dilationW) {
  if (mode != miopenConvolution) return miopenStatusBadParm;
  convolution(desc) = Convolution{{padH, padW}, {strideH, strideW}, {dilationH, dilationW}};
  return miopenStatusSuccess;
}

miopenStatus_t miopenConvolutionForwardGetSolutionCount(miopenHandle_t, miopenTensorDescriptor_t w, miopenTensorDescriptor_t x,
                                                        miopenConvolutionDescriptor_t c, miopenTensorDescriptor_t y, size_t* count) {
  return offer(matches(tensor(x), tensor(w), convolution(c), tensor(y)), 0, count, nullptr);
}
miopenStatus_t miopenConvolutionForwardGetSolution(miopenHandle_t, miopenTensorDescriptor_t w, miopenTensorDescriptor_t x,
                                                   miopenConvolutionDescriptor_t c, miopenTensorDescriptor_t y, size_t maxCount, size_t* count,
                                                   miopenConvSolution_t* solutions) {
  return offer(matches(tensor(x), tensor(w), convolution(c), tensor(y)), maxCount, count, solutions);
}
miopenStatus_t miopenConvolutionForwardCompileSolution(miopenHandle_t handle, miopenTensorDescriptor_t, miopenTensorDescriptor_t,
                                                       miopenConvolutionDescriptor_t, miopenTensorDescriptor_t, uint64_t id) {
  return static_cast<Handle*>(handle)->compiled.insert(id), miopenStatusSuccess;
}
miopenStatus_t miopenConvolutionForwardImmediate(miopenHandle_t handle, miopenTensorDescriptor_t wDesc, const void* w, miopenTensorDescriptor_t xDesc,
                                                 const void* x, miopenConvolutionDescriptor_t conv, miopenTensorDescriptor_t yDesc, void* y,
                                                 void* workspace, size_t bytes, uint64_t id) {
  if (!ready(handle, workspace, bytes, id)) return miopenStatusBadParm;
  convolveForward(formatOf(tensor(xDesc).type), tensor(xDesc), x, tensor(wDesc), w, convolution(conv), tensor(yDesc), y);
  note("forward");
  return miopenStatusSuccess;
}

// dy [n, k, ...], w [k, c, ...], dx [n, c, ...]: dx is the forward form's x, dy its y.
miopenStatus_t miopenConvolutionBackwardDataGetSolutionCount(miopenHandle_t, miopenTensorDescriptor_t dy, miopenTensorDescriptor_t w,
                                                             miopenConvolutionDescriptor_t c, miopenTensorDescriptor_t dx, size_t* count) {
  return offer(matches(tensor(dx), tensor(w), convolution(c), tensor(dy)), 0, count, nullptr);
}
miopenStatus_t miopenConvolutionBackwardDataGetSolution(miopenHandle_t, miopenTensorDescriptor_t dy, miopenTensorDescriptor_t w,
                                                        miopenConvolutionDescriptor_t c, miopenTensorDescriptor_t dx, size_t maxCount, size_t* count,
                                                        miopenConvSolution_t* solutions) {
  return offer(matches(tensor(dx), tensor(w), convolution(c), tensor(dy)), maxCount, count, solutions);
}
miopenStatus_t miopenConvolutionBackwardDataCompileSolution(miopenHandle_t handle, miopenTensorDescriptor_t, miopenTensorDescriptor_t,
                                                            miopenConvolutionDescriptor_t, miopenTensorDescriptor_t, uint64_t id) {
  return static_cast<Handle*>(handle)->compiled.insert(id), miopenStatusSuccess;
}
miopenStatus_t miopenConvolutionBackwardDataImmediate(miopenHandle_t handle, miopenTensorDescriptor_t dyDesc, const void* dy,
                                                      miopenTensorDescriptor_t wDesc, const void* w, miopenConvolutionDescriptor_t conv,
                                                      miopenTensorDescriptor_t dxDesc, void* dx, void* workspace, size_t bytes, uint64_t id) {
  if (!ready(handle, workspace, bytes, id)) return miopenStatusBadParm;
  convolveBackward(formatOf(tensor(dyDesc).type), tensor(dyDesc), dy, tensor(wDesc), w, convolution(conv), tensor(dxDesc), dx);
  note("backward");
  return miopenStatusSuccess;
}

}  // extern "C"
