// A stand-in for libcudnn (see fake_rocblas.cc): the descriptor interface of version 7 here, operation graphs in
// cudnn_graphs.h unless FAKE_WITHOUT_GRAPHS is defined. Each names its choices as the real one does: the fastest first,
// among them some that break our terms. FAKE_CUDNN=noplan makes every graph's plan fail; =none offers no algorithm either.
#include "signatures.h"

#include "convolutions.h"

namespace {

struct Handle {
  void* stream = nullptr;
};
int gLive = 0;
constexpr size_t kWorkspace = 1000;

bool mode(const char* name) {
  const char* set = std::getenv("FAKE_CUDNN");
  return set && !std::strcmp(set, name);
}
Format formatOf(int type) {
  return type == CUDNN_DATA_HALF ? Format::F16 : type == CUDNN_DATA_BFLOAT16 ? Format::BF16 : Format::F32;
}
bool known(int type) { return type == CUDNN_DATA_FLOAT || type == CUDNN_DATA_HALF || type == CUDNN_DATA_BFLOAT16; }

}  // namespace

#ifndef FAKE_WITHOUT_GRAPHS
#include "cudnn_graphs.h"
#endif

namespace {

struct LegacyConvolution : Convolution {
  int math = CUDNN_DEFAULT_MATH;
};
Tensor& tensor(void* desc) { return *static_cast<Tensor*>(desc); }
LegacyConvolution& convolution(void* desc) { return *static_cast<LegacyConvolution*>(desc); }
constexpr int kNondeterministic = 0, kHuge = 3, kGood = 1;

int offer(bool fits, int requested, int* returned, AlgorithmPerf* results, const LegacyConvolution& c) {
  if (!fits || requested < 4) return CUDNN_STATUS_BAD_PARAM;
  const AlgorithmPerf offered[] = {{kNondeterministic, CUDNN_STATUS_SUCCESS, 0.1f, 0, CUDNN_NON_DETERMINISTIC, c.math, {}},
                                   {kHuge, CUDNN_STATUS_SUCCESS, 0.2f, size_t(3) << 30, CUDNN_DETERMINISTIC, c.math, {}},
                                   {kGood, CUDNN_STATUS_SUCCESS, 0.3f, 0, CUDNN_DETERMINISTIC, CUDNN_TENSOR_OP_MATH, {}},
                                   {kGood, CUDNN_STATUS_SUCCESS, 0.4f, kWorkspace, CUDNN_DETERMINISTIC, CUDNN_FMA_MATH, {}}};
  note("offer");
  *returned = mode("none") ? 0 : 4;
  for (int i = 0; i < *returned; i++) results[i] = offered[i];
  return CUDNN_STATUS_SUCCESS;
}
int size(int algorithm, size_t* bytes) {
  *bytes = algorithm == kGood ? kWorkspace : 0;
  return CUDNN_STATUS_SUCCESS;
}
bool ready(void* handle, const void* alpha, int algorithm, void* workspace, size_t bytes, const void* beta) {
  if (!static_cast<Handle*>(handle)->stream || algorithm != kGood || !workspace || bytes != kWorkspace) return false;
  std::memset(workspace, 0x7f, bytes);
  return *static_cast<const float*>(alpha) == 1 && *static_cast<const float*>(beta) == 0;
}
const char* mathOf(const LegacyConvolution& c) { return c.math == CUDNN_FMA_MATH ? " fma" : " tensor"; }

}  // namespace

extern "C" {

size_t cudnnGetVersion() { return 91400; }
const char* cudnnGetErrorString(cudnnStatus_t status) { return status == CUDNN_STATUS_BAD_PARAM ? "CUDNN_STATUS_BAD_PARAM" : "CUDNN_STATUS_OTHER"; }
cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) { return *handle = new Handle, CUDNN_STATUS_SUCCESS; }
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  delete static_cast<Handle*>(handle);
  note("destroy, left over " + std::to_string(gLive));
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  return static_cast<Handle*>(handle)->stream = stream, CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* desc) { return gLive++, *desc = new Tensor, CUDNN_STATUS_SUCCESS; }
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t desc) { return gLive--, delete &tensor(desc), CUDNN_STATUS_SUCCESS; }
cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t desc, cudnnTensorFormat_t layout, cudnnDataType_t type, int n, int c, int h, int w) {
  if (layout != CUDNN_TENSOR_NCHW || !known(type)) return CUDNN_STATUS_BAD_PARAM;
  return tensor(desc) = Tensor{type, {n, c, h, w}}, CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* desc) { return cudnnCreateTensorDescriptor(desc); }
cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t desc) { return cudnnDestroyTensorDescriptor(desc); }
cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t desc, cudnnDataType_t type, cudnnTensorFormat_t layout, int k, int c, int h, int w) {
  return cudnnSetTensor4dDescriptor(desc, layout, type, k, c, h, w);
}
cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t* desc) { return gLive++, *desc = new LegacyConvolution, CUDNN_STATUS_SUCCESS; }
cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t desc) { return gLive--, delete &convolution(desc), CUDNN_STATUS_SUCCESS; }
cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t desc, int padH, int padW, int strideH, int strideW, int dilationH,
                                              int dilationW, cudnnConvolutionMode_t mode, cudnnDataType_t type) {
  if (mode != CUDNN_CROSS_CORRELATION || type != CUDNN_DATA_FLOAT) return CUDNN_STATUS_BAD_PARAM;
  static_cast<Convolution&>(convolution(desc)) = Convolution{{padH, padW}, {strideH, strideW}, {dilationH, dilationW}};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t desc, cudnnMathType_t math) {
  return convolution(desc).math = math, CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t, cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t w,
                                                     cudnnConvolutionDescriptor_t c, cudnnTensorDescriptor_t y, int requested, int* returned,
                                                     cudnnConvolutionFwdAlgoPerf_t* results) {
  return offer(matches(tensor(x), tensor(w), convolution(c), tensor(y)), requested, returned, results, convolution(c));
}
cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(cudnnHandle_t, cudnnTensorDescriptor_t, cudnnFilterDescriptor_t, cudnnConvolutionDescriptor_t,
                                                      cudnnTensorDescriptor_t, cudnnConvolutionFwdAlgo_t algorithm, size_t* bytes) {
  return size(algorithm, bytes);
}
cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void* alpha, cudnnTensorDescriptor_t xDesc, const void* x,
                                      cudnnFilterDescriptor_t wDesc, const void* w, cudnnConvolutionDescriptor_t conv,
                                      cudnnConvolutionFwdAlgo_t algorithm, void* workspace, size_t bytes, const void* beta,
                                      cudnnTensorDescriptor_t yDesc, void* y) {
  if (!ready(handle, alpha, algorithm, workspace, bytes, beta)) return CUDNN_STATUS_BAD_PARAM;
  const Tensor& t = tensor(xDesc);
  convolveForward(formatOf(t.type), t, x, tensor(wDesc), w, convolution(conv), tensor(yDesc), y);
  note(std::string("forward, descriptors") + mathOf(convolution(conv)));
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(cudnnHandle_t, cudnnFilterDescriptor_t w, cudnnTensorDescriptor_t dy,
                                                          cudnnConvolutionDescriptor_t c, cudnnTensorDescriptor_t dx, int requested, int* returned,
                                                          cudnnConvolutionBwdDataAlgoPerf_t* results) {
  return offer(matches(tensor(dx), tensor(w), convolution(c), tensor(dy)), requested, returned, results, convolution(c));
}
cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(cudnnHandle_t, cudnnFilterDescriptor_t, cudnnTensorDescriptor_t,
                                                           cudnnConvolutionDescriptor_t, cudnnTensorDescriptor_t,
                                                           cudnnConvolutionBwdDataAlgo_t algorithm, size_t* bytes) {
  return size(algorithm, bytes);
}
cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void* alpha, cudnnFilterDescriptor_t wDesc, const void* w,
                                           cudnnTensorDescriptor_t dyDesc, const void* dy, cudnnConvolutionDescriptor_t conv,
                                           cudnnConvolutionBwdDataAlgo_t algorithm, void* workspace, size_t bytes, const void* beta,
                                           cudnnTensorDescriptor_t dxDesc, void* dx) {
  if (!ready(handle, alpha, algorithm, workspace, bytes, beta)) return CUDNN_STATUS_BAD_PARAM;
  const Tensor& t = tensor(dyDesc);
  convolveBackward(formatOf(t.type), t, dy, tensor(wDesc), w, convolution(conv), tensor(dxDesc), dx);
  note(std::string("backward, descriptors") + mathOf(convolution(conv)));
  return CUDNN_STATUS_SUCCESS;
}

}  // extern "C"
