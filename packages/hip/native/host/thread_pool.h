// The worker threads of the host platform. A worker does one of three things: run a ready queue (a stream that has
// work), help with a launch that some other worker publishes, or sleep. No worker ever waits for a queue, so any number
// of streams share the pool without deadlock; a worker that publishes a launch computes too, and waits only
// for helpers that have already begun. Idle workers spin for some tenths of a millisecond (wait.h), then sleep.
//
// On a machine of several NUMA nodes each node's workers first take blocks of the node's own part of a launch, the same part of
// every launch, whose data lies in the node's memory (node_memory.h); only then they help the other nodes. Workers are bound to
// all allowed CPUs of their node, not to one each: the system can still move them from a core that another process keeps busy.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "topology.h"
#include "wait.h"

namespace xhip::host {

// What a launch may ask for in dynamic shared memory; every worker owns that much.
constexpr uint32_t kMaxSharedBytes = 1u << 20;

struct Worker {
  uint32_t index = 0;
  uint32_t node = 0;                 // whose part of a launch it takes first
  unsigned char* scratch = nullptr;  // kMaxSharedBytes, 64-byte aligned; pages appear when a kernel touches them
};

// A queue that a worker can drain.
class Runnable {
 public:
  // Runs on one worker at a time. Returns when nothing is left, or earlier after rescheduling itself.
  virtual void run(Worker& worker) = 0;

 protected:
  ~Runnable() = default;

 private:
  friend class ThreadPool;
  Runnable* nextReady_ = nullptr;
};

// Runs the blocks [begin, end) of a task; scratch is the calling worker's.
using RangeFunction = void (*)(const void* task, unsigned char* scratch, uint64_t begin, uint64_t end);

class ThreadPool {
 public:
  // Null when threads or their scratch memory cannot be had. `nodes`: how many threads run where, at least one; they are bound
  // to their node where there are several. `cores`: how many the process may use. `spins`: whether threads wait awake at all.
  static std::unique_ptr<ThreadPool> create(const std::vector<NodeThreads>& nodes, uint32_t cores, bool spins = true);
  ~ThreadPool();  // joins; nothing may be scheduled any more

  // How many of `total` blocks are those of the first `workers` workers: floor(total * workers / threads), which has room for any total.
  uint64_t shareOf(uint64_t total, uint64_t workers) const {
    return total / threads() * workers + total % threads() * workers / threads();
  }
  uint32_t threads() const { return static_cast<uint32_t>(workers_.size()); }
  SpinPolicy& spinPolicy() { return policy_; }

  // Hands a queue to some worker. The caller guarantees that it is not already scheduled or running.
  void schedule(Runnable* queue);

  // True when another queue waits for a worker: a long-running one should reschedule itself.
  bool queuesWaiting() const { return ready_.load(std::memory_order_relaxed) > 0; }

  // Runs task blocks [0, total) on the calling worker and whoever helps, `chunk` blocks at a time. With
  // `wakeSleepers` sleeping workers are woken, otherwise only spinning ones notice. Returns the blocks that
  // the calling worker ran itself.
  uint64_t parallel(Worker& worker, RangeFunction function, const void* task, uint64_t total, uint64_t chunk,
                    bool wakeSleepers);

  // Called by a worker whose queue ran dry: waits a moment for `more` to become true. False: give the queue up.
  template <class More>
  bool linger(More more) {
    constexpr uint64_t kLingerNs = 20000;
    bool found = false;
    spinUntil(policy_, startSpinning() ? nowNs() + kLingerNs : 0, [&] {
      found = more();
      return found || ready_.load(std::memory_order_relaxed) > 0 || openJobs_.load(std::memory_order_relaxed) > 0;
    });
    stopSpinning(found);
    return found;
  }

 private:
  // The blocks of one node's workers.
  struct alignas(64) Part {
    std::atomic<uint64_t> next{0};
    uint64_t end = 0;
  };
  struct alignas(64) Job {
    std::atomic<uint32_t> open{0};     // 1 while there are blocks to claim
    std::atomic<uint32_t> helpers{0};  // workers that look at the fields below
    std::atomic<uint32_t> ownerWaits{0};
    RangeFunction function = nullptr;
    const void* task = nullptr;
    uint64_t chunk = 0;
    std::unique_ptr<Part[]> parts;  // one a node
  };
  struct alignas(64) Thread {
    Worker worker;
    ThreadPool* pool = nullptr;
    pthread_t id{};
    std::atomic<uint32_t> signalled{0};
    Job job;
  };

  ThreadPool(const std::vector<NodeThreads>& nodes, uint32_t threads, uint32_t cores, bool spins);
  static void* threadMain(void* thread);
  void loop(Thread& thread);
  Runnable* takeReady();
  bool help(Worker& worker);
  uint64_t drain(Job& job, const Worker& worker);
  void awaitHelpers(Job& job);
  // False when enough workers spin already: one core is left to whoever feeds the queues.
  bool startSpinning() { return spinners_.fetch_add(1) < maxSpinners_; }
  void stopSpinning(bool foundWork);
  void sleep(Thread& thread);
  void wake(uint32_t count);

  SpinPolicy policy_;
  std::vector<std::unique_ptr<Thread>> workers_;  // fixed before the first thread starts
  const std::vector<NodeThreads> nodes_;
  uint32_t started_ = 0;
  const uint32_t maxSpinners_;

  alignas(64) std::atomic<uint32_t> ready_{0};
  std::atomic<uint32_t> openJobs_{0};
  std::atomic<uint32_t> lastJob_{0};  // where helpers look first
  std::atomic<bool> stopping_{false};
  alignas(64) std::atomic<uint32_t> spinners_{0};
  std::atomic<uint32_t> sleeperCount_{0};

  std::mutex readyMutex_;
  Runnable* readyHead_ = nullptr;
  Runnable* readyTail_ = nullptr;

  std::mutex sleepMutex_;
  std::vector<Thread*> sleepers_;  // the most recently fallen asleep is woken first
};

}  // namespace xhip::host
