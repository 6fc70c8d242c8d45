// A kernel file for emulated lanes: -DEMULATED_MODULE names it. Every kernel becomes a function that reads its packed
// arguments and is run by each lane, and a number, the threads that a block of it may have.
#include "builtins.h"

#include "../../kernels/include/x/platform.h"
// All lanes of a block are on one thread.
#undef X_SHARED_MEMORY
#define X_SHARED_MEMORY thread_local
#include "../../kernels/include/x.h"

namespace emulated {

constexpr uint32_t SHARED_BYTES = 65536;

struct Reader {
  const unsigned char* args;
  size_t at = 0;
  template <class T>
  T next() {
    at = (at + alignof(T) - 1) / alignof(T) * alignof(T);
    T value;
    std::memcpy(&value, args + at, sizeof value);
    at += sizeof value;
    return value;
  }
};

template <class... A>
struct Arguments {};

template <class F, class... Read>
void callWith(F* body, Reader&, Arguments<>, Read... read) {
  body(read...);
}
template <class F, class First, class... Rest, class... Read>
void callWith(F* body, Reader& reader, Arguments<First, Rest...>, Read... read) {
  const First value = reader.next<First>();
  callWith(body, reader, Arguments<Rest...>{}, read..., value);
}
template <class... A>
void call(void (*body)(A...), const unsigned char* args) {
  Reader reader{args};
  callWith(body, reader, Arguments<A...>{});
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
