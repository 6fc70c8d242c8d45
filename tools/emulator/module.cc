// A kernel file for emulated lanes: -DEMULATED_MODULE names it. Every kernel becomes a function that reads its packed
// arguments and is run by each lane, and a number, the threads that a block of it may have.
#include <utility>

#include "builtins.h"

#include "../../kernels/include/x/platform.h"
// All lanes of a block are on one thread.
#undef X_SHARED_MEMORY
#define X_SHARED_MEMORY thread_local
#include "../../kernels/include/x.h"

namespace emulated {

constexpr uint32_t SHARED_BYTES = 65536;

/** Where each argument lies in the packed ones. */
template <class... A>
struct Places {
  size_t at[sizeof...(A) + 1] = {};
  constexpr Places() {
    size_t end = 0, i = 0;
    ((at[i] = (end + alignof(A) - 1) / alignof(A) * alignof(A), end = at[i++] + sizeof(A)), ...);
  }
};

template <class T>
__attribute__((always_inline)) inline T read(const unsigned char* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// In one step, for every lane of every launch does this, and what is not inlined is not optimised.
template <class... A, size_t... I>
__attribute__((always_inline)) inline void callWith(void (*body)(A...), const unsigned char* args, std::index_sequence<I...>) {
  constexpr Places<A...> places;
  body(read<A>(args + places.at[I])...);
}
template <class... A>
__attribute__((always_inline)) inline void call(void (*body)(A...), const unsigned char* args) {
  callWith(body, args, std::index_sequence_for<A...>{});
}

}  // namespace emulated

thread_local unsigned char xDynamicShared[emulated::SHARED_BYTES];

#define EXPORTED extern "C" __attribute__((visibility("default")))
#undef X_KERNEL
#define X_KERNEL(name, merged, threads, blocks, ...)                                               \
  static void x_body_##name __VA_ARGS__;                                                           \
  EXPORTED void name(const unsigned char* args) { emulated::call(x_body_##name, args); }           \
  EXPORTED const uint32_t x_bound_##name = threads;                                                \
  static void x_body_##name __VA_ARGS__

#include EMULATED_MODULE
