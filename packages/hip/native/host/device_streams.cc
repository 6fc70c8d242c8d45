// Streams and events.
#include "device.h"

namespace xhip::host {
namespace {

constexpr uint64_t kSyncSpinNs = 10000;  // a thread that waits for a stream takes a core from its workers

}  // namespace

Capture* Device::capturing(Stream* stream) {
  if (!stream->capture) return nullptr;
  bool ended;
  {
    std::lock_guard<std::mutex> lock(stream->capture->mutex);
    ended = stream->capture->ended;
  }
  if (ended) stream->capture = nullptr;
  return stream->capture.get();
}

Status Device::streamCreate(void** out) {
  if (!out) return fail(kInvalidValue, "streamCreate: no place for the result");
  *out = nullptr;
  Stream* stream = streamTable_.acquire();
  {
    std::lock_guard<std::mutex> streamLock(stream->mutex);
    stream->open(pool_.get(), this);
  }
  {
    std::lock_guard<std::mutex> lock(streamsMutex_);
    streams_.push_back(stream);
    ++liveStreams_;
  }
  *out = streamTable_.publish(stream);
  return kSuccess;
}

Status Device::streamDestroy(void* handle) {
  Stream* stream = streamTable_.withdraw(handle);
  if (!stream) return fail(kInvalidHandle, "streamDestroy: not a live stream");
  std::lock_guard<std::mutex> lock(streamsMutex_);  // keeps the stream until this function is done with it
  std::lock_guard<std::mutex> streamLock(stream->mutex);
  if (Capture* capture = capturing(stream)) {
    std::lock_guard<std::mutex> captureLock(capture->mutex);
    capture->valid = false;
    if (stream->captureIndex == 0) capture->ended = true;
  }
  stream->capture = nullptr;
  stream->closing = true;
  stream->append<Record>(RecordKind::kEnd);
  stream->publish();
  return kSuccess;
}

Status Device::streamSynchronize(void* handle) {
  Stream* stream = streamTable_.find(handle);
  if (!stream) return fail(kInvalidHandle, "streamSynchronize: not a live stream");
  uint64_t target;
  {
    std::lock_guard<std::mutex> lock(stream->mutex);
    if (Capture* capture = capturing(stream)) {
      std::lock_guard<std::mutex> captureLock(capture->mutex);
      capture->valid = false;
      return fail(kStreamCaptureUnsupported, "a capturing stream cannot be synchronised; the capture is lost, end it");
    }
    target = stream->submitted();
  }
  auto reached = [&] { return stream->completed() >= target; };
  if (spinUntil(pool_->spinPolicy(), nowNs() + kSyncSpinNs, reached)) return stream->takeError();
  return waitFor({stream}, true);
}

Status Device::streamWaitEvent(void* streamHandle, void* eventHandle) {
  Stream* stream = streamTable_.find(streamHandle);
  Event* event = events_.find(eventHandle);
  if (!stream || !event) return fail(kInvalidHandle, "streamWaitEvent: not a live %s", stream ? "event" : "stream");
  std::shared_ptr<EventPoint> point;
  std::shared_ptr<Capture> capture;
  Capture::Clock clock;
  {
    std::lock_guard<std::mutex> lock(event->mutex);
    point = event->point;
    capture = event->capture;
    clock = event->clock;
  }
  std::lock_guard<std::mutex> lock(stream->mutex);
  Capture* own = capturing(stream);
  if (capture) {
    if (own && own != capture.get()) {
      std::lock_guard<std::mutex> captureLock(own->mutex);
      own->valid = false;
      return fail(kStreamCaptureMerge, "the event belongs to another capture");
    }
    std::lock_guard<std::mutex> captureLock(capture->mutex);
    if (capture->ended) return fail(kCapturedEvent, "the event was recorded in a capture that has ended: record it again");
    if (!own) {
      stream->captureIndex = capture->join(clock);
      stream->capture = capture;
    } else {
      capture->merge(stream->captureIndex, clock);
    }
    return kSuccess;
  }
  uint64_t timeNs;
  if (!point) return kSuccess;
  if (own) {
    std::lock_guard<std::mutex> captureLock(own->mutex);
    own->valid = false;
    return fail(kStreamCaptureIsolation, "the event was recorded outside the capture; the capture is lost, end it");
  }
  if (point->reached(&timeNs)) return kSuccess;
  stream->append<EventRecord>(RecordKind::kEventWait)->point = std::move(point);
  stream->publish();
  return kSuccess;
}

Status Device::eventCreate(void** out) {
  if (!out) return fail(kInvalidValue, "eventCreate: no place for the result");
  Event* event = events_.acquire();
  {
    std::lock_guard<std::mutex> lock(event->mutex);
    event->point = nullptr;
    event->capture = nullptr;
  }
  *out = events_.publish(event);
  return kSuccess;
}

Status Device::eventDestroy(void* handle) {
  Event* event = events_.withdraw(handle);
  if (!event) return fail(kInvalidHandle, "eventDestroy: not a live event");
  {
    std::lock_guard<std::mutex> lock(event->mutex);
    event->point = nullptr;
    event->capture = nullptr;
  }
  events_.recycle(event);
  return kSuccess;
}

Status Device::eventRecord(void* eventHandle, void* streamHandle) {
  Event* event = events_.find(eventHandle);
  Stream* stream = streamTable_.find(streamHandle);
  if (!stream || !event) return fail(kInvalidHandle, "eventRecord: not a live %s", stream ? "event" : "stream");
  std::lock_guard<std::mutex> lock(stream->mutex);
  if (Capture* capture = capturing(stream)) {
    std::lock_guard<std::mutex> captureLock(capture->mutex);
    if (!capture->valid) return fail(kStreamCaptureInvalidated, "end the capture to use the stream again");
    std::lock_guard<std::mutex> eventLock(event->mutex);
    event->point = nullptr;
    event->capture = stream->capture;
    event->clock = capture->clocks[stream->captureIndex];
    return kSuccess;
  }
  auto point = std::make_shared<EventPoint>();
  if (stream->idle()) {
    point->reach(*pool_);
  } else {
    stream->append<EventRecord>(RecordKind::kEventRecord)->point = point;
    stream->publish();
  }
  std::lock_guard<std::mutex> eventLock(event->mutex);
  event->point = std::move(point);
  event->capture = nullptr;
  return kSuccess;
}

Status Device::eventSynchronize(void* handle) {
  Event* event = events_.find(handle);
  if (!event) return fail(kInvalidHandle, "eventSynchronize: not a live event");
  std::shared_ptr<EventPoint> point;
  {
    std::lock_guard<std::mutex> lock(event->mutex);
    if (event->capture) return fail(kCapturedEvent, "eventSynchronize: a captured event is never reached by itself");
    point = event->point;
  }
  uint64_t timeNs;
  if (!point || spinUntil(pool_->spinPolicy(), nowNs() + kSyncSpinNs, [&] { return point->reached(&timeNs); })) return kSuccess;
  point->wait();
  return kSuccess;
}

Status Device::eventQuery(void* handle, bool* done) {
  Event* event = events_.find(handle);
  if (!event) return fail(kInvalidHandle, "eventQuery: not a live event");
  if (!done) return fail(kInvalidValue, "eventQuery: no place for the result");
  std::lock_guard<std::mutex> lock(event->mutex);
  if (event->capture) return fail(kCapturedEvent, "eventQuery: a captured event is never reached by itself");
  uint64_t timeNs;
  *done = !event->point || event->point->reached(&timeNs);
  return kSuccess;
}

Status Device::eventElapsedMs(float* out, void* startHandle, void* endHandle) {
  if (!out) return fail(kInvalidValue, "eventElapsedMs: no place for the result");
  uint64_t times[2];
  for (int i = 0; i < 2; ++i) {
    const char* which = i == 0 ? "start" : "end";
    Event* event = events_.find(i == 0 ? startHandle : endHandle);
    if (!event) return fail(kInvalidHandle, "eventElapsedMs: the %s is not a live event", which);
    std::lock_guard<std::mutex> lock(event->mutex);
    if (event->capture) return fail(kCapturedEvent, "eventElapsedMs: the %s event was recorded in a capture", which);
    if (!event->point) return fail(kInvalidHandle, "eventElapsedMs: the %s event was never recorded", which);
    if (!event->point->reached(&times[i])) return fail(kNotReady, "eventElapsedMs: the %s event is not reached yet", which);
  }
  *out = static_cast<float>((static_cast<double>(times[1]) - static_cast<double>(times[0])) * 1e-6);
  return kSuccess;
}

}  // namespace xhip::host
