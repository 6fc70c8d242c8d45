// Ends calls that do not return. A thread of its own looks several times a second at how long the call under way has taken, so
// that a watched call costs two atomic stores and a look at the clock.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <thread>

namespace xhip {

class CallWatch {
 public:
  // `late` is called once at most, on the watch's thread, and has to make the call return.
  CallWatch(int mostMs, std::function<void()> late)
      : most_(std::chrono::milliseconds(mostMs)),
        late_(std::move(late)),
        thread_([this, ended = ended_.get_future()] { look(ended); }) {}

  // When `late` has returned, if it was called.
  ~CallWatch() {
    ended_.set_value();
    thread_.join();
  }

  // Around a call, on one thread.
  void begin() { since_ = now(); }
  // Whether the call came back in time; if not, `late` has been called or will be.
  bool end() { return since_.exchange(kIdle) != kIdle; }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr Clock::rep kIdle = -1;

  static Clock::rep now() { return Clock::now().time_since_epoch().count(); }

  void look(const std::future<void>& ended) {
    const auto pause = std::min<Clock::duration>(most_, std::chrono::milliseconds(100));
    while (ended.wait_for(pause) == std::future_status::timeout) {
      Clock::rep since = since_;
      if (since == kIdle || Clock::duration(now() - since) < most_) continue;
      if (since_.compare_exchange_strong(since, kIdle)) return late_();
    }
  }

  const Clock::duration most_;
  const std::function<void()> late_;
  std::atomic<Clock::rep> since_{kIdle};
  std::promise<void> ended_;
  std::thread thread_;  // the last: it begins when all else is there
};

}  // namespace xhip
