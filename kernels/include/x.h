// The one header that a kernel file includes. candle's counterparts are candle-kernels/src/{compatibility,cuda_utils,
// binary_op_macros}.cuh; what differs is that these headers describe four compilers' targets with one vocabulary:
// amdgcn (clang, hiprtc), nvptx64 (clang, NVRTC) and the host (clang, a block is one thread). They include no system,
// HIP or CUDA header, so a kernel file and these headers inlined are one string that run-time compilation takes as it is.
#pragma once

#include "x/platform.h"
#include "x/types.h"
#include "x/convert.h"
#include "x/launch.h"
#include "x/kernel.h"
#include "x/math.h"
#include "x/integer.h"
#include "x/warp.h"
#include "x/atomic.h"
#include "x/dot.h"
#include "x/strided.h"
#include "x/vec.h"
#include "x/early.h"
#include "x/elementwise.h"
