// Where a thread is (block, thread, lane), the loops that share a range between threads, barriers and shared memory.
// On the host a block is one thread, so barriers vanish and X_FOR_EACH becomes a plain loop over one contiguous chunk.
#pragma once

#if X_HOST

// The layout of packages/hip/native/host_abi.h, repeated because device code includes nothing from outside kernels/.
struct XHostLaunch {
  u32 grid[3];
  u32 sharedBytes;
  u64 firstBlock;
  u64 endBlock;
  void* shared;
};

struct XHostBlock {
  u32 block[3];
  u32 grid[3];
  u64 first, end;  // the linear blocks that X_FOR_EACH stands for: one, or a whole call's (KERNEL_EACH)
  void* shared;
};

static thread_local XHostBlock xHostBlockOfThread;

// A call of its own, hoisted as one that always gives the same address. Inlined, clang (22) keeps values in xmm16 to xmm31
// over its call of __tls_get_addr, which may overwrite them when a thread comes for the first time: with AVX-512 the
// first blocks of a thread then computed with wrong arguments.
static __attribute__((noinline, const)) XHostBlock* xHostBlock() { return &xHostBlockOfThread; }

X_DEVICE u32 blockX() { return xHostBlock()->block[0]; }
X_DEVICE u32 blockY() { return xHostBlock()->block[1]; }
X_DEVICE u32 blockZ() { return xHostBlock()->block[2]; }
X_DEVICE u32 gridX() { return xHostBlock()->grid[0]; }
X_DEVICE u32 gridY() { return xHostBlock()->grid[1]; }
X_DEVICE u32 gridZ() { return xHostBlock()->grid[2]; }
X_DEVICE u32 threadIndex() { return 0; }
X_DEVICE u32 blockThreads() { return 1; }
X_DEVICE u32 laneId() { return 0; }
X_DEVICE void barrier() {}

namespace launch {

// Chunks are whole cache lines of any element type, so that two blocks never write the same line.
X_DEVICE u64 chunkStart(u64 block, u64 n) {
  const u64 blocks = (u64)gridX() * gridY() * gridZ();
  const u64 chunk = ((n + blocks - 1) / blocks + 63) & ~63ull;
  const u64 start = block * chunk;
  return start < n ? start : n;
}
X_DEVICE u64 eachBegin(u64 n) { return chunkStart(xHostBlock()->first, n); }
X_DEVICE u64 eachEnd(u64 n) { return chunkStart(xHostBlock()->end, n); }

}  // namespace launch

#define X_FOR_EACH(i, n) for (u64 i = launch::eachBegin(n), i##_end = launch::eachEnd(n); i < i##_end; ++i)
// X_FOR_EACH whose body may be vectorised although its pointers could alias (the same index at most: in place).
#define X_FOR_EACH_SIMD(i, n) _Pragma("clang loop vectorize(assume_safety)") X_FOR_EACH(i, n)
#define X_FOR_BLOCK(j, n) for (u64 j = 0, j##_end = (n); j < j##_end; ++j)
#define X_SHARED(T, name, N) alignas(16) T name[N]

template <class T>
X_DEVICE T* dynamicShared() {
  return (T*)xHostBlock()->shared;
}

#else  // GPUs

#if X_AMDGCN
X_DEVICE u32 threadX() { return __builtin_amdgcn_workitem_id_x(); }
X_DEVICE u32 threadY() { return __builtin_amdgcn_workitem_id_y(); }
X_DEVICE u32 threadZ() { return __builtin_amdgcn_workitem_id_z(); }
X_DEVICE u32 blockX() { return __builtin_amdgcn_workgroup_id_x(); }
X_DEVICE u32 blockY() { return __builtin_amdgcn_workgroup_id_y(); }
X_DEVICE u32 blockZ() { return __builtin_amdgcn_workgroup_id_z(); }
X_DEVICE u32 blockSizeX() { return __builtin_amdgcn_workgroup_size_x(); }
X_DEVICE u32 blockSizeY() { return __builtin_amdgcn_workgroup_size_y(); }
X_DEVICE u32 blockSizeZ() { return __builtin_amdgcn_workgroup_size_z(); }
X_DEVICE u32 gridX() { return __builtin_amdgcn_grid_size_x() / blockSizeX(); }
X_DEVICE u32 gridY() { return __builtin_amdgcn_grid_size_y() / blockSizeY(); }
X_DEVICE u32 gridZ() { return __builtin_amdgcn_grid_size_z() / blockSizeZ(); }
X_DEVICE u32 laneId() {
  const u32 low = __builtin_amdgcn_mbcnt_lo(~0u, 0u);
  return WARP > 32 ? __builtin_amdgcn_mbcnt_hi(~0u, low) : low;
}
X_DEVICE void barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
#elif X_NVRTC
X_DEVICE u32 threadX() { return threadIdx.x; }
X_DEVICE u32 threadY() { return threadIdx.y; }
X_DEVICE u32 threadZ() { return threadIdx.z; }
X_DEVICE u32 blockX() { return blockIdx.x; }
X_DEVICE u32 blockY() { return blockIdx.y; }
X_DEVICE u32 blockZ() { return blockIdx.z; }
X_DEVICE u32 blockSizeX() { return blockDim.x; }
X_DEVICE u32 blockSizeY() { return blockDim.y; }
X_DEVICE u32 blockSizeZ() { return blockDim.z; }
X_DEVICE u32 gridX() { return gridDim.x; }
X_DEVICE u32 gridY() { return gridDim.y; }
X_DEVICE u32 gridZ() { return gridDim.z; }
X_DEVICE u32 laneId() {
  u32 lane;
  asm("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}
X_DEVICE void barrier() { __syncthreads(); }
#else
X_DEVICE u32 threadX() { return __nvvm_read_ptx_sreg_tid_x(); }
X_DEVICE u32 threadY() { return __nvvm_read_ptx_sreg_tid_y(); }
X_DEVICE u32 threadZ() { return __nvvm_read_ptx_sreg_tid_z(); }
X_DEVICE u32 blockX() { return __nvvm_read_ptx_sreg_ctaid_x(); }
X_DEVICE u32 blockY() { return __nvvm_read_ptx_sreg_ctaid_y(); }
X_DEVICE u32 blockZ() { return __nvvm_read_ptx_sreg_ctaid_z(); }
X_DEVICE u32 blockSizeX() { return __nvvm_read_ptx_sreg_ntid_x(); }
X_DEVICE u32 blockSizeY() { return __nvvm_read_ptx_sreg_ntid_y(); }
X_DEVICE u32 blockSizeZ() { return __nvvm_read_ptx_sreg_ntid_z(); }
X_DEVICE u32 gridX() { return __nvvm_read_ptx_sreg_nctaid_x(); }
X_DEVICE u32 gridY() { return __nvvm_read_ptx_sreg_nctaid_y(); }
X_DEVICE u32 gridZ() { return __nvvm_read_ptx_sreg_nctaid_z(); }
X_DEVICE u32 laneId() { return __nvvm_read_ptx_sreg_laneid(); }
X_DEVICE void barrier() { __syncthreads(); }
#endif

X_DEVICE u32 threadIndex() { return threadX() + blockSizeX() * (threadY() + blockSizeY() * threadZ()); }
X_DEVICE u32 blockThreads() { return blockSizeX() * blockSizeY() * blockSizeZ(); }

namespace launch {

// A grid's threads are counted along x through all blocks, then y, then z: what each thread computes to know its place is
// few instructions, of words mostly (so fewer than 2^32 along y and z), and on AMD's GPUs without the division that a
// number of blocks takes.
#if X_AMDGCN
X_DEVICE u64 threadsX() { return __builtin_amdgcn_grid_size_x(); }
X_DEVICE u32 threadsY() { return __builtin_amdgcn_grid_size_y(); }
X_DEVICE u32 threadsZ() { return __builtin_amdgcn_grid_size_z(); }
#else
X_DEVICE u64 threadsX() { return (u64)gridX() * blockSizeX(); }
X_DEVICE u32 threadsY() { return gridY() * blockSizeY(); }
X_DEVICE u32 threadsZ() { return gridZ() * blockSizeZ(); }
#endif
X_DEVICE u64 thread() {
  u64 thread = (u64)blockX() * blockSizeX() + threadX();
  if (threadsY() * threadsZ() > 1)
    thread += threadsX() * (blockY() * blockSizeY() + threadY() + threadsY() * (blockZ() * blockSizeZ() + threadZ()));
  return thread;
}
X_DEVICE u64 threads() { return threadsX() * (threadsY() * threadsZ()); }

}  // namespace launch

// Threads beside each other take items beside each other, and all of the grid the next ones after that.
#define X_FOR_EACH(i, n) \
  for (u64 i = launch::thread(), i##_end = (n), i##_step = launch::threads(); i < i##_end; i += i##_step)
#define X_FOR_EACH_SIMD(i, n) X_FOR_EACH(i, n)
#define X_FOR_BLOCK(j, n) \
  for (u64 j = threadIndex(), j##_end = (n), j##_step = blockThreads(); j < j##_end; j += j##_step)
#define X_SHARED(T, name, N) X_SHARED_MEMORY __attribute__((aligned(16))) T name[N]

// NVIDIA's warpgroup products want operands at multiples of 1024 bytes.
extern X_SHARED_MEMORY __attribute__((aligned(X_NVPTX ? 1024 : 16))) unsigned char xDynamicShared[];

template <class T>
X_DEVICE T* dynamicShared() {
  return (T*)xDynamicShared;
}

#endif

X_DEVICE u32 warpId() { return threadIndex() / WARP; }
X_DEVICE u32 warpsInBlock() { return (blockThreads() + WARP - 1) / WARP; }
