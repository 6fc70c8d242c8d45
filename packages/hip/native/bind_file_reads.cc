// Files that are read into device memory, for JavaScript: on libuv's workers, which JavaScript's own reads use too.
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "addon.h"
#include "file_reader.h"

namespace xhip {
namespace {

// One read. Raw Node-API on purpose, as in bind_waits.cc.
struct Job {
  napi_env env = nullptr;
  Device* device = nullptr;
  uint32_t readerId = 0;
  FileReader* reader = nullptr;
  napi_deferred deferred = nullptr;
  napi_async_work work = nullptr;
  Event event = nullptr;
  FileRead read;
};

FileReader& readerArg(const Napi::CallbackInfo& info, Device& device) {
  std::unique_ptr<FileReader>* found = device.fileReaders.find(u32(info, 1));
  if (!found || (*found)->doomed) invalidArgument(device.platformText(), "this reader of files was given back");
  return **found;
}

void readOnWorker(napi_env, void* data) {
  Job* job = static_cast<Job*>(data);
  job->reader->run(job->read);
}

void settle(Job* job) {
  napi_env env = job->env;
  const FileRead& read = job->read;
  napi_value value = nullptr;
  if (read.status != 0) {
    value = makeErrorValue(env, job->device->describe(read.call, read.status, read.detail));
    if (value) napi_reject_deferred(env, job->deferred, value);
    return;
  }
  const double result = read.error != 0 ? -double(read.error) : double(read.done);
  if (napi_create_double(env, result, &value) == napi_ok) napi_resolve_deferred(env, job->deferred, value);
}

// Gives back what the job holds, and the reader after its last one.
void release(Job* job) {
  Device& device = *job->device;
  if (job->read.fd >= 0) ::close(job->read.fd);
  if (job->event) device.giveEvent(job->event);
  if (job->work) napi_delete_async_work(job->env, job->work);
  device.fileReads.erase(&job->read);
  // A device that is closing gives its readers back itself.
  if (--job->reader->reading == 0 && job->reader->doomed && !device.closing) {
    try {
      device.enter();
    } catch (const HipFailure&) {
      // Of a device that is gone there is nothing to give back.
    }
    device.fileReaders.remove(job->readerId);
  }
  delete job;
}

void finishOnMain(napi_env env, napi_status, void* data) {
  Job* job = static_cast<Job*>(data);
  Device& device = *job->device;
  napi_handle_scope scope = nullptr;
  const bool scoped = napi_open_handle_scope(env, &scope) == napi_ok;
  contained(env, [&] { return settle(job), napi_value(nullptr); });
  if (scoped) napi_close_handle_scope(env, scope);
  release(job);
  device.pending--;
  if (device.pending == 0 && device.closing) device.close();
}

// fileReader(device) => reader
Napi::Value fileReader(const Napi::CallbackInfo& info) {
  Device& device = deviceArg(info);
  device.enter();
  auto reader = std::make_unique<FileReader>(device.table(), device.context(), device.table().hostAddresses());
  device.check(Call::StreamCreate, reader->open());
  return Napi::Number::New(info.Env(), device.fileReaders.add(std::move(reader)));
}

// fileRead(device, reader, fd, position, dst, bytes, stream) => Promise of the bytes that came, or minus the system's error
Napi::Value fileRead(const Napi::CallbackInfo& info) {
  napi_env env = info.Env();
  Device& device = deviceArg(info);
  device.enter();
  FileReader& reader = readerArg(info, device);
  auto job = std::make_unique<Job>();
  job->env = env;
  job->device = &device;
  job->readerId = u32(info, 1);
  job->reader = &reader;
  FileRead& read = job->read;
  const int fd = int(u32(info, 2));
  read.position = u64(info, 3);
  read.target = u64(info, 4);
  read.bytes = u64(info, 5);
  Stream stream = device.idleStream(u32(info, 6), "reading a file");
  requireRange(addonOf(env), device, read.target, read.bytes, "fileRead destination");
  Call call = Call::EventCreate;
  job->event = device.takeEvent();
  const Status status = reader.order(read, stream, job->event, &call);
  if (status != 0) {
    device.giveEvent(job->event);
    device.check(call, status);
  }
  // The read has a descriptor of its own: whoever closes theirs does not hand it another file.
  read.fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (read.fd < 0) read.error = errno;
  napi_value promise = nullptr;
  napi_value name = nullptr;
  const bool begins = napi_create_promise(env, &job->deferred, &promise) == napi_ok;
  Job* owned = job.release();
  reader.reading++;
  device.fileReads.emplace(&owned->read, &reader);
  if (!begins) {
    release(owned);
    invalidArgument("", "a promise could not be created");
  }
  const bool queued = read.error == 0 &&
                      napi_create_string_utf8(env, "x-hip-file-read", NAPI_AUTO_LENGTH, &name) == napi_ok &&
                      napi_create_async_work(env, nullptr, name, readOnWorker, finishOnMain, owned, &owned->work) == napi_ok &&
                      napi_queue_async_work(env, owned->work) == napi_ok;
  if (queued) {
    device.pending++;
    return Napi::Value(env, promise);
  }
  if (owned->read.error == 0) readOnWorker(env, owned);
  settle(owned);
  release(owned);
  return Napi::Value(env, promise);
}

// fileReaderClose(device, reader): now, or after the last read
Napi::Value fileReaderClose(const Napi::CallbackInfo& info) {
  Device& device = deviceArg(info);
  device.enter();
  FileReader& reader = readerArg(info, device);
  if (reader.reading > 0) {
    reader.doomed = true;
  } else {
    device.fileReaders.remove(u32(info, 1));
  }
  return info.Env().Undefined();
}

}  // namespace

void exportFileReads(Napi::Env env, Napi::Object exports) {
  exports.Set("fileReader", Napi::Function::New<guarded<fileReader>>(env));
  exports.Set("fileRead", Napi::Function::New<guarded<fileRead>>(env));
  exports.Set("fileReaderClose", Napi::Function::New<guarded<fileReaderClose>>(env));
}

}  // namespace xhip
