// Waiting: a pause instruction, a monotonic clock, futex sleep and wake, and a bounded spin that gives up when the
// machine is oversubscribed. Spinning hides the few microseconds that a sleep and a wake-up cost between the tiny
// kernels of a token; on a machine that runs more threads than cores it would instead keep the very thread off the
// core that it waits for, so a spin that finds itself descheduled stops everybody's spinning for a while.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdint>

namespace xhip::host {

inline void cpuRelax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb" ::: "memory");
#endif
}

inline uint64_t nowNs() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1000000000u + static_cast<uint64_t>(time.tv_nsec);
}

// Sleeps while *word == expected; may return early, so the caller looks again.
inline void futexWait(std::atomic<uint32_t>* word, uint32_t expected) {
  static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t), "a futex word is 32 bits");
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}

inline void futexWake(std::atomic<uint32_t>* word, int threads) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAKE_PRIVATE, threads, nullptr, nullptr, 0);
}

// Shared by all threads of a pool: whether spinning pays at the moment.
class SpinPolicy {
 public:
  // A pool with more threads than cores never spins.
  explicit SpinPolicy(bool enabled) : pausedUntil_(enabled ? 0 : UINT64_MAX) {}

  bool allowed(uint64_t now) const { return now >= pausedUntil_.load(std::memory_order_relaxed); }

  // A spinning thread lost its core. Pauses double, from 5 ms to 160 ms, while this keeps happening.
  void descheduled(uint64_t now) {
    const uint64_t until = pausedUntil_.load(std::memory_order_relaxed);
    if (until > now) return;
    const uint64_t last = pauseNs_.load(std::memory_order_relaxed);
    const uint64_t next = now - until < 4 * last ? std::min<uint64_t>(last * 2, 160000000) : 5000000;
    pauseNs_.store(next, std::memory_order_relaxed);
    pausedUntil_.store(now + next, std::memory_order_relaxed);
  }

 private:
  std::atomic<uint64_t> pausedUntil_;
  std::atomic<uint64_t> pauseNs_{5000000};
};

// Calls `done` until it is true or `deadline` (nowNs) has passed; returns its last answer. Looks at least once.
template <class Done>
bool spinUntil(SpinPolicy& policy, uint64_t deadline, Done done) {
  if (done()) return true;
  constexpr uint64_t kLostCoreNs = 100000;
  uint64_t last = nowNs();
  while (last < deadline && policy.allowed(last)) {
    for (int i = 0; i < 16; ++i) {
      if (done()) return true;
      cpuRelax();
    }
    const uint64_t now = nowNs();
    if (now - last > kLostCoreNs) policy.descheduled(now);
    last = now;
  }
  return done();
}

}  // namespace xhip::host
