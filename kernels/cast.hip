// cast_{src}_{dst} for every pair of the ten dtypes. candle: candle-kernels/src/cast.cu has 58 of the 100 pairs. Values
// follow Rust's `as`, as on candle's CPU (kernels/include/x/convert.h).
#include "x.h"

template <class From, class To>
struct Cast {
  X_DEVICE To operator()(From v) const { return cast<To>(v); }
};

#define CAST(From, To)                                                                                               \
  typedef Cast<From, To> Cast_##From##_##To;                                                                         \
  KERNEL_MAP(cast_##From##_##To, (u64 numel, u64 num_dims, const u64* X_RESTRICT info, const From* inp, To* out)) { \
    mapEach(numel, num_dims, info, Cast_##From##_##To(), out, inp);                                                  \
  }

#define FROM_U8(To) CAST(u8, To)
#define FROM_U32(To) CAST(u32, To)
#define FROM_I16(To) CAST(i16, To)
#define FROM_I32(To) CAST(i32, To)
#define FROM_I64(To) CAST(i64, To)
#define FROM_BF16(To) CAST(bf16, To)
#define FROM_F16(To) CAST(f16, To)
#define FROM_F32(To) CAST(f32, To)
#define FROM_F64(To) CAST(f64, To)
#define FROM_F8(To) CAST(f8e4m3, To)

X_ALL_TYPES(FROM_U8)
X_ALL_TYPES(FROM_U32)
X_ALL_TYPES(FROM_I16)
X_ALL_TYPES(FROM_I32)
X_ALL_TYPES(FROM_I64)
X_ALL_TYPES(FROM_BF16)
X_ALL_TYPES(FROM_F16)
X_ALL_TYPES(FROM_F32)
X_ALL_TYPES(FROM_F64)
X_ALL_TYPES(FROM_F8)
