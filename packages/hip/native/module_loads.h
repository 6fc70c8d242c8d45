// Modules that are loaded on threads of their own, ahead of their first use: a driver that has to compile a module's text takes
// a tenth of a second and more for each kernel, and compiles as many at once as there are threads.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "driver.h"

namespace xhip {

// How a load ended.
struct LoadOutcome {
  Status status = 0;
  Status current = 0;  // of making the device current on the thread, before the load
  Module module = nullptr;
  std::string detail;  // the driver's, for its failure
  size_t bytes = 0;
};

// The loads of one device. Its methods are called on the environment's thread.
class ModuleLoads {
 public:
  explicit ModuleLoads(Driver& driver) : driver_(driver) {}
  ~ModuleLoads() { stop(); }

  // Copies the image and returns the load's number.
  uint32_t start(Context context, const void* image, size_t bytes);
  bool exists(uint32_t id);
  // Whether it has ended, well or not. False for a number that is taken or unknown.
  bool ended(uint32_t id);
  // Waits for a load under way; does one that no thread has begun yet on this thread, where the device is current. The number is
  // free afterwards, and the module the caller's.
  LoadOutcome take(uint32_t id);
  // Loads nothing more, waits for what is under way, and unloads what nobody has taken. The device is current.
  void stop();

 private:
  enum class State { Waiting, Running, Ended };
  struct Load {
    State state = State::Waiting;
    std::vector<char> image;
    LoadOutcome outcome;
  };

  void work(Context context);
  void run(Load& load);

  Driver& driver_;
  std::mutex mutex_;
  std::condition_variable queued_;
  std::condition_variable ended_;
  std::map<uint32_t, Load> loads_;  // whose entries stay where they are
  std::deque<uint32_t> waiting_;
  std::vector<std::thread> threads_;
  uint32_t next_ = 0;
  size_t idle_ = 0;
  bool stopping_ = false;
};

}  // namespace xhip
