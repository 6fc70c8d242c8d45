// What a radix sort asks of the lanes of a warp: which of them hold the same digit, and that they see each other's writes to
// shared memory. GPUs only; all lanes of a warp must come to each of these.
#pragma once

#if !X_HOST

namespace sort {

#if X_AMDGCN
#if __clang_major__ < 19  // early ones have no ballots, but comparisons that give a mask; 33 is "not equal"
X_DEVICE u32 voted32(bool v) { return (u32)__builtin_amdgcn_uicmp((u32)v, 0u, 33); }
X_DEVICE u64 voted64(bool v) { return __builtin_amdgcn_uicmp((u32)v, 0u, 33); }
#else
X_DEVICE u32 voted32(bool v) { return __builtin_amdgcn_ballot_w32(v); }
X_DEVICE u64 voted64(bool v) { return __builtin_amdgcn_ballot_w64(v); }
#endif
template <u32 lanes>
struct LaneMask {
  typedef u32 type;
  static X_DEVICE type ballot(bool v) { return voted32(v); }
  static X_DEVICE u32 below(type mask) { return __builtin_amdgcn_mbcnt_lo(mask, 0u); }
  static X_DEVICE u32 size(type mask) { return (u32)__builtin_popcount(mask); }
};
template <>
struct LaneMask<64> {
  typedef u64 type;
  static X_DEVICE type ballot(bool v) { return voted64(v); }
  static X_DEVICE u32 below(type mask) {
    return __builtin_amdgcn_mbcnt_hi((u32)(mask >> 32), __builtin_amdgcn_mbcnt_lo((u32)mask, 0u));
  }
  static X_DEVICE u32 size(type mask) { return (u32)__builtin_popcountll(mask); }
};
#else
#if X_NVRTC
X_DEVICE u32 voted(bool v) { return __ballot_sync(0xffffffffu, v); }
X_DEVICE u32 ones(u32 mask) { return (u32)__popc((int)mask); }
#else
X_DEVICE u32 voted(bool v) { return (u32)__nvvm_vote_ballot_sync(0xffffffffu, v); }
X_DEVICE u32 ones(u32 mask) { return (u32)__builtin_popcount(mask); }
#endif
template <u32>
struct LaneMask {
  typedef u32 type;
  static X_DEVICE type ballot(bool v) { return voted(v); }
  static X_DEVICE u32 below(type mask) { return ones(mask & ((1u << laneId()) - 1)); }
  static X_DEVICE u32 size(type mask) { return ones(mask); }
};
#endif

/** v, which is the same for all lanes of the warp, in a form in which NVIDIA's compilers know that it is. */
X_DEVICE u32 sameForWarp(u32 v) { return X_NVPTX ? shuffle(v, 0) : v; }

/** The lanes whose digit, the lowest `bits` bits of what is given, is this one's. */
template <u32 bits>
X_DEVICE typename LaneMask<WARP>::type lanesWith(u32 digit) {
#if X_NVPTX
  // Four instructions a bit: compilers make six of the loop below, because they test every bit twice.
  u32 peers = 0xffffffffu;
#pragma unroll
  for (u32 bit = 0; bit < bits; ++bit) {
    asm volatile(
        "{\n .reg .pred set;\n .reg .b32 with, own;\n"
        " and.b32 own, %1, %2;\n setp.ne.b32 set, own, 0;\n vote.sync.ballot.b32 with, set, 0xffffffff;\n"
        " selp.b32 own, 0, 0xffffffff, set;\n xor.b32 with, with, own;\n and.b32 %0, %0, with;\n}"
        : "+r"(peers)
        : "r"(digit), "r"(1u << bit));
  }
  return peers;
#else
  typedef LaneMask<WARP> Mask;
  typename Mask::type peers = Mask::ballot(true);
#pragma unroll
  for (u32 bit = 0; bit < bits; ++bit) {
    const i32 set = (i32)(digit << (31 - bit)) >> 31;
    peers &= ~(Mask::ballot(set != 0) ^ (typename Mask::type)(i64)set);
  }
  return peers;
#endif
}

}  // namespace sort

#endif
