// Carrying out the records that compute: launches, copies, fills and tasks, shared out over the pool.
#pragma once

#include "record.h"
#include "thread_pool.h"

namespace xhip::host {

// Runs a kKernel, kCopy, kFill or kTask record to its end. kLaunchFailure when a kernel threw.
Status executeRecord(const Record* record, Worker& worker, ThreadPool& pool);

}  // namespace xhip::host
