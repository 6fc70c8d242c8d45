// Graph capture. While a stream captures, its records go into a Program instead of its queue. Streams that wait for an
// event of the capture join it; all append to the one Program, and the order of capturing, which respects every
// dependency, is the order of replay. Clocks (how many records of every stream another stream is known to come after)
// tell whether the streams that joined were joined back when the capture ends.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "record.h"
#include "stream.h"

namespace xhip::host {

struct Capture {
  using Clock = std::vector<uint64_t>;

  std::mutex mutex;
  bool ended = false;
  bool valid = true;
  Program program;
  std::vector<Clock> clocks;  // by the streams' captureIndex; the first is the stream that began the capture

  // The members below are called under `mutex`.
  uint32_t join(const Clock& after);
  void advance(uint32_t stream);
  void merge(uint32_t stream, const Clock& after);
  bool joined() const;
};

// What an event holds: its latest recording, on a queue or in a capture.
struct Event {
  std::mutex mutex;
  std::shared_ptr<EventPoint> point;
  std::shared_ptr<Capture> capture;
  Capture::Clock clock;
};

struct Graph {
  std::mutex mutex;
  std::shared_ptr<const Program> program;
};

struct GraphExec {
  std::mutex mutex;
  std::shared_ptr<const Program> program;
  uint64_t checkedGeneration = UINT64_MAX;  // of the memory registry, when the ranges were last found valid
};

// Whether `next` has the same kinds of records, and the same functions, in the same order.
bool sameShape(const Program& before, const Program& next);

}  // namespace xhip::host
