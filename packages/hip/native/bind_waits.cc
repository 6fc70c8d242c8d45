// Everything that waits for the device: synchronising, and reading back. The asynchronous forms enqueue at once, wait for
// an event on a libuv worker, and finish on the JavaScript thread; the copy out of page-locked memory happens there too,
// after looking the view up again, because its buffer may have been detached meanwhile.
#include <cstring>

#include "addon.h"

namespace xhip {
namespace {

constexpr uint32_t kNoEvent = UINT32_MAX;

// One asynchronous wait. Raw Node-API on purpose: its completion also runs while an environment is being torn down,
// where every call may fail and failure must be ignored.
struct Wait {
  napi_env env = nullptr;
  Device* device = nullptr;
  Context context = nullptr;
  napi_deferred deferred = nullptr;
  napi_async_work work = nullptr;
  napi_ref view = nullptr;         // reading back: where to
  StagingPool::Buffer staging;     // reading back: where from
  size_t bytes = 0;
  Event event = nullptr;           // null: wait for the whole device
  uint32_t userEvent = kNoEvent;   // the event belongs to JavaScript; else it is a spare of the device
  Status status = 0;
  Call call = Call::EventSynchronize;
  std::string detail;
};

// The wait has failed: its page-locked memory is used again, so nothing may still be written there.
void abandonCopy(Wait* wait) {
  if (wait->staging.host) (void)wait->device->table().deviceSynchronize();
}

void waitOnWorker(napi_env, void* data) {
  Wait* wait = static_cast<Wait*>(data);
  Driver& driver = wait->device->table();
  wait->call = Call::MakeCurrent;
  wait->status = driver.makeCurrent(wait->context);
  if (wait->status == 0) {
    wait->call = wait->event ? Call::EventSynchronize : Call::DeviceSynchronize;
    wait->status = wait->event ? driver.eventSynchronize(wait->event) : driver.deviceSynchronize();
  }
  if (wait->status == 0) return;
  wait->detail = driver.failureDetail();
  abandonCopy(wait);
}

// Copies into the view; false when its buffer has gone away.
bool deliver(Wait* wait) {
  napi_value target = nullptr;
  View view;
  if (napi_get_reference_value(wait->env, wait->view, &target) != napi_ok || !target) return false;
  if (!viewOf(wait->env, target, &view) || view.bytes < wait->bytes) return false;
  std::memcpy(view.data, wait->staging.host, wait->bytes);
  return true;
}

void settle(Wait* wait) {
  napi_env env = wait->env;
  FailureInfo failure;
  if (wait->status != 0) {
    failure = wait->device->describe(wait->call, wait->status, wait->detail);
  } else if (wait->view && !deliver(wait)) {
    failure.code = "INVALID_ARGUMENT";
    failure.platform = wait->device->platformText();
    failure.message = "memcpyDtoH: the view's buffer was detached or shrunk before the copy arrived. Keep it until the promise "
                      "settles";
  }
  napi_value value = nullptr;
  if (failure.code.empty()) {
    if (napi_get_undefined(env, &value) == napi_ok) napi_resolve_deferred(env, wait->deferred, value);
    return;
  }
  value = makeErrorValue(env, failure);
  if (value) napi_reject_deferred(env, wait->deferred, value);
}

// Gives back what the wait holds.
void release(Wait* wait) {
  Device& device = *wait->device;
  if (wait->staging.host) device.staging.giveBack(device.table(), wait->staging);
  if (wait->userEvent != kNoEvent) {
    device.finishWait(wait->userEvent);
  } else if (wait->event) {
    device.giveEvent(wait->event);
  }
  if (wait->view) napi_delete_reference(wait->env, wait->view);
  if (wait->work) napi_delete_async_work(wait->env, wait->work);
  delete wait;
}

void finishOnMain(napi_env env, napi_status, void* data) {
  Wait* wait = static_cast<Wait*>(data);
  Device& device = *wait->device;
  napi_handle_scope scope = nullptr;
  bool scoped = napi_open_handle_scope(env, &scope) == napi_ok;
  contained(env, [&] { return settle(wait), napi_value(nullptr); });
  if (scoped) napi_close_handle_scope(env, scope);
  release(wait);
  device.pending--;
  if (device.pending == 0 && device.closing) device.close();
}

// Starts the wait, or finishes it here when the event has passed already. Takes `wait`.
Napi::Value start(const Napi::CallbackInfo& info, std::unique_ptr<Wait> owned) {
  napi_env env = info.Env();
  Wait* wait = owned.release();
  wait->env = env;
  wait->context = wait->device->context();
  napi_value promise = nullptr;
  napi_value name = nullptr;
  bool done = false;
  if (napi_create_promise(env, &wait->deferred, &promise) != napi_ok) {
    release(wait);
    invalidArgument("", "a promise could not be created");
  }
  if (wait->event) {
    Status status = wait->device->table().eventQuery(wait->event, &done);
    if (status != 0) {
      done = true;
      wait->status = status;
      wait->call = Call::EventQuery;
      abandonCopy(wait);
    }
  }
  bool queued = !done && napi_create_string_utf8(env, "x-hip-wait", NAPI_AUTO_LENGTH, &name) == napi_ok &&
                napi_create_async_work(env, nullptr, name, waitOnWorker, finishOnMain, wait, &wait->work) == napi_ok &&
                napi_queue_async_work(env, wait->work) == napi_ok;
  if (queued) {
    wait->device->pending++;
    return Napi::Value(env, promise);
  }
  if (!done) waitOnWorker(env, wait);
  settle(wait);
  release(wait);
  return Napi::Value(env, promise);
}

// A wait for what is on the stream now.
std::unique_ptr<Wait> streamWait(Device& device, Stream stream) {
  auto wait = std::make_unique<Wait>();
  wait->device = &device;
  wait->event = device.takeEvent();
  Status status = device.table().eventRecord(wait->event, stream);
  if (status != 0) {
    device.giveEvent(wait->event);
    device.check(Call::EventRecord, status);
  }
  return wait;
}

Napi::Value deviceSynchronizeSync(const Napi::CallbackInfo& info) {
  deviceArg(info).waitForAll("synchronizeSync()");
  return Napi::Value();
}

Napi::Value deviceSynchronize(const Napi::CallbackInfo& info) {
  Device& device = deviceArg(info);
  device.enter();
  if (device.counting().anyCapturing()) device.waitForAll("synchronize()");  // refuses
  auto wait = std::make_unique<Wait>();
  wait->device = &device;
  return start(info, std::move(wait));
}

Napi::Value streamSynchronizeSync(const Napi::CallbackInfo& info) {
  Device& device = deviceArg(info);
  device.enter();
  Stream stream = device.idleStream(u32(info, 1), "synchronizeSync()");
  device.check(Call::StreamSynchronize, device.table().streamSynchronize(stream));
  return Napi::Value();
}

Napi::Value streamSynchronize(const Napi::CallbackInfo& info) {
  Device& device = deviceArg(info);
  device.enter();
  return start(info, streamWait(device, device.idleStream(u32(info, 1), "synchronize()")));
}

Napi::Value eventSynchronizeSync(const Napi::CallbackInfo& info) {
  Device& device = deviceArg(info);
  device.enter();
  device.check(Call::EventSynchronize, device.table().eventSynchronize(device.event(u32(info, 1)).handle));
  return Napi::Value();
}

Napi::Value eventSynchronize(const Napi::CallbackInfo& info) {
  Device& device = deviceArg(info);
  device.enter();
  uint32_t id = u32(info, 1);
  EventEntry& event = device.event(id);
  auto wait = std::make_unique<Wait>();
  wait->device = &device;
  wait->event = event.handle;
  wait->userEvent = id;
  event.waiters++;
  return start(info, std::move(wait));
}

// Enqueues the copy of `bytes` at src into fresh staging memory.
StagingPool::Buffer enqueueReadback(const Napi::CallbackInfo& info, Device& device, DevicePtr src, size_t bytes,
                                    Stream stream) {
  requireRange(addonOf(info.Env()), device, src, bytes, "memcpyDtoH source");
  StagingPool::Buffer staging;
  Status status = device.staging.acquire(device.table(), bytes, &staging);
  device.check(Call::HostMalloc, status, std::to_string(bytes) + " bytes of page-locked memory to read back through");
  status = device.table().memcpyDtoHAsync(staging.host, src, bytes, stream);
  if (status != 0) {
    device.staging.giveBack(device.table(), staging);
    device.check(Call::MemcpyDtoH, status, std::to_string(bytes) + " bytes");
  }
  return staging;
}

// dtohSync(device, view, src, stream)
Napi::Value dtohSync(const Napi::CallbackInfo& info) {
  Device& device = deviceArg(info);
  device.enter();
  View target = view(info, 1);
  DevicePtr src = u64(info, 2);
  Stream stream = device.idleStream(u32(info, 3), "a device-to-host copy");
  if (target.bytes == 0) return Napi::Value();
  requireRange(addonOf(info.Env()), device, src, target.bytes, "memcpyDtoHSync source");
  // In pieces through two buffers, so that a large read needs little page-locked memory and copying out one piece
  // overlaps with the arrival of the next.
  constexpr size_t kPiece = size_t(8) << 20;
  size_t pieces = (target.bytes + kPiece - 1) / kPiece;
  StagingPool::Buffer buffers[2];
  Status status = 0;
  Call call = Call::HostMalloc;
  const LentEvent lent[2] = {LentEvent(device), LentEvent(device)};
  const Event events[2] = {lent[0].event, lent[1].event};
  for (size_t i = 0; i < 2 && i < pieces && status == 0; i++) {
    status = device.staging.acquire(device.table(), std::min(kPiece, target.bytes), &buffers[i]);
  }
  for (size_t i = 0; status == 0 && i <= pieces; i++) {
    if (i < pieces) {
      size_t at = i * kPiece;
      call = Call::MemcpyDtoH;
      status = device.table().memcpyDtoHAsync(buffers[i % 2].host, src + at, std::min(kPiece, target.bytes - at), stream);
      if (status == 0) {
        call = Call::EventRecord;
        status = device.table().eventRecord(events[i % 2], stream);
      }
    }
    if (i > 0 && status == 0) {
      size_t previous = i - 1;
      size_t at = previous * kPiece;
      call = Call::EventSynchronize;
      status = device.table().eventSynchronize(events[previous % 2]);
      if (status == 0) {
        std::memcpy(target.data + at, buffers[previous % 2].host, std::min(kPiece, target.bytes - at));
      }
    }
  }
  if (status != 0) (void)device.table().streamSynchronize(stream);  // nothing may still write into the staging memory
  for (const StagingPool::Buffer& buffer : buffers) {
    if (buffer.host) device.staging.giveBack(device.table(), buffer);
  }
  device.check(call, status, std::to_string(target.bytes) + " bytes");
  return Napi::Value();
}

// dtoh(device, view, src, stream) => Promise<void>
Napi::Value dtoh(const Napi::CallbackInfo& info) {
  Device& device = deviceArg(info);
  device.enter();
  View target = view(info, 1);
  DevicePtr src = u64(info, 2);
  Stream stream = device.idleStream(u32(info, 3), "a device-to-host copy");
  if (target.bytes == 0) return start(info, streamWait(device, stream));
  StagingPool::Buffer staging = enqueueReadback(info, device, src, target.bytes, stream);
  std::unique_ptr<Wait> wait;
  napi_ref reference = nullptr;
  if (napi_create_reference(info.Env(), info[1], 1, &reference) == napi_ok) {
    try {
      wait = streamWait(device, stream);
    } catch (...) {
      napi_delete_reference(info.Env(), reference);
      (void)device.table().streamSynchronize(stream);
      device.staging.giveBack(device.table(), staging);
      throw;
    }
  } else {
    (void)device.table().streamSynchronize(stream);
    device.staging.giveBack(device.table(), staging);
    invalidArgument(device.platformText(), "the view could not be kept alive");
  }
  wait->view = reference;
  wait->staging = staging;
  wait->bytes = target.bytes;
  return start(info, std::move(wait));
}

}  // namespace

void exportWaits(Napi::Env env, Napi::Object exports) {
  exports.Set("deviceSynchronizeSync", Napi::Function::New<guarded<deviceSynchronizeSync>>(env));
  exports.Set("deviceSynchronize", Napi::Function::New<guarded<deviceSynchronize>>(env));
  exports.Set("streamSynchronizeSync", Napi::Function::New<guarded<streamSynchronizeSync>>(env));
  exports.Set("streamSynchronize", Napi::Function::New<guarded<streamSynchronize>>(env));
  exports.Set("eventSynchronizeSync", Napi::Function::New<guarded<eventSynchronizeSync>>(env));
  exports.Set("eventSynchronize", Napi::Function::New<guarded<eventSynchronize>>(env));
  exports.Set("dtohSync", Napi::Function::New<guarded<dtohSync>>(env));
  exports.Set("dtoh", Napi::Function::New<guarded<dtoh>>(env));
}

}  // namespace xhip
