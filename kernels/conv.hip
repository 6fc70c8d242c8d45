// CONV: convolutions, pooling, upsampling, images to columns. Mirrors candle-kernels/src/conv.cu, names and parameter
// lists (src_numel is read by nobody). What differs: every kernel is right for any grid and block, sizes and strides are
// 64-bit throughout, conv1d dilates the tap alone, the small floats are summed in f32 everywhere (candle's col2im1d sums
// in T), i16 i32 i64 and f8e4m3 are there, and so is upsample_nearest1d, which candle has on its CPU only. Each header
// says what else. Ours besides: conv_groups and conv_transpose_groups; and on the host conv_planes, conv_strips, conv_taps,
// conv_windows (conv/host.h) and conv_own (conv/depthwise.h), which convolve floats there; with the first four, CPUs that have dot
// products of pairs multiply bf16 in them (conv/forms.h), or in tile registers (conv/host-amx.h).
#include "x.h"
#include "shared/exact.h"
#include "shared/amx.h"
#include "shared/pairs.h"
#include "shared/split.h"
#include "shared/tally.h"
#include "conv/index.h"
#include "conv/direct.h"
#include "conv/pool.h"
#include "conv/pool-gradient.h"
#include "conv/columns.h"
#include "conv/forms.h"
#include "conv/planes.h"
#include "conv/host.h"
#include "conv/host-amx.h"
#include "conv/depthwise.h"

// Ours: groups of channels, and axes with options of their own, so that one dimension is two of which one is 1.
#define GROUPS(name, transposed, T)                                                                                    \
  KERNEL_EACH(name, (u64 groups, u64 h_out, u64 w_out, u64 down_stride, u64 down_padding, u64 down_dilation,           \
                     u64 across_stride, u64 across_padding, u64 across_dilation, const u64* info, const T* src,        \
                     const T* kernel, T* dst)) {                                                                       \
    conv::convolve<transposed>(opaque(groups), conv::Image(4, info, info + 4), conv::Image(4, info + 8, info + 12),    \
                               conv::Axis{down_stride, down_padding, opaque(down_dilation)},                           \
                               conv::Axis{across_stride, across_padding, opaque(across_dilation)}, h_out, w_out, src,  \
                               kernel, dst);                                                                           \
  }

#define CONVOLUTIONS(T, t)                                                                                             \
  KERNEL_EACH(conv1d_##t, (u64 src_numel, u64 l_out, u64 stride, u64 padding, u64 dilation, const u64* info,           \
                           const T* src, const T* kernel, T* dst)) {                                                   \
    (void)src_numel;                                                                                                   \
    conv::convolve1d<false>(l_out, conv::Axis{stride, padding, dilation}, info, src, kernel, dst);                     \
  }                                                                                                                    \
  KERNEL_EACH(conv2d_##t, (u64 src_numel, u64 w_out, u64 h_out, u64 stride, u64 padding, u64 dilation, const u64* info, \
                           const T* src, const T* kernel, T* dst)) {                                                   \
    (void)src_numel;                                                                                                   \
    conv::convolve2d<false>(w_out, h_out, conv::Axis{stride, padding, dilation}, info, src, kernel, dst);              \
  }                                                                                                                    \
  KERNEL_EACH(conv_transpose1d_##t, (u64 src_numel, u64 l_out, u64 stride, u64 padding, u64 out_padding, u64 dilation, \
                                     const u64* info, const T* src, const T* kernel, T* dst)) {                        \
    (void)src_numel, (void)out_padding;                                                                                \
    conv::convolve1d<true>(l_out, conv::Axis{stride, padding, dilation}, info, src, kernel, dst);                      \
  }                                                                                                                    \
  KERNEL_EACH(conv_transpose2d_##t, (u64 src_numel, u64 w_out, u64 h_out, u64 stride, u64 padding, u64 out_padding,    \
                                     u64 dilation, const u64* info, const T* src, const T* kernel, T* dst)) {          \
    (void)src_numel, (void)out_padding;                                                                                \
    conv::convolve2d<true>(w_out, h_out, conv::Axis{stride, padding, dilation}, info, src, kernel, dst);               \
  }                                                                                                                    \
  GROUPS(conv_groups_##t, false, T)                                                                                    \
  GROUPS(conv_transpose_groups_##t, true, T)

#define POOLS(T, t)                                                                                                    \
  KERNEL_EACH(avg_pool2d_##t, (u64 src_numel, u64 w_k, u64 h_k, u64 w_stride, u64 h_stride, const u64* info,           \
                               const T* src, T* dst)) {                                                                \
    (void)src_numel;                                                                                                   \
    conv::pool<conv::Average>(w_k, h_k, w_stride, h_stride, info, src, dst);                                           \
  }                                                                                                                    \
  KERNEL_EACH(max_pool2d_##t, (u64 src_numel, u64 w_k, u64 h_k, u64 w_stride, u64 h_stride, const u64* info,           \
                               const T* src, T* dst)) {                                                                \
    (void)src_numel;                                                                                                   \
    conv::pool<conv::Largest>(w_k, h_k, w_stride, h_stride, info, src, dst);                                           \
  }

#define POOL_GRADIENTS(T, t)                                                                                           \
  KERNEL_EACH(max_pool2d_backward_##t, (u64 src_numel, u64 w_k, u64 h_k, u64 w_stride, u64 h_stride, const u64* info,  \
                                        const T* src, const T* top, const T* grad, T* dst)) {                          \
    (void)src_numel;                                                                                                   \
    conv::MaxPoolGradient<T>(w_k, h_k, w_stride, h_stride, info, src, top, grad).run(dst);                             \
  }

#define UPSAMPLINGS(T, t)                                                                                              \
  KERNEL_EACH(upsample_nearest1d_##t, (u64 w_out, double w_scale, const u64* info, const T* src, T* dst)) {            \
    conv::upsampleNearest(1, w_out, 1.0, w_scale, conv::Image(3, info, info + 3), src, dst);                           \
  }                                                                                                                    \
  KERNEL_EACH(upsample_nearest2d_##t, (u64 w_out, u64 h_out, double w_scale, double h_scale, const u64* info,          \
                                       const T* src, T* dst)) {                                                        \
    conv::upsampleNearest(w_out, h_out, w_scale, h_scale, conv::Image(4, info, info + 4), src, dst);                   \
  }                                                                                                                    \
  KERNEL_EACH(upsample_bilinear2d_##t, (u64 w_out, u64 h_out, bool align_corners, bool has_scale_h, double scale_h,    \
                                        bool has_scale_w, double scale_w, const u64* info, const T* src, T* dst)) {    \
    conv::upsampleBilinear(w_out, h_out, align_corners, has_scale_h, scale_h, has_scale_w, scale_w,                    \
                           conv::Image(4, info, info + 4), src, dst);                                                  \
  }

#define COLUMNS(T, t)                                                                                                  \
  KERNEL_EACH(im2col_##t, (u64 dst_numel, u64 h_out, u64 w_out, u64 h_k, u64 w_k, u64 stride, u64 padding,             \
                           u64 dilation, const u64* info, const T* src, T* dst)) {                                     \
    const conv::Axis axis{stride, padding, dilation};                                                                  \
    conv::imageToColumns(dst_numel, h_out, w_out, h_k, w_k, axis, axis, conv::Image(4, info, info + 4), src, dst);     \
  }                                                                                                                    \
  KERNEL_EACH(im2col1d_##t, (u64 numel, u64 l_out, u64 l_k, u64 stride, u64 padding, u64 dilation, const u64* info,    \
                             const T* src, T* dst)) {                                                                  \
    /* numel counts rows of l_k elements */                                                                            \
    conv::imageToColumns(numel * l_k, 1, l_out, 1, l_k, conv::Axis{1, 0, 1}, conv::Axis{stride, padding, dilation},    \
                         conv::Image(3, info, info + 3), src, dst);                                                    \
  }                                                                                                                    \
  KERNEL_EACH(col2im1d_##t, (u64 dst_el, u64 l_out, u64 l_in, u64 c_out, u64 k_size, u64 stride, const T* src, T* dst)) { \
    conv::columnsToImage(dst_el, l_out, l_in, c_out, k_size, stride, src, dst);                                        \
  }

#define ALL(T, t)     \
  CONVOLUTIONS(T, t)  \
  POOLS(T, t)         \
  UPSAMPLINGS(T, t)   \
  COLUMNS(T, t)
ALL(bf16, bf16)
ALL(f16, f16)
ALL(float, f32)
ALL(double, f64)
ALL(f8e4m3, f8e4m3)
ALL(u8, u8)
ALL(u32, u32)
ALL(i16, i16)
ALL(i32, i32)
ALL(i64, i64)
POOL_GRADIENTS(bf16, bf16)
POOL_GRADIENTS(f16, f16)
POOL_GRADIENTS(float, f32)

#if X_HOST
#define FLOATS_ON_HOST(T, t)                                                                                           \
  KERNEL(conv_planes_##t, (u64 down_parts, u64 down_size, u64 down_step, u64 down_before, u64 across_parts,            \
                           u64 across_size, u64 across_step, u64 across_before, u64 channels, const u64* info,         \
                           const T* src, acc_t<T>* dst)) {                                                             \
    conv::planes(conv::PlaneAxis{down_parts, down_size, down_step, down_before},                                       \
                 conv::PlaneAxis{across_parts, across_size, across_step, across_before},                               \
                 conv::Image(4, info, info + 4), channels, src, dst);                                                  \
  }                                                                                                                    \
  KERNEL(conv_strips_##t, (u64 groups, u64 c_out, u64 c_in, u64 phases, u64 group_stride, u64 out_stride,              \
                           u64 in_stride, const u64* table, const T* kernel, acc_t<T>* dst)) {                         \
    conv::strips(conv::Counts{1, groups, c_out, c_in, phases}, group_stride, out_stride, in_stride, table, kernel, dst); \
  }                                                                                                                    \
  KERNEL(conv_taps_##t, (u64 images, u64 groups, u64 c_out, u64 c_in, u64 phases, u64 plane_size, u64 rows_each,       \
                         u64 pitch, u64 down, u64 across, u64 channel, const u64* table, const acc_t<T>* planes,       \
                         const acc_t<T>* strips, T* dst)) {                                                            \
    conv::products(conv::Counts{images, groups, c_out, c_in, phases}, plane_size, rows_each,                           \
                   conv::Target{pitch, down, across, channel}, table, planes, strips, dst);                            \
  }                                                                                                                    \
  KERNEL(conv_windows_##t, (u64 images, u64 groups, u64 c_out, u64 c_in, u64 plane_size, u64 lines, u64 width,         \
                            u64 pitch, u64 outputs, const u64* places, const acc_t<T>* planes,                         \
                            const acc_t<T>* kernel, T* dst)) {                                                         \
    conv::withForm<T, conv::Neighbours>([&](auto form) {                                                               \
      typedef decltype(form) Form;                                                                                     \
      typedef typename Form::Element Element;                                                                          \
      conv::multiplyWindows<T, Form>(conv::Counts{images, groups, c_out, c_in, 1}, plane_size,                         \
                                     conv::Window{lines, width, pitch}, outputs, places, (const Element*)planes,       \
                                     (const Element*)kernel, dst);                                                     \
    });                                                                                                                \
  }                                                                                                                    \
  KERNEL(conv_own_##t, (u64 images, u64 groups, u64 c_out, u64 phases, u64 down_parts, u64 down_size, u64 down_step,    \
                        u64 down_before, u64 across_parts, u64 across_size, u64 across_step, u64 across_before,        \
                        u64 plane_size, u64 group_stride, u64 out_stride, u64 down, u64 across, u64 channel,           \
                        const u64* table, const u64* info, const T* src, const T* kernel, T* dst)) {                   \
    conv::multiplyOwn<T>(conv::Counts{images, groups, c_out, 1, phases},                                               \
                         conv::PlaneAxis{down_parts, down_size, down_step, down_before},                               \
                         conv::PlaneAxis{across_parts, across_size, across_step, across_before},                       \
                         conv::Image(4, info, info + 4), plane_size, group_stride, out_stride,                         \
                         conv::Target{across_size, down, across, channel}, table, src, kernel, dst);                   \
  }
FLOATS_ON_HOST(bf16, bf16)
FLOATS_ON_HOST(f16, f16)
FLOATS_ON_HOST(float, f32)
FLOATS_ON_HOST(double, f64)
FLOATS_ON_HOST(f8e4m3, f8e4m3)
#endif
