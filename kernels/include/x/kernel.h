// KERNEL(name, (params)) { body }: an exported kernel on every target, and its self-description, the character array
// x_sig_<name> that holds the parameter types in order ("u64 u64 ptr ptr ptr f32 f32"). candle spells each kernel with
// an extern "C" macro; the description is ours, so that a loader can check a launch against any code object.
//   KERNEL(name, (params))                any block of 1..1024 threads
//   KERNEL_BOUNDS(name, threads, (params)) at most `threads` threads a block: more registers for each
//   KERNEL_BLOCKS(name, threads, blocks, (params))  the same; on NVIDIA with the registers that `blocks` of them leave each
//                                         other on a multiprocessor (0: what the compiler takes)
//   KERNEL_EACH(name, (params))           body made of X_FOR_EACH loops only, with no use of blockX() and shared memory:
//                                         the host runs it once for a whole range of blocks
#pragma once

namespace sig {

template <class T>
struct TypeName {
  static_assert(sizeof(T) == 0, "a kernel parameter is a pointer or one of u8 u32 i16 i32 i64 u64 f16 bf16 f32 f64 f8e4m3 bool");
};
#define X_TYPE_NAME(T, text)                             \
  template <>                                            \
  struct TypeName<T> {                                   \
    static constexpr u32 length = sizeof(#text) - 1;     \
    static constexpr char at(u32 i) { return #text[i]; } \
  };
X_TYPE_NAME(u8, u8)
X_TYPE_NAME(u32, u32)
X_TYPE_NAME(i16, i16)
X_TYPE_NAME(i32, i32)
X_TYPE_NAME(i64, i64)
X_TYPE_NAME(u64, u64)
X_TYPE_NAME(f16, f16)
X_TYPE_NAME(bf16, bf16)
X_TYPE_NAME(float, f32)
X_TYPE_NAME(double, f64)
X_TYPE_NAME(f8e4m3, f8e4m3)
X_TYPE_NAME(bool, bool)
template <class T>
struct TypeName<T*> {
  static constexpr u32 length = 3;
  static constexpr char at(u32 i) { return "ptr"[i]; }
};

template <u32 N>
struct Text {
  char data[N];
};

template <class F>
struct Signature;
template <class... A>
struct Signature<void(A...)> {
  static constexpr u32 size = (0u + ... + (TypeName<A>::length + 1)) + (sizeof...(A) == 0 ? 1 : 0);

  template <class T>
  static constexpr u32 put(Text<size>& text, u32 at) {
    for (u32 i = 0; i < TypeName<T>::length; ++i) text.data[at + i] = TypeName<T>::at(i);
    text.data[at + TypeName<T>::length] = ' ';
    return at + TypeName<T>::length + 1;
  }
  static constexpr Text<size> text() {
    Text<size> result = {};
    u32 at = 0;
    ((at = put<A>(result, at)), ...);
    result.data[size - 1] = 0;
    return result;
  }
};

}  // namespace sig

// The declaration gives the constant external linkage.
#define X_SIGNATURE(name, ...)                                                                                \
  extern "C" X_DEVICE_DATA const sig::Text<sig::Signature<void __VA_ARGS__>::size> x_sig_##name;              \
  X_DEVICE_DATA __attribute__((used)) const sig::Text<sig::Signature<void __VA_ARGS__>::size> x_sig_##name =  \
      sig::Signature<void __VA_ARGS__>::text();

#if X_HOST

namespace host {

constexpr u64 alignUp(u64 at, u64 alignment) { return (at + alignment - 1) / alignment * alignment; }

// Reads arguments in order from the packed block.
struct Reader {
  const unsigned char* args;
  u64 at;
  template <class T>
  X_DEVICE T next() {
    at = alignUp(at, alignof(T));
    T value;
    __builtin_memcpy(&value, args + at, sizeof(T));
    at += sizeof(T);
    return value;
  }
};

template <class... A>
struct Pack {};
template <class... A>
X_DEVICE constexpr Pack<A...> packOf(void (*)(A...)) {
  return {};
}

template <auto body, bool merged, class... Loaded>
X_DEVICE void runBlocks(const XHostLaunch* launch, Loaded... loaded) {
  XHostBlock& at = *xHostBlock();
  for (u32 axis = 0; axis < 3; ++axis) at.grid[axis] = launch->grid[axis];
  at.shared = launch->shared;
  if constexpr (merged) {
    at.first = launch->firstBlock;
    at.end = launch->endBlock;
    body(loaded...);
  } else {
    for (u64 block = launch->firstBlock; block < launch->endBlock; ++block) {
      at.block[0] = (u32)(block % at.grid[0]);
      at.block[1] = (u32)(block / at.grid[0] % at.grid[1]);
      at.block[2] = (u32)(block / at.grid[0] / at.grid[1]);
      at.first = block;
      at.end = block + 1;
      body(loaded...);
    }
  }
}

// Arguments are peeled one by one, since the order of evaluation inside a call is the compiler's choice.
template <auto body, bool merged, class... Loaded>
X_DEVICE void load(const XHostLaunch* launch, Reader, Pack<>, Loaded... loaded) {
  runBlocks<body, merged>(launch, loaded...);
}
template <auto body, bool merged, class First, class... Rest, class... Loaded>
X_DEVICE void load(const XHostLaunch* launch, Reader reader, Pack<First, Rest...>, Loaded... loaded) {
  const First value = reader.next<First>();
  load<body, merged>(launch, reader, Pack<Rest...>{}, loaded..., value);
}

}  // namespace host

#define X_KERNEL(name, merged, threads, blocks, ...)                                                          \
  X_SIGNATURE(name, __VA_ARGS__)                                                                              \
  static X_DEVICE void x_body_##name __VA_ARGS__;                                                             \
  extern "C" __attribute__((visibility("default"))) void name(const XHostLaunch* launch, const unsigned char* args) { \
    host::load<x_body_##name, merged>(launch, host::Reader{args, 0}, host::packOf(&x_body_##name));           \
  }                                                                                                           \
  static X_DEVICE void x_body_##name __VA_ARGS__

#else

#define X_KERNEL(name, merged, threads, blocks, ...) \
  X_SIGNATURE(name, __VA_ARGS__)                     \
  extern "C" X_GLOBAL(threads, blocks) void name __VA_ARGS__

#endif

#define KERNEL(name, ...) X_KERNEL(name, false, 1024, 0, __VA_ARGS__)
#define KERNEL_BOUNDS(name, threads, ...) X_KERNEL(name, false, threads, 0, __VA_ARGS__)
#define KERNEL_BLOCKS(name, threads, blocks, ...) X_KERNEL(name, false, threads, blocks, __VA_ARGS__)
#define KERNEL_EACH(name, ...) X_KERNEL(name, true, 1024, 0, __VA_ARGS__)
