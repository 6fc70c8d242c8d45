// A stand-in for libMIOpen (see fake_rocblas.cc), immediate mode only. It offers three solutions, of which the fastest
// needs more workspace than is acceptable; the second must be compiled before it runs and given its workspace.
// FAKE_MIOPEN=none offers nothing.
#include "signatures.h"

#include <set>

#include "values.h"

namespace {

struct Handle {
  void* stream;
  std::set<uint64_t> compiled;
};
struct Tensor {
  int type = -1;
  int dims[4] = {};
};
struct Convolution {
  int pad[2], stride[2], dilation[2];
};
int gLive = 0;
constexpr uint64_t kHuge = 41, kGood = 42, kSlow = 43;
constexpr size_t kWorkspace = 1000;

Tensor& tensor(void* desc) { return *static_cast<Tensor*>(desc); }
Convolution& convolution(void* desc) { return *static_cast<Convolution*>(desc); }

// Whether y is what convolving x with w gives.
bool matches(const Tensor& x, const Tensor& w, const Convolution& c, const Tensor& y) {
  if (x.type != w.type || x.type != y.type || x.dims[0] != y.dims[0] || w.dims[0] != y.dims[1] || w.dims[1] != x.dims[1]) return false;
  for (int i = 0; i < 2; i++) {
    const int reach = c.dilation[i] * (w.dims[2 + i] - 1) + 1;
    if ((x.dims[2 + i] + 2 * c.pad[i] - reach) / c.stride[i] + 1 != y.dims[2 + i]) return false;
  }
  return true;
}

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

// Walks every product of the forward convolution: index of y, of x, of w.
template <class F>
void each(const Tensor& x, const Tensor& w, const Convolution& c, const Tensor& y, F visit) {
  const int *xd = x.dims, *wd = w.dims, *yd = y.dims;
  for (int n = 0; n < yd[0]; n++)
    for (int o = 0; o < yd[1]; o++)
      for (int h = 0; h < yd[2]; h++)
        for (int v = 0; v < yd[3]; v++)
          for (int i = 0; i < xd[1]; i++)
            for (int a = 0; a < wd[2]; a++)
              for (int b = 0; b < wd[3]; b++) {
                const int row = h * c.stride[0] - c.pad[0] + a * c.dilation[0];
                const int column = v * c.stride[1] - c.pad[1] + b * c.dilation[1];
                if (row < 0 || row >= xd[2] || column < 0 || column >= xd[3]) continue;
                visit(((int64_t(n) * yd[1] + o) * yd[2] + h) * yd[3] + v, ((int64_t(n) * xd[1] + i) * xd[2] + row) * xd[3] + column,
                      ((int64_t(o) * wd[1] + i) * wd[2] + a) * wd[3] + b);
              }
}

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
  const Format f = formatOf(tensor(xDesc).type);
  const int* d = tensor(yDesc).dims;
  std::string sums(size_t(d[0]) * d[1] * d[2] * d[3] * 8, '\0');
  auto* sum = reinterpret_cast<double*>(&sums[0]);
  each(tensor(xDesc), tensor(wDesc), convolution(conv), tensor(yDesc),
       [&](int64_t yi, int64_t xi, int64_t wi) { sum[yi] += load(f, x, xi) * load(f, w, wi); });
  for (size_t i = 0; i < sums.size() / 8; i++) store(f, y, int64_t(i), sum[i]);
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
  const Format f = formatOf(tensor(dyDesc).type);
  const int* d = tensor(dxDesc).dims;
  std::string sums(size_t(d[0]) * d[1] * d[2] * d[3] * 8, '\0');
  auto* sum = reinterpret_cast<double*>(&sums[0]);
  each(tensor(dxDesc), tensor(wDesc), convolution(conv), tensor(dyDesc),
       [&](int64_t yi, int64_t xi, int64_t wi) { sum[xi] += load(f, dy, yi) * load(f, w, wi); });
  for (size_t i = 0; i < sums.size() / 8; i++) store(f, dx, int64_t(i), sum[i]);
  note("backward");
  return miopenStatusSuccess;
}

}  // extern "C"
