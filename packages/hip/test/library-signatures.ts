/**
 * The C interface of the libraries that the addon calls, from the public headers (rocblas-functions.h, rocblas-auxiliary.h,
 * rocblas-types.h, hipblaslt.h, miopen.h; cuDNN's in cudnn-signatures.ts): each function's signature and the versions whose
 * headers have exactly it, the numbers of the enums, and the structs that cross the interface. The stand-in libraries are
 * compiled against prototypes made from this table, and native/*_api.h is compared with it.
 */
import { CUDNN_SIGNATURES } from './cudnn-signatures';
import { NCCL_SIGNATURES } from './nccl-signatures';

export interface Signature {
  readonly name: string;
  readonly returns: string;
  readonly params: readonly string[];
  /** Versions, of ROCm or of cuDNN: from the first, up to and including the last one looked at. */
  readonly versions: readonly [from: string, to: string];
}

export interface LibrarySignatures {
  readonly functions: readonly Signature[];
  /** Names of C types and what they are to the ABI. */
  readonly types: Readonly<Record<string, string>>;
  readonly enums: Readonly<Record<string, number>>;
  readonly structs?: string;
}

const of =
  (from: string) =>
  (name: string, returns: string, ...params: string[]): Signature => ({
    name,
    returns,
    params,
    versions: [from, '7.0'],
  });

const rocblas = of('5.2');
const hipblaslt = of('6.0');
const miopen = of('5.2');
const forward = 'miopenConvolutionForward';
const backward = 'miopenConvolutionBackwardData';
const tensor = 'miopenTensorDescriptor_t';
const convolution = 'miopenConvolutionDescriptor_t';
const layout = 'hipblasLtMatrixLayout_t';

export const LIBRARY_SIGNATURES: Readonly<
  Record<'rocblas' | 'hipblaslt' | 'miopen' | 'cudnn' | 'nccl', LibrarySignatures>
> = {
  cudnn: CUDNN_SIGNATURES,
  nccl: NCCL_SIGNATURES,
  rocblas: {
    types: {
      rocblas_handle: 'void*',
      hipStream_t: 'void*',
      rocblas_int: 'int32_t',
      rocblas_stride: 'int64_t',
      rocblas_status: 'int',
      rocblas_operation: 'int',
      rocblas_datatype: 'int',
      rocblas_gemm_algo: 'int',
      rocblas_atomics_mode: 'int',
    },
    enums: {
      rocblas_status_success: 0,
      rocblas_status_invalid_handle: 1,
      rocblas_status_invalid_pointer: 3,
      rocblas_status_invalid_size: 4,
      rocblas_status_memory_error: 5,
      rocblas_status_invalid_value: 11,
      rocblas_operation_none: 111,
      rocblas_operation_transpose: 112,
      rocblas_datatype_f16_r: 150,
      rocblas_datatype_f32_r: 151,
      rocblas_datatype_f64_r: 152,
      rocblas_datatype_bf16_r: 168,
      rocblas_gemm_algo_standard: 0,
      rocblas_gemm_flags_none: 0,
      rocblas_atomics_not_allowed: 0,
    },
    functions: [
      rocblas('rocblas_create_handle', 'rocblas_status', 'rocblas_handle*'),
      rocblas('rocblas_destroy_handle', 'rocblas_status', 'rocblas_handle'),
      rocblas('rocblas_set_stream', 'rocblas_status', 'rocblas_handle', 'hipStream_t'),
      rocblas('rocblas_set_workspace', 'rocblas_status', 'rocblas_handle', 'void*', 'size_t'),
      rocblas('rocblas_set_atomics_mode', 'rocblas_status', 'rocblas_handle', 'rocblas_atomics_mode'),
      rocblas('rocblas_get_version_string', 'rocblas_status', 'char*', 'size_t'),
      rocblas('rocblas_status_to_string', 'const char*', 'rocblas_status'),
      rocblas(
        'rocblas_gemm_strided_batched_ex',
        'rocblas_status',
        ...['rocblas_handle', 'rocblas_operation', 'rocblas_operation', 'rocblas_int', 'rocblas_int', 'rocblas_int'],
        'const void*',
        ...['const void*', 'rocblas_datatype', 'rocblas_int', 'rocblas_stride'],
        ...['const void*', 'rocblas_datatype', 'rocblas_int', 'rocblas_stride'],
        'const void*',
        ...['const void*', 'rocblas_datatype', 'rocblas_int', 'rocblas_stride'],
        ...['void*', 'rocblas_datatype', 'rocblas_int', 'rocblas_stride'],
        ...['rocblas_int', 'rocblas_datatype', 'rocblas_gemm_algo', 'int32_t', 'uint32_t'],
      ),
    ],
  },
  hipblaslt: {
    types: {
      hipblasLtHandle_t: 'void*',
      hipStream_t: 'void*',
      hipblasLtMatmulDesc_t: 'void*',
      hipblasLtMatrixLayout_t: 'void*',
      hipblasLtMatmulPreference_t: 'void*',
      hipblasStatus_t: 'int',
      hipblasComputeType_t: 'int',
      hipDataType: 'int',
      hipblasLtMatmulDescAttributes_t: 'int',
      hipblasLtMatrixLayoutAttribute_t: 'int',
      hipblasLtMatmulPreferenceAttributes_t: 'int',
      hipblasLtMatmulAlgo_t: 'Algorithm',
      hipblasLtMatmulHeuristicResult_t: 'HeuristicResult',
    },
    structs: `struct Algorithm { uint8_t data[16]; size_t max_workspace_bytes; };
struct HeuristicResult { Algorithm algo; size_t workspaceSize; int state; float wavesCount; int reserved[4]; };`,
    enums: {
      HIPBLAS_STATUS_SUCCESS: 0,
      HIPBLAS_STATUS_INVALID_VALUE: 3,
      HIPBLAS_OP_N: 111,
      HIPBLAS_OP_T: 112,
      HIP_R_32F: 0,
      HIP_R_64F: 1,
      HIP_R_16F: 2,
      HIP_R_16BF: 14,
      HIPBLAS_COMPUTE_32F: 2,
      HIPBLAS_COMPUTE_64F: 7,
      HIPBLASLT_MATMUL_DESC_TRANSA: 0,
      HIPBLASLT_MATMUL_DESC_TRANSB: 1,
      HIPBLASLT_MATRIX_LAYOUT_BATCH_COUNT: 0,
      HIPBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET: 1,
      HIPBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: 1,
    },
    functions: [
      hipblaslt('hipblasLtCreate', 'hipblasStatus_t', 'hipblasLtHandle_t*'),
      hipblaslt('hipblasLtDestroy', 'hipblasStatus_t', 'hipblasLtHandle_t'),
      hipblaslt('hipblasLtGetVersion', 'hipblasStatus_t', 'hipblasLtHandle_t', 'int*'),
      hipblaslt(
        'hipblasLtMatmulDescCreate',
        'hipblasStatus_t',
        ...['hipblasLtMatmulDesc_t*', 'hipblasComputeType_t', 'hipDataType'],
      ),
      hipblaslt('hipblasLtMatmulDescDestroy', 'hipblasStatus_t', 'hipblasLtMatmulDesc_t'),
      hipblaslt(
        'hipblasLtMatmulDescSetAttribute',
        'hipblasStatus_t',
        ...['hipblasLtMatmulDesc_t', 'hipblasLtMatmulDescAttributes_t', 'const void*', 'size_t'],
      ),
      hipblaslt(
        'hipblasLtMatrixLayoutCreate',
        'hipblasStatus_t',
        ...['hipblasLtMatrixLayout_t*', 'hipDataType', 'uint64_t', 'uint64_t', 'int64_t'],
      ),
      hipblaslt('hipblasLtMatrixLayoutDestroy', 'hipblasStatus_t', layout),
      hipblaslt(
        'hipblasLtMatrixLayoutSetAttribute',
        'hipblasStatus_t',
        ...[layout, 'hipblasLtMatrixLayoutAttribute_t', 'const void*', 'size_t'],
      ),
      hipblaslt('hipblasLtMatmulPreferenceCreate', 'hipblasStatus_t', 'hipblasLtMatmulPreference_t*'),
      hipblaslt('hipblasLtMatmulPreferenceDestroy', 'hipblasStatus_t', 'hipblasLtMatmulPreference_t'),
      hipblaslt(
        'hipblasLtMatmulPreferenceSetAttribute',
        'hipblasStatus_t',
        ...['hipblasLtMatmulPreference_t', 'hipblasLtMatmulPreferenceAttributes_t', 'const void*', 'size_t'],
      ),
      hipblaslt(
        'hipblasLtMatmulAlgoGetHeuristic',
        'hipblasStatus_t',
        ...['hipblasLtHandle_t', 'hipblasLtMatmulDesc_t', layout, layout, layout, layout],
        ...['hipblasLtMatmulPreference_t', 'int', 'hipblasLtMatmulHeuristicResult_t*', 'int*'],
      ),
      hipblaslt(
        'hipblasLtMatmul',
        'hipblasStatus_t',
        ...['hipblasLtHandle_t', 'hipblasLtMatmulDesc_t', 'const void*'],
        ...['const void*', layout, 'const void*', layout, 'const void*', 'const void*', layout, 'void*', layout],
        ...['const hipblasLtMatmulAlgo_t*', 'void*', 'size_t', 'hipStream_t'],
      ),
    ],
  },
  miopen: {
    types: {
      miopenHandle_t: 'void*',
      miopenAcceleratorQueue_t: 'void*',
      miopenTensorDescriptor_t: 'void*',
      miopenConvolutionDescriptor_t: 'void*',
      miopenStatus_t: 'int',
      miopenDataType_t: 'int',
      miopenConvolutionMode_t: 'int',
      miopenConvSolution_t: 'Solution',
    },
    structs: 'struct Solution { float time; size_t workspace_size; uint64_t solution_id; int algorithm; };',
    enums: {
      miopenStatusSuccess: 0,
      miopenStatusInvalidValue: 2,
      miopenStatusBadParm: 3,
      miopenStatusAllocFailed: 4,
      miopenHalf: 0,
      miopenFloat: 1,
      miopenBFloat16: 5,
      miopenConvolution: 0,
    },
    functions: [
      miopen('miopenCreateWithStream', 'miopenStatus_t', 'miopenHandle_t*', 'miopenAcceleratorQueue_t'),
      miopen('miopenDestroy', 'miopenStatus_t', 'miopenHandle_t'),
      miopen('miopenSetStream', 'miopenStatus_t', 'miopenHandle_t', 'miopenAcceleratorQueue_t'),
      miopen('miopenGetVersion', 'miopenStatus_t', 'size_t*', 'size_t*', 'size_t*'),
      miopen('miopenGetErrorString', 'const char*', 'miopenStatus_t'),
      miopen('miopenCreateTensorDescriptor', 'miopenStatus_t', `${tensor}*`),
      miopen('miopenDestroyTensorDescriptor', 'miopenStatus_t', tensor),
      miopen('miopenSet4dTensorDescriptor', 'miopenStatus_t', tensor, 'miopenDataType_t', 'int', 'int', 'int', 'int'),
      miopen('miopenCreateConvolutionDescriptor', 'miopenStatus_t', `${convolution}*`),
      miopen('miopenDestroyConvolutionDescriptor', 'miopenStatus_t', convolution),
      miopen(
        'miopenInitConvolutionDescriptor',
        'miopenStatus_t',
        ...[convolution, 'miopenConvolutionMode_t', 'int', 'int', 'int', 'int', 'int', 'int'],
      ),
      ...[forward, backward].flatMap((name) => {
        // Forward: w, x, convolution, y. Backward: dy, w, convolution, dx.
        const three = [tensor, tensor, convolution, tensor];
        return [
          miopen(`${name}GetSolutionCount`, 'miopenStatus_t', 'miopenHandle_t', ...three, 'size_t*'),
          miopen(
            `${name}GetSolution`,
            'miopenStatus_t',
            ...['miopenHandle_t', ...three, 'size_t', 'size_t*', 'miopenConvSolution_t*'],
          ),
          miopen(`${name}CompileSolution`, 'miopenStatus_t', 'miopenHandle_t', ...three, 'uint64_t'),
          miopen(
            `${name}Immediate`,
            'miopenStatus_t',
            ...['miopenHandle_t', tensor, 'const void*', tensor, 'const void*', convolution, tensor, 'void*'],
            ...['void*', 'size_t', 'uint64_t'],
          ),
        ];
      }),
    ],
  },
};
