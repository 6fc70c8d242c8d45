// Why a platform cannot be used, in words: the driver's error name, what it means here, and what to do about it.
#pragma once

#include "calls.h"
#include "driver.h"

namespace xhip {

// A platform whose library loaded but which gave no device: `status` is what init or the device count returned (0 with a
// count of 0 means that the driver simply lists none).
LoadFailure explainNoDevice(Platform platform, const Driver& driver, Call call, Status status);

// A hint for a failed call, or empty. `blocking`: X_LAUNCH_BLOCKING is on, so the call that failed is the one to blame.
std::string remedyFor(Platform platform, Call call, Status status, bool blocking);

}  // namespace xhip
