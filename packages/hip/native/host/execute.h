// Carrying out the records that compute: launches, copies and fills, shared out over the pool.
#pragma once

#include "record.h"
#include "thread_pool.h"

namespace xhip::host {

// Runs a kKernel, kCopy or kFill record to its end. kLaunchFailure when a kernel threw.
Status executeRecord(const Record* record, Worker& worker, ThreadPool& pool);

}  // namespace xhip::host
