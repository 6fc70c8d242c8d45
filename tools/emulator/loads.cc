// How NVIDIA's threads load blocks that begin at any even address (kernels/quantized/formats.h), on the host: the quads of
// run() are those of quad(), no byte outside of the block is touched, and no word that is not aligned. One line a format.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <initializer_list>

#include "builtins.h"

#include "../../kernels/include/x.h"
#undef X_NVPTX
#define X_NVPTX 1

// PTX's prmt: nibble i chooses byte i of the result from the eight of high:low.
inline u32 permute(u32 low, u32 high, u32 nibbles) {
  const u64 bytes = (u64)high << 32 | low;
  u32 r = 0;
  for (u32 i = 0; i < 4; ++i) r |= (u32)(u8)(bytes >> (8 * (nibbles >> (4 * i) & 7))) << (8 * i);
  return r;
}
#include "../../kernels/quantized/activations.h"
#include "../../kernels/quantized/formats.h"

using namespace quant;

/** Blocks at the very end and the very beginning of a page, whose neighbours may not be read. */
template <class Q>
bool runs(const char* name) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  u8* pages = (u8*)mmap(nullptr, 3 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  u8* inside = pages + page;
  mprotect(inside, page, PROT_READ | PROT_WRITE);
  for (size_t i = 0; i < page; ++i) inside[i] = (u8)(i * 197 + i / 7 * 31);
  bool ok = true;
  for (const u8* b : {inside, inside + 2, inside + page - Q::BYTES, inside + page - Q::BYTES - 2}) {
    u32 quads[Q::RUN];
    Q::run(b, 0, quads);
    for (u32 i = 0; i < Q::RUN; ++i) ok &= quads[i] == Q::quad(b, i);
  }
  munmap(pages, 3 * page);
  std::printf("%s, %s\n", name, ok ? "ok" : "wrong");
  return ok;
}

int main() {
  bool ok = runs<Q4_0>("q4_0");
  ok &= runs<Q5_0>("q5_0");
  ok &= runs<Q8_0>("q8_0");
  return ok ? 0 : 1;
}
