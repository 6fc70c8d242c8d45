/**
 * The part of NCCL's C interface (nccl.h, which RCCL's rccl.h repeats) that the addon calls. Versions are NCCL's; ROCm 5.2 has
 * RCCL 2.12, ROCm 6.0 has 2.18.
 */
import type { LibrarySignatures, Signature } from './library-signatures';

const of =
  (from: string) =>
  (name: string, returns: string, ...params: string[]): Signature => ({
    name,
    returns,
    params,
    versions: [from, '2.28'],
  });

const nccl = of('2.7');
const send = ['const void*', 'void*', 'size_t', 'ncclDataType_t'];
const end = ['ncclComm_t', 'ncclStream_t'];

export const NCCL_SIGNATURES: LibrarySignatures = {
  types: {
    ncclComm_t: 'void*',
    ncclStream_t: 'void*',
    ncclResult_t: 'int',
    ncclDataType_t: 'int',
    ncclRedOp_t: 'int',
    ncclUniqueId: 'UniqueId',
    ncclConfig_t: 'Config',
  },
  structs:
    'struct UniqueId { char bytes[128]; };\n' +
    'struct Config { size_t size; unsigned magic; unsigned version; int blocking; int cgaClusterSize; int minCTAs; ' +
    'int maxCTAs; const char* netName; int splitShare; };',
  enums: {
    ncclSuccess: 0,
    ncclUnhandledCudaError: 1,
    ncclSystemError: 2,
    ncclInternalError: 3,
    ncclInvalidArgument: 4,
    ncclInvalidUsage: 5,
    ncclRemoteError: 6,
    ncclInProgress: 7,
    ncclUint8: 1,
    ncclInt32: 2,
    ncclUint32: 3,
    ncclInt64: 4,
    ncclFloat16: 6,
    ncclFloat32: 7,
    ncclFloat64: 8,
    ncclBfloat16: 9,
    ncclSum: 0,
    ncclProd: 1,
    ncclMax: 2,
    ncclMin: 3,
    ncclAvg: 4,
  },
  functions: [
    nccl('ncclGetVersion', 'ncclResult_t', 'int*'),
    nccl('ncclGetUniqueId', 'ncclResult_t', 'ncclUniqueId*'),
    nccl('ncclCommInitRank', 'ncclResult_t', 'ncclComm_t*', 'int', 'ncclUniqueId', 'int'),
    of('2.14')('ncclCommInitRankConfig', 'ncclResult_t', 'ncclComm_t*', 'int', 'ncclUniqueId', 'int', 'ncclConfig_t*'),
    of('2.18')('ncclCommSplit', 'ncclResult_t', 'ncclComm_t', 'int', 'int', 'ncclComm_t*', 'ncclConfig_t*'),
    nccl('ncclCommDestroy', 'ncclResult_t', 'ncclComm_t'),
    nccl('ncclCommAbort', 'ncclResult_t', 'ncclComm_t'),
    nccl('ncclCommGetAsyncError', 'ncclResult_t', 'ncclComm_t', 'ncclResult_t*'),
    nccl('ncclGetErrorString', 'const char*', 'ncclResult_t'),
    of('2.13')('ncclGetLastError', 'const char*', 'ncclComm_t'),
    nccl('ncclAllReduce', 'ncclResult_t', ...send, 'ncclRedOp_t', ...end),
    nccl('ncclAllGather', 'ncclResult_t', ...send, ...end),
    nccl('ncclReduceScatter', 'ncclResult_t', ...send, 'ncclRedOp_t', ...end),
    nccl('ncclBroadcast', 'ncclResult_t', ...send, 'int', ...end),
    nccl('ncclSend', 'ncclResult_t', 'const void*', 'size_t', 'ncclDataType_t', 'int', ...end),
    nccl('ncclRecv', 'ncclResult_t', 'void*', 'size_t', 'ncclDataType_t', 'int', ...end),
    nccl('ncclGroupStart', 'ncclResult_t'),
    nccl('ncclGroupEnd', 'ncclResult_t'),
  ],
};
