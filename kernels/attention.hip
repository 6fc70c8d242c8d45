// ATTENTION: softmax(q . kT * scale) . v in one kernel. Ours: candle calls the FlashAttention sources on CUDA and Metal's
// sdpa, neither under a kernel name of its own. q [b, heads, seq, d], k and v [b, kv_heads, kv, d], whose last dimension is
// contiguous and whose rows begin at multiples of 16 bytes; heads is a multiple of kv_heads, seq and kv are
// below 2^31, scale is positive; out is contiguous.
//   attention_{d}_{t}    on matrix units: 256 threads, NVIDIA (128 + 4 * 64) * d * 2 bytes of dynamic shared memory;
//                        elsewhere whole warps of any number, each a query
//   attention_{d}_f32    on FMA units: NVIDIA 128 threads and 64 * (d + 256) * 4 bytes, AMD 256 threads; on the host plain
#include "x.h"
#include "shared/split.h"
#include "shared/mma.h"
#include "shared/wgmma.h"
#include "shared/rough.h"
#include "attention/problem.h"
#include "attention/slabs.h"
#include "attention/flash.h"
#include "attention/chunks.h"
#include "attention/fma.h"

namespace attention {

#if X_HOST
[[maybe_unused]] constexpr u32 THREADS_F32 = 1;
#else
constexpr u32 THREADS_F32 = fma::THREADS;
#endif

template <u32 D, class T>
X_DEVICE void attend(const Problem<T>& p) {
#if X_HOST
  attendPlain<D>(p);
#else
  if constexpr (sameType<T, float>) fma::attendFma<D>(p);
#if X_MMA
  else attendMma<D>(p);
#else
  else attendPlain<D>(p);
#endif
#endif
}

}  // namespace attention

#define ATTENTION(D, T, t, threads)                                                                                     \
  KERNEL_BOUNDS(attention_##D##_##t, threads,                                                                           \
                (u64 b, u64 heads, u64 kv_heads, u64 seq, u64 kv, const T* q, u64 q_batch_stride, u64 q_head_stride,    \
                 u64 q_row_stride, const T* k, u64 k_batch_stride, u64 k_head_stride, u64 k_row_stride, const T* v,     \
                 u64 v_batch_stride, u64 v_head_stride, u64 v_row_stride, T* out, float scale, bool causal)) {          \
    attention::attend<D, T>({b, heads, kv_heads, (u32)seq, (u32)kv, {q, q_batch_stride, q_head_stride, q_row_stride},   \
                             {k, k_batch_stride, k_head_stride, k_row_stride},                                          \
                             {v, v_batch_stride, v_head_stride, v_row_stride}, out, scale, causal});                    \
  }
ATTENTION(64, bf16, bf16, 256)
ATTENTION(64, f16, f16, 256)
ATTENTION(64, float, f32, attention::THREADS_F32)
ATTENTION(128, bf16, bf16, 256)
ATTENTION(128, f16, f16, 256)
ATTENTION(128, float, f32, attention::THREADS_F32)
