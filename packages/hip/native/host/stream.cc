// Appending to and draining a stream's queue. The queue is a chain of 64 KiB segments; one drained segment is kept for
// reuse, so a steady flow of launches allocates nothing.
#include "stream.h"

#include "execute.h"
#include "status.h"

namespace xhip::host {

bool EventPoint::reached(uint64_t* timeNs) {
  std::lock_guard<std::mutex> lock(mutex_);
  *timeNs = timeNs_;
  return reached_;
}

void EventPoint::wait() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return reached_; });
}

void EventPoint::reach(ThreadPool& pool) {
  std::vector<Stream*> parked;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    timeNs_ = nowNs();
    reached_ = true;
    parked.swap(parked_);
    changed_.notify_all();
  }
  for (Stream* stream : parked) pool.schedule(stream);
}

bool EventPoint::passOrPark(Stream* stream) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!reached_) parked_.push_back(stream);
  return reached_;
}

void Waiter::expect() {
  std::lock_guard<std::mutex> lock(mutex_);
  ++left_;
}

void Waiter::arrive(Status status) {
  // Notified under the lock: the waiting thread may destroy this object as soon as it holds the lock.
  std::lock_guard<std::mutex> lock(mutex_);
  if (status_ == 0) status_ = status;
  if (--left_ == 0) changed_.notify_all();
}

Status Waiter::wait() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return left_ == 0; });
  return status_;
}

Stream::~Stream() {
  delete writeSegment_;
  delete spare_.load(std::memory_order_relaxed);
}

// Also brings an ended stream back into use: its counters go on from where they were.
void Stream::open(ThreadPool* pool, StreamOwner* owner) {
  if (!writeSegment_) {
    writeSegment_ = new Segment;
    readSegment_ = writeSegment_;
  }
  pool_ = pool;
  owner_ = owner;
  ended_ = false;
  closing = false;
  capture = nullptr;
  error_.store(0);
}

void* Stream::reserve(size_t bytes) {
  if (bytes > kMaxRecordBytes) throw std::bad_alloc();
  if (writeOffset_ + bytes + sizeof(JumpRecord) > sizeof(Segment)) {
    Segment* next = spare_.exchange(nullptr);
    if (!next) next = new Segment;
    JumpRecord* jump = new (writeSegment_->bytes + writeOffset_) JumpRecord;
    jump->kind = RecordKind::kJump;
    jump->bytes = sizeof(JumpRecord);
    jump->next = next;
    writeSegment_ = next;
    writeOffset_ = 0;
  }
  void* place = writeSegment_->bytes + writeOffset_;
  writeOffset_ += bytes;
  return place;
}

void Stream::publish() {
  submitted_.store(submitted_.load(std::memory_order_relaxed) + 1);
  if (!active_.load() && !active_.exchange(true)) pool_->schedule(this);
}

// The record at the read position; only called when one is published.
Record* Stream::current() {
  Record* record = reinterpret_cast<Record*>(readSegment_->bytes + readOffset_);
  if (record->kind == RecordKind::kJump) {
    Segment* drained = readSegment_;
    readSegment_ = static_cast<JumpRecord*>(record)->next;
    readOffset_ = 0;
    delete spare_.exchange(drained);
    record = reinterpret_cast<Record*>(readSegment_->bytes);
  }
  return record;
}

void Stream::run(Worker& worker) {
  uint64_t done = completed_.load(std::memory_order_relaxed);
  if (resuming_) {
    resuming_ = false;
    completed_.store(++done, std::memory_order_release);
  }
  unsigned sinceYield = 0;
  for (;;) {
    for (uint64_t limit = submitted_.load(std::memory_order_acquire); done != limit;) {
      Record* record = current();
      const uint32_t bytes = record->bytes;
      // A parked stream may already run on another worker: nothing of it may be touched here any more.
      if (execute(record, worker) == Outcome::kParked) return;
      readOffset_ += bytes;
      completed_.store(++done, std::memory_order_release);
      if (++sinceYield >= 64 && pool_->queuesWaiting()) {
        pool_->schedule(this);
        return;
      }
    }
    if (ended_) {
      {
        // A waiter may have queued behind the end, before it could see that the stream is over: it must be answered.
        std::lock_guard<std::mutex> lock(mutex);
        if (submitted_.load() != done) continue;
        active_.store(false);
      }
      owner_->streamIdle(this);
      return;
    }
    auto more = [&] { return submitted_.load(std::memory_order_relaxed) != done; };
    if (pool_->linger(more)) continue;
    active_.store(false);
    // From here on another worker may run the stream, and be through with it before this one looks: what is done, and where
    // to read on, is only known again to whoever turns `active_` true.
    if (submitted_.load() == completed_.load() || active_.exchange(true)) return;
    done = completed_.load(std::memory_order_relaxed);
  }
}

Stream::Outcome Stream::execute(Record* record, Worker& worker) {
  Status status = kSuccess;
  const uint32_t bytes = record->bytes;
  switch (record->kind) {
    case RecordKind::kKernel:
    case RecordKind::kCopy:
    case RecordKind::kFill:
    case RecordKind::kTask:
      status = executeRecord(record, worker, *pool_);
      break;
    case RecordKind::kGraph: {
      auto* graph = static_cast<GraphRecord*>(record);
      const Program& program = *graph->program;
      for (const Record* node = program.begin(); node != program.end() && status == kSuccess; node = nextRecord(node)) {
        status = executeRecord(node, worker, *pool_);
      }
      graph->~GraphRecord();
      break;
    }
    case RecordKind::kEventRecord: {
      auto* event = static_cast<EventRecord*>(record);
      event->point->reach(*pool_);
      event->~EventRecord();
      break;
    }
    case RecordKind::kEventWait: {
      auto* event = static_cast<EventRecord*>(record);
      const std::shared_ptr<EventPoint> point = std::move(event->point);
      event->~EventRecord();
      resuming_ = true;
      readOffset_ += bytes;  // once parked it may be too late to write this
      if (!point->passOrPark(this)) return Outcome::kParked;
      resuming_ = false;
      readOffset_ -= bytes;
      break;
    }
    case RecordKind::kRelease: {
      auto* release = static_cast<ReleaseRecord*>(record);
      release->~ReleaseRecord();
      break;
    }
    case RecordKind::kNotify: {
      auto* notify = static_cast<NotifyRecord*>(record);
      notify->waiter->arrive(notify->reportErrors ? takeError() : kSuccess);
      break;
    }
    case RecordKind::kEnd:
      owner_->endOfStream(this);
      ended_ = true;
      break;
    case RecordKind::kJump:
      break;
  }
  keepError(status);
  return Outcome::kDone;
}

}  // namespace xhip::host
