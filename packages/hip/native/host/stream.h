// A stream: an ordered queue of records that one worker at a time drains. Producers append under the stream's mutex
// and publish by raising `submitted_`; the worker that runs the stream raises `completed_`. `active_` is true while the
// stream is scheduled, running, or parked behind another stream's event, so that whoever turns it true schedules it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "record.h"
#include "status.h"
#include "thread_pool.h"

namespace xhip::host {

class Stream;
struct Capture;

// One recording of an event: reached once, by one stream.
class EventPoint {
 public:
  bool reached(uint64_t* timeNs);
  void wait();
  void reach(ThreadPool& pool);
  // True when already reached; otherwise the stream is scheduled again once it is.
  bool passOrPark(Stream* stream);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool reached_ = false;
  uint64_t timeNs_ = 0;
  std::vector<Stream*> parked_;
};

// A thread that sleeps until every stream it asked has got to its place in the queue.
class Waiter {
 public:
  void expect();  // before the record is published
  void arrive(Status status);
  Status wait();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int left_ = 0;
  Status status_ = 0;
};

struct GraphRecord : Record {
  std::shared_ptr<const Program> program;
};
struct EventRecord : Record {
  std::shared_ptr<EventPoint> point;
};
struct ReleaseRecord : Record {
  std::shared_ptr<void> object;
};
struct NotifyRecord : Record {
  Waiter* waiter;
  bool reportErrors;  // hands the stream's error over, and clears it
};

// What the owner of the streams does when one has run its last record.
class StreamOwner {
 public:
  virtual void endOfStream(Stream* stream) = 0;
  virtual void streamIdle(Stream* stream) = 0;  // after endOfStream: nothing will touch the stream again

 protected:
  ~StreamOwner() = default;
};

class Stream : public Runnable {
 public:
  Stream() = default;
  ~Stream();
  void open(ThreadPool* pool, StreamOwner* owner);

  std::mutex mutex;                  // orders producers; guards what follows and the appending members
  std::shared_ptr<Capture> capture;  // the capture this stream takes part in
  uint32_t captureIndex = 0;         // its number there
  bool closing = false;              // its last record is queued

  // Reserve a record, fill it in, publish it: all under `mutex`.
  template <class R>
  R* append(RecordKind kind, size_t payload = 0) {
    const size_t bytes = recordBytes(sizeof(R), payload);
    R* record = new (reserve(bytes)) R;
    record->kind = kind;
    record->bytes = static_cast<uint32_t>(bytes);
    return record;
  }
  void publish();

  uint64_t submitted() const { return submitted_.load(std::memory_order_acquire); }
  uint64_t completed() const { return completed_.load(std::memory_order_acquire); }
  bool idle() const {
    const uint64_t done = completed();  // before `submitted`, so that equality means a moment with nothing queued
    return done == submitted();
  }
  // The first failure of a kernel since the last call; success if none.
  Status takeError() { return error_.exchange(0); }
  void keepError(Status status) {
    Status none = kSuccess;
    if (status != kSuccess) error_.compare_exchange_strong(none, status);
  }

  void run(Worker& worker) override;

  // Largest record that a queue holds, payload included.
  static constexpr size_t kMaxRecordBytes = 48 * 1024;

 private:
  enum class Outcome { kDone, kParked };
  struct alignas(64) Segment {
    unsigned char bytes[64 * 1024];
  };
  struct JumpRecord : Record {
    Segment* next;
  };

  void* reserve(size_t bytes);
  Record* current();
  Outcome execute(Record* record, Worker& worker);

  ThreadPool* pool_ = nullptr;
  StreamOwner* owner_ = nullptr;

  Segment* writeSegment_ = nullptr;  // producers, under `mutex`
  size_t writeOffset_ = 0;
  alignas(64) std::atomic<uint64_t> submitted_{0};
  alignas(64) std::atomic<bool> active_{false};
  std::atomic<Segment*> spare_{nullptr};  // one drained segment, for reuse
  std::atomic<Status> error_{0};
  alignas(64) std::atomic<uint64_t> completed_{0};

  Segment* readSegment_ = nullptr;  // the running worker only
  size_t readOffset_ = 0;
  bool resuming_ = false;  // parked in an event wait that counts as done when the stream runs again
  bool ended_ = false;
};

}  // namespace xhip::host
