// Vendor libraries for JavaScript: reports, and products and convolutions on a device. Numbers of a problem come in one
// Float64Array, so a product is one native call; each operand's range is checked against the device's allocations.
#include <cmath>
#include <cstring>

#include "addon.h"
#include "convolution.h"

namespace xhip {
namespace {

LibraryId libraryArg(const Napi::CallbackInfo& info, size_t index) {
  const uint32_t id = u32(info, index);
  if (id >= kLibraryCount) invalidArgument("", "there is no library " + std::to_string(id));
  return LibraryId(id);
}

// library(id) => { available, library, version, searched, code, message, remedy }
Napi::Value library(const Napi::CallbackInfo& info) {
  Napi::Env env = info.Env();
  const LibraryInfo found = findLibrary(libraryArg(info, 0));
  Napi::Array searched = Napi::Array::New(env, found.searched.size());
  for (size_t i = 0; i < found.searched.size(); i++) searched.Set(uint32_t(i), Napi::String::New(env, found.searched[i]));
  Napi::Object out = Napi::Object::New(env);
  out.Set("available", found.available);
  out.Set("library", found.library);
  out.Set("version", found.version);
  out.Set("searched", searched);
  out.Set("code", found.code);
  out.Set("message", found.message);
  out.Set("remedy", found.remedy);
  return out;
}

std::unique_ptr<VendorHandle> create(LibraryId id, Device& device) {
  switch (id) {
    case LibraryId::RocBlas: return createRocBlas(device);
    case LibraryId::HipBlasLt: return createHipBlasLt(device);
    case LibraryId::MiOpen: return createMiOpen(device);
    case LibraryId::CuBlas: return createCuBlas(device);
    case LibraryId::CuDnn: return createCuDnn(device);
    case LibraryId::OpenBlas: return createOpenBlas(device);
    case LibraryId::Rccl:
    case LibraryId::Nccl: invalidArgument(device.platformText(), "libraries of collectives are opened by joining a group");
  }
  invalidArgument("", "there is no such library");
}

// libraryOpen(device, id): the handle, once a device.
Napi::Value libraryOpen(const Napi::CallbackInfo& info) {
  Device& device = deviceArg(info);
  device.enter();
  const LibraryId id = libraryArg(info, 1);
  if (libraryPlatform(id) != device.platform()) {
    invalidArgument(device.platformText(), std::string(libraryName(id)) + " works on " + platformName(libraryPlatform(id)) +
                                               " devices. Choose a library of libraryReports('" + device.platformText() + "')");
  }
  auto& handle = device.libraries[uint32_t(id)];
  if (handle) return info.Env().Undefined();
  if (device.counting().anyCapturing()) {
    invalidArgument(device.platformText(), std::string("opening ") + libraryName(id) + " while a stream is being captured: it "
                                               "allocates and loads code. Run one product or convolution before beginCapture()");
  }
  handle = create(id, device);
  return info.Env().Undefined();
}

VendorHandle& openHandle(const Napi::CallbackInfo& info, Device& device) {
  device.enter();
  const LibraryId id = libraryArg(info, 1);
  auto& handle = device.libraries[uint32_t(id)];
  if (!handle) invalidArgument(device.platformText(), std::string(libraryName(id)) + " is not open on this device. Open it first");
  return *handle;
}

bool isConvolution(LibraryId id) { return id == LibraryId::MiOpen || id == LibraryId::CuDnn; }

BlasHandle& blasArg(const Napi::CallbackInfo& info, Device& device) {
  VendorHandle& handle = openHandle(info, device);
  if (isConvolution(libraryArg(info, 1))) invalidArgument(device.platformText(), "a convolution library multiplies no matrices");
  return static_cast<BlasHandle&>(handle);
}

ConvolutionHandle& convolutionArg(const Napi::CallbackInfo& info, Device& device) {
  VendorHandle& handle = openHandle(info, device);
  if (!isConvolution(libraryArg(info, 1))) invalidArgument(device.platformText(), "a BLAS library has no convolutions");
  return static_cast<ConvolutionHandle&>(handle);
}

// The words of a Float64Array as integers, in order.
class Words {
 public:
  Words(const Napi::CallbackInfo& info, size_t index, size_t count) : view_(view(info, index)) {
    if (view_.bytes != count * sizeof(double)) {
      invalidArgument("", "argument " + std::to_string(index) + " must hold " + std::to_string(count) + " numbers");
    }
  }
  int64_t next(int64_t limit = int64_t(1) << 53) {
    double value = 0;
    std::memcpy(&value, view_.data + at_ * sizeof value, sizeof value);
    at_++;
    if (!(value >= 0) || value > double(limit) || std::floor(value) != value) {
      invalidArgument("", "number " + std::to_string(at_ - 1) + " of a library call is not an integer from 0 to " +
                              std::to_string(limit));
    }
    return int64_t(value);
  }
  int nextInt() { return int(next(INT32_MAX)); }

 private:
  View view_;
  size_t at_ = 0;
};

GemmOperand nextOperand(Words& words) {
  GemmOperand operand;
  operand.pointer = DevicePtr(words.next());
  operand.transposed = words.next(1) == 1;
  operand.ld = words.nextInt();
  operand.batchStride = words.next();
  return operand;
}

// rows and columns as multiplied; stored the other way round when transposed.
void checkOperand(Addon& addon, Device& device, const GemmOperand& o, const GemmProblem& p, int64_t rows, int64_t columns, const char* what) {
  const int64_t inner = o.transposed ? rows : columns;
  const int64_t outer = o.transposed ? columns : rows;
  if (o.ld < inner) {
    invalidArgument(device.platformText(), std::string(what) + ": a leading dimension of " + std::to_string(o.ld) + " is less than " +
                                               std::to_string(inner) + " elements. Give the distance between rows (columns when transposed)");
  }
  // In doubles: the products may pass 2^63.
  const double extent = double(p.batch - 1) * double(o.batchStride) + double(outer - 1) * double(o.ld) + double(inner);
  if (extent > 1e18) invalidArgument(device.platformText(), std::string(what) + " reaches past any memory");
  requireRange(addon, device, o.pointer, size_t(extent) * bytesOf(p.type), what);
}

// gemm(device, library, stream, [type, outType, reduced, batch, m, n, k, lhs: pointer, transposed, ld, batchStride, rhs:
// the same, out])
Napi::Value gemm(const Napi::CallbackInfo& info) {
  Device& device = deviceArg(info);
  BlasHandle& blas = blasArg(info, device);
  Stream stream = device.stream(u32(info, 2));
  Words words(info, 3, 16);
  GemmProblem p;
  p.type = ScalarType(words.next(kScalarTypeCount - 1));
  p.outType = ScalarType(words.next(kScalarTypeCount - 1));
  p.reduced = words.next(1) == 1;
  p.batch = words.nextInt();
  p.m = words.nextInt();
  p.n = words.nextInt();
  p.k = words.nextInt();
  p.lhs = nextOperand(words);
  p.rhs = nextOperand(words);
  p.out = DevicePtr(words.next());
  if (p.batch < 1 || p.m < 1 || p.n < 1 || p.k < 1) {
    invalidArgument(device.platformText(), "gemm: batch, m, n and k must be at least 1. Skip empty products");
  }
  if (!blas.takes(p.type, p.outType)) {
    invalidArgument(device.platformText(), std::string(libraryName(libraryArg(info, 1))) + " has no product of " + nameOf(p.type) +
                                               " with a result in " + nameOf(p.outType) + ". Convert the operands, or use the kernels");
  }
  Addon& addon = addonOf(info.Env());
  checkOperand(addon, device, p.lhs, p, p.m, p.k, "gemm's left matrix");
  checkOperand(addon, device, p.rhs, p, p.k, p.n, "gemm's right matrix");
  const double results = double(p.batch) * double(p.m) * double(p.n);
  if (results > 1e18) invalidArgument(device.platformText(), "gemm's result reaches past any memory");
  requireRange(addon, device, p.out, size_t(results) * bytesOf(p.outType), "gemm's result");
  blas.gemm(device, p, stream);
  // The host's task has been counted and waited for already.
  const Status status = device.platform() == Platform::Host ? 0 : device.counting().libraryCalled(0, stream);
  if (status != 0) device.check(Call::Library, status, describe(p));
  return info.Env().Undefined();
}

// gemmTakes(device, library, type, outType) => whether the library multiplies these
Napi::Value gemmTakes(const Napi::CallbackInfo& info) {
  Device& device = deviceArg(info);
  BlasHandle& blas = blasArg(info, device);
  const uint32_t type = u32(info, 2);
  const uint32_t outType = u32(info, 3);
  if (type >= kScalarTypeCount || outType >= kScalarTypeCount) invalidArgument(device.platformText(), "there is no such type");
  return Napi::Boolean::New(info.Env(), blas.takes(ScalarType(type), ScalarType(outType)));
}

// gemmWorkspace(device, library, pointer, bytes)
Napi::Value gemmWorkspace(const Napi::CallbackInfo& info) {
  Device& device = deviceArg(info);
  BlasHandle& blas = blasArg(info, device);
  const DevicePtr pointer = DevicePtr(u64(info, 2));
  const size_t bytes = size_t(u64(info, 3));
  requireRange(addonOf(info.Env()), device, pointer, bytes, "a workspace");
  blas.setWorkspace(pointer, bytes);
  return info.Env().Undefined();
}

// convolutionPlan(device, library, stream, [type, transposed, reduced, x 4, filter 4, y 4, padding 2, stride 2, dilation 2])
// => [plan, workspace bytes, algorithm]
Napi::Value convolutionPlan(const Napi::CallbackInfo& info) {
  Napi::Env env = info.Env();
  Device& device = deviceArg(info);
  ConvolutionHandle& handle = convolutionArg(info, device);
  Stream stream = device.stream(u32(info, 2));
  if (device.counting().anyCapturing()) {
    invalidArgument(device.platformText(), "planning a convolution while a stream is being captured: it loads code. Run the "
                                           "convolution once before beginCapture()");
  }
  Words words(info, 3, 22);
  ConvolutionShape shape;
  shape.type = ScalarType(words.next(uint32_t(ScalarType::F32)));
  shape.transposed = words.next(1) == 1;
  shape.reduced = words.next(1) == 1;
  shape.channelsLast = words.next(1) == 1;
  for (int* list : {shape.x, shape.filter, shape.y}) {
    for (int i = 0; i < 4; i++) {
      list[i] = words.nextInt();
      if (list[i] < 1) invalidArgument(device.platformText(), "a convolution's sizes must be at least 1. Skip empty ones");
    }
  }
  for (int* list : {shape.padding, shape.stride, shape.dilation}) {
    for (int i = 0; i < 2; i++) list[i] = words.nextInt();
    if (list != shape.padding && (list[0] < 1 || list[1] < 1)) {
      invalidArgument(device.platformText(), "a convolution's strides and dilations must be at least 1");
    }
  }
  ConvolutionHandle::Entry entry;
  entry.shape = shape;
  entry.plan = handle.plan(shape, stream);
  const double bytes = double(entry.plan->workspaceBytes);
  const std::string algorithm = entry.plan->algorithm;
  Napi::Array out = Napi::Array::New(env, 3);
  out.Set(0u, double(handle.plans.add(std::move(entry))));
  out.Set(1u, bytes);
  out.Set(2u, algorithm);
  return out;
}

size_t tensorBytes(const ConvolutionShape& shape, const int* dims) {
  size_t count = 1;
  for (int i = 0; i < 4; i++) count *= size_t(dims[i]);
  return count * bytesOf(shape.type);
}

// convolutionRun(device, library, stream, plan, x, filter, y, workspace)
Napi::Value convolutionRun(const Napi::CallbackInfo& info) {
  Device& device = deviceArg(info);
  ConvolutionHandle& handle = convolutionArg(info, device);
  Stream stream = device.stream(u32(info, 2));
  ConvolutionHandle::Entry* entry = handle.plans.find(u32(info, 3));
  if (!entry) invalidArgument(device.platformText(), "the convolution's plan was dropped. Plan the shape again");
  const DevicePtr x = DevicePtr(u64(info, 4));
  const DevicePtr filter = DevicePtr(u64(info, 5));
  const DevicePtr y = DevicePtr(u64(info, 6));
  const DevicePtr workspace = DevicePtr(u64(info, 7));
  if ((x | filter | y | workspace) % kConvolutionAlignment != 0) {
    invalidArgument(device.platformText(), "a convolution's tensors and workspace must start at multiples of " +
                                               std::to_string(kConvolutionAlignment) + " bytes. Copy what does not");
  }
  Addon& addon = addonOf(info.Env());
  requireRange(addon, device, x, tensorBytes(entry->shape, entry->shape.x), "a convolution's input");
  requireRange(addon, device, filter, tensorBytes(entry->shape, entry->shape.filter), "a convolution's filter");
  requireRange(addon, device, y, tensorBytes(entry->shape, entry->shape.y), "a convolution's result");
  if (entry->plan->workspaceBytes > 0) requireRange(addon, device, workspace, entry->plan->workspaceBytes, "a convolution's workspace");
  handle.run(*entry->plan, x, filter, y, workspace, stream);
  const Status status = device.counting().libraryCalled(0, stream);
  if (status != 0) device.check(Call::Library, status, describe(entry->shape));
  return info.Env().Undefined();
}

// convolutionDrop(device, library, plan)
Napi::Value convolutionDrop(const Napi::CallbackInfo& info) {
  Device& device = deviceArg(info);
  (void)convolutionArg(info, device).plans.remove(u32(info, 2));
  return info.Env().Undefined();
}

// streamCapturing(device, stream)
Napi::Value streamCapturing(const Napi::CallbackInfo& info) {
  Device& device = deviceArg(info);
  device.enter();
  return Napi::Boolean::New(info.Env(), device.counting().capturing(device.stream(u32(info, 1))));
}

}  // namespace

void exportLibraries(Napi::Env env, Napi::Object exports) {
  exports.Set("library", Napi::Function::New<guarded<library>>(env));
  exports.Set("libraryOpen", Napi::Function::New<guarded<libraryOpen>>(env));
  exports.Set("gemm", Napi::Function::New<guarded<gemm>>(env));
  exports.Set("gemmTakes", Napi::Function::New<guarded<gemmTakes>>(env));
  exports.Set("gemmWorkspace", Napi::Function::New<guarded<gemmWorkspace>>(env));
  exports.Set("convolutionPlan", Napi::Function::New<guarded<convolutionPlan>>(env));
  exports.Set("convolutionRun", Napi::Function::New<guarded<convolutionRun>>(env));
  exports.Set("convolutionDrop", Napi::Function::New<guarded<convolutionDrop>>(env));
  exports.Set("streamCapturing", Napi::Function::New<guarded<streamCapturing>>(env));
}

}  // namespace xhip
