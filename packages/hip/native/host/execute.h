// Carrying out the records that compute: launches, copies, fills and tasks, shared out over the pool.
#pragma once

#include "record.h"
#include "thread_pool.h"

namespace xhip::host {

// Whether a launch of one block is known to take less than another thread needs to notice it.
bool isShort(const Kernel& kernel);

// Runs such a launch on the calling thread; without shared memory. kLaunchFailure when it threw.
Status executeAtOnce(Kernel& kernel, const uint32_t (&grid)[3], const unsigned char* args);

// Runs a kKernel, kCopy, kFill or kTask record to its end. kLaunchFailure when a kernel threw.
Status executeRecord(const Record* record, Worker& worker, ThreadPool& pool);

}  // namespace xhip::host
