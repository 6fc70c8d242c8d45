// NVIDIA's warpgroup products (compute capability 9.0 only, target sm_90a): four warps that begin at a multiple of four
// multiply 64 rows by N columns, 16 along k, without waiting, and read operands where they lie in shared memory. PTX ISA
// "Asynchronous warpgroup level matrix instructions". X_WGMMA says that this target has them.
//
// An operand there is made of groups of 8 rows of 128 bytes, the groups aligned to 1024 bytes; piece p of 16 bytes of row r
// lies in place p ^ r % 8. A row is a line's 64 depths, or 64 lines at one depth.
#pragma once

#if X_NVPTX && defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define X_WGMMA 1

namespace wgmma {

constexpr u32 ROW = 128;

/** The operand at `address`; `block` is how many bytes further the next 64 lines lie where rows are depths. */
X_DEVICE u64 describe(u32 address, u32 block = 16) {
  constexpr u64 GROUP = 8 * ROW, SWIZZLE_128 = 1;
  return (address & 0x3ffff) >> 4 | (u64)(block >> 4) << 16 | GROUP >> 4 << 32 | SWIZZLE_128 << 62;
}

/** What this thread has written to shared memory, by stores or copies that it awaited, is there for products. */
X_DEVICE void publish() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
/** Products may use registers that were written before. */
X_DEVICE void begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
X_DEVICE void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/** Until no more than N of the groups committed are under way. */
template <u32 N>
X_DEVICE void await() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

#define X_TEN(tens)                                                                                           \
  "%" #tens "0, %" #tens "1, %" #tens "2, %" #tens "3, %" #tens "4, %" #tens "5, %" #tens "6, %" #tens "7, %" \
  #tens "8, %" #tens "9, "
#define X_REGISTERS_32 X_TEN() "%10, %11, %12, %13, %14, %15"
#define X_REGISTERS_64 X_TEN() X_TEN(1) X_TEN(2) "%30, %31"
#define X_REGISTERS_128 X_TEN() X_TEN(1) X_TEN(2) X_TEN(3) X_TEN(4) X_TEN(5) "%60, %61, %62, %63"
#define X_REGISTERS_256                                                                                      \
  X_TEN() X_TEN(1) X_TEN(2) X_TEN(3) X_TEN(4) X_TEN(5) X_TEN(6) X_TEN(7) X_TEN(8) X_TEN(9) X_TEN(10) X_TEN(11) \
  "%120, %121, %122, %123, %124, %125, %126, %127"
#define X_SUMS_8(i)                                                                                        \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
      "+f"(d[i + 7])
#define X_SUMS_32 X_SUMS_8(0), X_SUMS_8(8)
#define X_SUMS_64 X_SUMS_32, X_SUMS_8(16), X_SUMS_8(24)
#define X_SUMS_128 X_SUMS_64, X_SUMS_8(32), X_SUMS_8(40), X_SUMS_8(48), X_SUMS_8(56)
#define X_SUMS_256 \
  X_SUMS_128, X_SUMS_8(64), X_SUMS_8(72), X_SUMS_8(80), X_SUMS_8(88), X_SUMS_8(96), X_SUMS_8(104), X_SUMS_8(112), X_SUMS_8(120)

// multiply<LEFT, RIGHT>(d, left, right): d += left . rightT, both described; LEFT and RIGHT say that rows are lines.
// multiply<RIGHT>(d, word, right): the left operand is in registers, as a tile of mma.sync has it in each warp.
// Eight elements of d are an mma::Tile of the warp's 16 rows. A to F number the operands after d's N / 2.
#define X_WGMMA_PRODUCT(N, T, type, A, B, C, D, E, F)                                                            \
  template <bool LEFT, bool RIGHT>                                                                               \
  X_DEVICE void multiply(float (&d)[N / 2], u64 left, u64 right, T*) {                                           \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." type "." type " {" X_REGISTERS_##N "}, %" #A  \
                 ", %" #B ", 1, 1, 1, %" #C ", %" #D ";"                                                         \
                 : X_SUMS_##N                                                                                    \
                 : "l"(left), "l"(right), "n"((int)!LEFT), "n"((int)!RIGHT));                                    \
  }                                                                                                              \
  template <bool RIGHT>                                                                                          \
  X_DEVICE void multiply(float (&d)[N / 2], const u32 (&word)[4], u64 right, T*) {                               \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." type "." type " {" X_REGISTERS_##N "}, {%" #A \
                 ", %" #B ", %" #C ", %" #D "}, %" #E ", 1, 1, 1, %" #F ";"                                      \
                 : X_SUMS_##N                                                                                    \
                 : "r"(word[0]), "r"(word[1]), "r"(word[2]), "r"(word[3]), "l"(right), "n"((int)!RIGHT));        \
  }
#define X_WGMMA_PRODUCTS(N, ...)                  \
  X_WGMMA_PRODUCT(N, f16, "f16", __VA_ARGS__)     \
  X_WGMMA_PRODUCT(N, bf16, "bf16", __VA_ARGS__)
X_WGMMA_PRODUCTS(32, 16, 17, 18, 19, 20, 21)
X_WGMMA_PRODUCTS(64, 32, 33, 34, 35, 36, 37)
X_WGMMA_PRODUCTS(128, 64, 65, 66, 67, 68, 69)
X_WGMMA_PRODUCTS(256, 128, 129, 130, 131, 132, 133)

}  // namespace wgmma
#else
#define X_WGMMA 0
#endif
