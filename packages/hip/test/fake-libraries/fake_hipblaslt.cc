// A stand-in for libhipblaslt (see fake_rocblas.cc). Descriptors and layouts are checked and kept; the algorithm that it
// suggests must come back with the product. FAKE_HIPBLASLT=old says version 0.5, =none has no algorithm.
#include "signatures.h"

#include "values.h"

namespace {

struct Desc {
  int compute, scale;
  int32_t trans[2] = {HIPBLAS_OP_N, HIPBLAS_OP_N};
};
struct Layout {
  int type;
  uint64_t rows, columns;
  int64_t ld;
  int32_t batch = 1;
  int64_t stride = 0;
};
struct Preference {
  uint64_t workspace = 0;
};
int gLive = 0;  // descriptors, layouts and preferences

bool mode(const char* name) {
  const char* value = std::getenv("FAKE_HIPBLASLT");
  return value && !std::strcmp(value, name);
}

bool formatOf(int type, Format* f) {
  switch (type) {
    case HIP_R_16F: return *f = Format::F16, true;
    case HIP_R_16BF: return *f = Format::BF16, true;
    case HIP_R_32F: return *f = Format::F32, true;
    case HIP_R_64F: return *f = Format::F64, true;
  }
  return false;
}

template <class T>
int create(void** out, T* made) {
  gLive++;
  return *out = made, HIPBLAS_STATUS_SUCCESS;
}
template <class T>
int destroy(void* object) {
  gLive--;
  delete static_cast<T*>(object);
  return HIPBLAS_STATUS_SUCCESS;
}

}  // namespace

extern "C" {

hipblasStatus_t hipblasLtCreate(hipblasLtHandle_t* handle) { return *handle = new int(7), HIPBLAS_STATUS_SUCCESS; }
hipblasStatus_t hipblasLtDestroy(hipblasLtHandle_t handle) {
  delete static_cast<int*>(handle);
  note("destroy, left over " + std::to_string(gLive));
  return HIPBLAS_STATUS_SUCCESS;
}
hipblasStatus_t hipblasLtGetVersion(hipblasLtHandle_t, int* version) { return *version = mode("old") ? 500 : 1202, HIPBLAS_STATUS_SUCCESS; }
hipblasStatus_t hipblasLtMatmulDescCreate(hipblasLtMatmulDesc_t* desc, hipblasComputeType_t compute, hipDataType scale) {
  return create(desc, new Desc{compute, scale});
}
hipblasStatus_t hipblasLtMatmulDescDestroy(hipblasLtMatmulDesc_t desc) { return destroy<Desc>(desc); }
hipblasStatus_t hipblasLtMatmulDescSetAttribute(hipblasLtMatmulDesc_t desc, hipblasLtMatmulDescAttributes_t which, const void* value,
                                                size_t bytes) {
  if (bytes != 4 || (which != HIPBLASLT_MATMUL_DESC_TRANSA && which != HIPBLASLT_MATMUL_DESC_TRANSB)) return HIPBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&static_cast<Desc*>(desc)->trans[which], value, bytes);
  return HIPBLAS_STATUS_SUCCESS;
}
hipblasStatus_t hipblasLtMatrixLayoutCreate(hipblasLtMatrixLayout_t* layout, hipDataType type, uint64_t rows, uint64_t columns, int64_t ld) {
  if (ld < int64_t(rows)) return HIPBLAS_STATUS_INVALID_VALUE;
  return create(layout, new Layout{type, rows, columns, ld});
}
hipblasStatus_t hipblasLtMatrixLayoutDestroy(hipblasLtMatrixLayout_t layout) { return destroy<Layout>(layout); }
hipblasStatus_t hipblasLtMatrixLayoutSetAttribute(hipblasLtMatrixLayout_t layout, hipblasLtMatrixLayoutAttribute_t which, const void* value,
                                                  size_t bytes) {
  auto* l = static_cast<Layout*>(layout);
  if (which == HIPBLASLT_MATRIX_LAYOUT_BATCH_COUNT && bytes == 4) return std::memcpy(&l->batch, value, 4), HIPBLAS_STATUS_SUCCESS;
  if (which == HIPBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET && bytes == 8) return std::memcpy(&l->stride, value, 8), HIPBLAS_STATUS_SUCCESS;
  return HIPBLAS_STATUS_INVALID_VALUE;
}
hipblasStatus_t hipblasLtMatmulPreferenceCreate(hipblasLtMatmulPreference_t* preference) { return create(preference, new Preference); }
hipblasStatus_t hipblasLtMatmulPreferenceDestroy(hipblasLtMatmulPreference_t preference) { return destroy<Preference>(preference); }
hipblasStatus_t hipblasLtMatmulPreferenceSetAttribute(hipblasLtMatmulPreference_t preference, hipblasLtMatmulPreferenceAttributes_t which,
                                                      const void* value, size_t bytes) {
  if (which != HIPBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES || bytes != 8) return HIPBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&static_cast<Preference*>(preference)->workspace, value, bytes);
  return HIPBLAS_STATUS_SUCCESS;
}
hipblasStatus_t hipblasLtMatmulAlgoGetHeuristic(hipblasLtHandle_t, hipblasLtMatmulDesc_t, hipblasLtMatrixLayout_t, hipblasLtMatrixLayout_t,
                                                hipblasLtMatrixLayout_t, hipblasLtMatrixLayout_t, hipblasLtMatmulPreference_t preference,
                                                int requested, hipblasLtMatmulHeuristicResult_t* results, int* returned) {
  if (requested != 1 || static_cast<Preference*>(preference)->workspace == 0) return HIPBLAS_STATUS_INVALID_VALUE;
  note("heuristic");
  *returned = mode("none") ? 0 : 1;
  std::memset(results, 0, sizeof *results);
  std::memcpy(results->algo.data, "chosen algorithm", 16);
  results->algo.max_workspace_bytes = 4096;
  results->workspaceSize = 4096;
  return HIPBLAS_STATUS_SUCCESS;
}

hipblasStatus_t hipblasLtMatmul(hipblasLtHandle_t, hipblasLtMatmulDesc_t desc, const void* alpha, const void* a, hipblasLtMatrixLayout_t aLayout,
                                const void* b, hipblasLtMatrixLayout_t bLayout, const void* beta, const void* c,
                                hipblasLtMatrixLayout_t cLayout, void* d, hipblasLtMatrixLayout_t dLayout,
                                const hipblasLtMatmulAlgo_t* algorithm, void* workspace, size_t workspaceBytes, hipStream_t stream) {
  if (!stream || !workspace || workspaceBytes < 4096 || std::memcmp(algorithm->data, "chosen algorithm", 16)) return HIPBLAS_STATUS_INVALID_VALUE;
  auto& x = *static_cast<Layout*>(aLayout);
  auto& y = *static_cast<Layout*>(bLayout);
  auto& z = *static_cast<Layout*>(dLayout);
  auto& how = *static_cast<Desc*>(desc);
  Format f;
  if (!formatOf(x.type, &f) || y.type != x.type || z.type != x.type || c != d || cLayout != dLayout) return HIPBLAS_STATUS_INVALID_VALUE;
  const bool isDouble = f == Format::F64;
  if (how.compute != (isDouble ? HIPBLAS_COMPUTE_64F : HIPBLAS_COMPUTE_32F)) return HIPBLAS_STATUS_INVALID_VALUE;
  if (how.scale != (isDouble ? HIP_R_64F : HIP_R_32F)) return HIPBLAS_STATUS_INVALID_VALUE;
  const Format scale = isDouble ? Format::F64 : Format::F32;
  if (load(scale, alpha, 0) != 1 || load(scale, beta, 0) != 0) return HIPBLAS_STATUS_INVALID_VALUE;
  const bool ta = how.trans[0] == HIPBLAS_OP_T;
  const bool tb = how.trans[1] == HIPBLAS_OP_T;
  const uint64_t k = ta ? x.rows : x.columns;
  if ((ta ? x.columns : x.rows) != z.rows || (tb ? y.rows : y.columns) != z.columns || (tb ? y.columns : y.rows) != k) return HIPBLAS_STATUS_INVALID_VALUE;
  if (x.batch != z.batch || y.batch != z.batch) return HIPBLAS_STATUS_INVALID_VALUE;
  for (int64_t i = 0; i < z.batch; i++) {
    for (int64_t column = 0; column < int64_t(z.columns); column++) {
      for (int64_t row = 0; row < int64_t(z.rows); row++) {
        double sum = 0;
        for (int64_t s = 0; s < int64_t(k); s++) {
          sum += load(f, a, i * x.stride + (ta ? row * x.ld + s : s * x.ld + row)) *
                 load(f, b, i * y.stride + (tb ? s * y.ld + column : column * y.ld + s));
        }
        store(f, d, i * z.stride + column * z.ld + row, sum);
      }
    }
  }
  note("matmul");
  return HIPBLAS_STATUS_SUCCESS;
}

}  // extern "C"
