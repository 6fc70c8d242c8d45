// The threads behind module_loads.h. They end when the device closes.
#include "module_loads.h"

#include <algorithm>
#include <new>
#include <system_error>

#include "calls.h"

namespace xhip {
namespace {

// As many threads as help: one core is left to the program, which reads weights meanwhile.
size_t mostThreads() {
  const size_t cores = std::thread::hardware_concurrency();
  return std::clamp<size_t>(cores, 2, 17) - 1;
}

}  // namespace

uint32_t ModuleLoads::start(Context context, const void* image, size_t bytes) {
  const char* data = static_cast<const char*>(image);
  std::lock_guard<std::mutex> lock(mutex_);
  const uint32_t id = next_++;
  Load& load = loads_[id];
  load.image.assign(data, data + bytes);
  load.outcome.bytes = bytes;
  waiting_.push_back(id);
  if (idle_ < waiting_.size() && threads_.size() < mostThreads()) {
    try {
      threads_.emplace_back([this, context] { work(context); });
    } catch (const std::system_error&) {
      // No thread: `take` does the load.
    }
  }
  queued_.notify_one();
  return id;
}

bool ModuleLoads::exists(uint32_t id) {
  std::lock_guard<std::mutex> lock(mutex_);
  return loads_.count(id) != 0;
}

bool ModuleLoads::ended(uint32_t id) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = loads_.find(id);
  return found != loads_.end() && found->second.state == State::Ended;
}

LoadOutcome ModuleLoads::take(uint32_t id) {
  std::unique_lock<std::mutex> lock(mutex_);
  Load& load = loads_.at(id);
  if (load.state == State::Waiting) {
    waiting_.erase(std::find(waiting_.begin(), waiting_.end(), id));
    lock.unlock();
    run(load);
    lock.lock();
  } else {
    ended_.wait(lock, [&] { return load.state == State::Ended; });
  }
  LoadOutcome outcome = std::move(load.outcome);
  loads_.erase(id);
  return outcome;
}

void ModuleLoads::stop() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    waiting_.clear();
  }
  queued_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  for (auto& entry : loads_) {
    if (entry.second.outcome.module) (void)driver_.moduleUnload(entry.second.outcome.module);
  }
  loads_.clear();
}

void ModuleLoads::work(Context context) {
  const Status current = driver_.makeCurrent(context);
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    idle_++;
    queued_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    idle_--;
    if (stopping_) return;
    Load& load = loads_.at(waiting_.front());
    waiting_.pop_front();
    load.state = State::Running;
    lock.unlock();
    if (current == 0) run(load);
    else load.outcome.current = current;
    lock.lock();
    load.state = State::Ended;
    ended_.notify_all();
  }
}

void ModuleLoads::run(Load& load) {
  LoadOutcome& outcome = load.outcome;
  try {
    outcome.status = driver_.moduleLoad(&outcome.module, load.image.data(), load.image.size());
  } catch (const std::bad_alloc&) {
    outcome.status = kStatusOutOfMemory;
  }
  if (outcome.status != 0) {
    outcome.module = nullptr;
    outcome.detail = driver_.failureDetail();
  }
  load.image = {};
}

}  // namespace xhip
