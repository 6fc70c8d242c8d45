// The worker loop, block sharing and sleeping of the host platform's thread pool. The counters that decide whether a
// worker may sleep (ready_, openJobs_, spinners_, sleeperCount_) use sequentially consistent order: a scheduler writes
// ready_ and then reads the idle counters, a worker announces itself idle and then reads ready_, so one sees the other.
#include "thread_pool.h"

#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>

namespace xhip::host {
namespace {

constexpr uint64_t kIdleSpinNs = 400000;
constexpr uint64_t kHelperSpinNs = 20000;
constexpr size_t kStackBytes = size_t{8} << 20;

// Lets a thread run on these CPUs alone. One that cannot be bound runs anywhere: that is slower at worst.
void bindTo(pthread_t thread, const std::vector<uint32_t>& cpus) {
  const uint32_t most = *std::max_element(cpus.begin(), cpus.end()) + 1;
  cpu_set_t* set = CPU_ALLOC(most);
  if (!set) return;
  const size_t bytes = CPU_ALLOC_SIZE(most);
  CPU_ZERO_S(bytes, set);
  for (const uint32_t cpu : cpus) CPU_SET_S(cpu, bytes, set);
  pthread_setaffinity_np(thread, bytes, set);
  CPU_FREE(set);
}

}  // namespace

ThreadPool::ThreadPool(const std::vector<NodeThreads>& nodes, uint32_t threads, uint32_t cores, bool spins)
    : policy_(spins && threads <= cores && cores > 1), nodes_(nodes), maxSpinners_(cores - 1) {
  workers_.reserve(threads);
  sleepers_.reserve(threads);
}

std::unique_ptr<ThreadPool> ThreadPool::create(const std::vector<NodeThreads>& nodes, uint32_t cores, bool spins) {
  uint32_t threads = 0;
  for (const NodeThreads& node : nodes) threads += node.threads;
  std::unique_ptr<ThreadPool> pool(new ThreadPool(nodes, threads, cores, spins));
  for (uint32_t i = 0, node = 0, before = 0; i < threads; ++i) {
    for (; i - before == nodes[node].threads; ++node) before = i;
    auto thread = std::make_unique<Thread>();
    thread->job.parts.reset(new Part[nodes.size()]);
    thread->worker.index = i;
    thread->worker.node = node;
    thread->worker.scratch = static_cast<unsigned char*>(std::aligned_alloc(64, kMaxSharedBytes));
    thread->pool = pool.get();
    if (!thread->worker.scratch) return nullptr;
    pool->workers_.push_back(std::move(thread));
  }
  // The process's signals belong to its own threads; only faults of the kernels themselves stay deliverable.
  sigset_t blocked, previous;
  sigfillset(&blocked);
  for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS, SIGPROF}) sigdelset(&blocked, fault);
  pthread_sigmask(SIG_SETMASK, &blocked, &previous);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  bool complete = true;
  for (auto& thread : pool->workers_) {
    complete = pthread_create(&thread->id, &attributes, threadMain, thread.get()) == 0;
    if (!complete) break;
    ++pool->started_;
    if (nodes.size() > 1) bindTo(thread->id, nodes[thread->worker.node].cpus);
#if defined(__linux__)
    pthread_setname_np(thread->id, "x-host-worker");  // here, so that no thread is seen without its name
#endif
  }
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &previous, nullptr);
  return complete ? std::move(pool) : nullptr;
}

ThreadPool::~ThreadPool() {
  stopping_.store(true);
  wake(threads());
  for (uint32_t i = 0; i < started_; ++i) pthread_join(workers_[i]->id, nullptr);
  for (auto& thread : workers_) std::free(thread->worker.scratch);
}

void* ThreadPool::threadMain(void* argument) {
  Thread& thread = *static_cast<Thread*>(argument);
  thread.pool->loop(thread);
  return nullptr;
}

void ThreadPool::loop(Thread& thread) {
  uint64_t idleSince = nowNs();
  for (;;) {
    if (Runnable* queue = takeReady()) {
      queue->run(thread.worker);
      idleSince = nowNs();
      continue;
    }
    if (help(thread.worker)) {
      idleSince = nowNs();
      continue;
    }
    if (stopping_.load()) return;
    Runnable* queue = nullptr;
    bool job = false;
    // A worker that keeps losing the race for work does not get a new budget each time.
    spinUntil(policy_, startSpinning() ? idleSince + kIdleSpinNs : 0, [&] {
      if (ready_.load(std::memory_order_relaxed) > 0) queue = takeReady();
      job = openJobs_.load(std::memory_order_relaxed) > 0;
      return queue || job || stopping_.load(std::memory_order_relaxed);
    });
    stopSpinning(queue || job);
    if (queue) {
      queue->run(thread.worker);
      idleSince = nowNs();
    } else if (job) {
      if (help(thread.worker)) idleSince = nowNs();
    } else {
      sleep(thread);
      idleSince = nowNs();
    }
  }
}

Runnable* ThreadPool::takeReady() {
  if (ready_.load() == 0) return nullptr;
  std::lock_guard<std::mutex> lock(readyMutex_);
  Runnable* queue = readyHead_;
  if (!queue) return nullptr;
  readyHead_ = queue->nextReady_;
  if (!readyHead_) readyTail_ = nullptr;
  queue->nextReady_ = nullptr;
  ready_.fetch_sub(1);
  return queue;
}

void ThreadPool::schedule(Runnable* queue) {
  {
    std::lock_guard<std::mutex> lock(readyMutex_);
    if (readyTail_) {
      readyTail_->nextReady_ = queue;
    } else {
      readyHead_ = queue;
    }
    readyTail_ = queue;
    ready_.fetch_add(1);
  }
  if (spinners_.load() == 0) wake(1);
}

// A scheduler that saw this worker spinning woke nobody; if work is left that this worker will not do, pass it on.
void ThreadPool::stopSpinning(bool foundWork) {
  spinners_.fetch_sub(1);
  if (foundWork && ready_.load() > 0 && spinners_.load() == 0) wake(1);
}

uint64_t ThreadPool::parallel(Worker& worker, RangeFunction function, const void* task, uint64_t total, uint64_t chunk,
                              bool wakeSleepers) {
  Job& job = workers_[worker.index]->job;
  job.function = function;
  job.task = task;
  job.chunk = chunk;
  uint64_t threadsBefore = 0;
  for (size_t node = 0; node < nodes_.size(); ++node) {
    Part& part = job.parts[node];
    part.next.store(shareOf(total, threadsBefore), std::memory_order_relaxed);
    threadsBefore += nodes_[node].threads;
    part.end = shareOf(total, threadsBefore);
  }
  job.open.store(1);
  lastJob_.store(worker.index, std::memory_order_relaxed);
  openJobs_.fetch_add(1);
  if (wakeSleepers && sleeperCount_.load() > 0) {
    const uint64_t useful = std::min<uint64_t>((total + chunk - 1) / chunk, threads()) - 1;
    const uint32_t spinning = spinners_.load();
    if (useful > spinning) wake(static_cast<uint32_t>(useful) - spinning);
  }
  const uint64_t own = drain(job, worker);
  awaitHelpers(job);
  return own;
}

// Claims and runs chunks until none is left, those of the worker's node first; whoever finds that out closes the job.
uint64_t ThreadPool::drain(Job& job, const Worker& worker) {
  uint64_t ran = 0;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    Part& part = job.parts[(worker.node + i) % nodes_.size()];
    for (;;) {
      const uint64_t begin = part.next.fetch_add(job.chunk, std::memory_order_relaxed);
      if (begin >= part.end) break;
      const uint64_t end = std::min(begin + job.chunk, part.end);
      job.function(job.task, worker.scratch, begin, end);
      ran += end - begin;
    }
  }
  if (job.open.exchange(0) == 1) openJobs_.fetch_sub(1);
  return ran;
}

// A helper first counts itself in and then looks whether the job is (still) open. The owner first closes the job and
// then waits for the count to fall to zero. So either the helper sees it closed or the owner waits for the helper.
bool ThreadPool::help(Worker& worker) {
  bool helped = false;
  const uint32_t first = lastJob_.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < threads() && openJobs_.load() > 0; ++i) {
    Job& job = workers_[(first + i) % threads()]->job;
    if (job.open.load(std::memory_order_relaxed) == 0) continue;
    job.helpers.fetch_add(1);
    if (job.open.load() == 1) helped = drain(job, worker) > 0 || helped;
    if (job.helpers.fetch_sub(1) == 1 && job.ownerWaits.load() == 1) futexWake(&job.helpers, 1);
  }
  return helped;
}

void ThreadPool::awaitHelpers(Job& job) {
  if (job.helpers.load() == 0) return;
  if (spinUntil(policy_, nowNs() + kHelperSpinNs, [&] { return job.helpers.load() == 0; })) return;
  job.ownerWaits.store(1);
  for (uint32_t helpers = job.helpers.load(); helpers != 0; helpers = job.helpers.load()) {
    futexWait(&job.helpers, helpers);
  }
  job.ownerWaits.store(0);
}

void ThreadPool::sleep(Thread& thread) {
  {
    std::lock_guard<std::mutex> lock(sleepMutex_);
    thread.signalled.store(0, std::memory_order_relaxed);
    sleepers_.push_back(&thread);
    sleeperCount_.store(static_cast<uint32_t>(sleepers_.size()));
  }
  if (ready_.load() > 0 || openJobs_.load() > 0 || stopping_.load()) {
    std::lock_guard<std::mutex> lock(sleepMutex_);
    sleepers_.erase(std::remove(sleepers_.begin(), sleepers_.end(), &thread), sleepers_.end());
    sleeperCount_.store(static_cast<uint32_t>(sleepers_.size()));
    return;
  }
  while (thread.signalled.load(std::memory_order_acquire) == 0) futexWait(&thread.signalled, 0);
}

// A woken worker leaves the list at once, so nobody pays for waking it twice.
void ThreadPool::wake(uint32_t count) {
  if (sleeperCount_.load() == 0) return;
  std::lock_guard<std::mutex> lock(sleepMutex_);
  for (; count > 0 && !sleepers_.empty(); --count) {
    Thread* thread = sleepers_.back();
    sleepers_.pop_back();
    sleeperCount_.store(static_cast<uint32_t>(sleepers_.size()));
    thread->signalled.store(1, std::memory_order_release);
    futexWake(&thread->signalled, 1);
  }
}

}  // namespace xhip::host
