// Groups of ranks for JavaScript: joining, which waits on a libuv worker, and the calls, each of which enqueues.
#include <cstring>
#include <future>
#include <system_error>
#include <thread>

#include "addon.h"
#include "collectives.h"

namespace xhip {
namespace {

bool isHost(const Device& device) { return device.platform() == Platform::Host; }
bool isRocm(const Device& device) { return device.platform() == Platform::Rocm; }

// groupId(device) => Uint8Array, the name of a new group
Napi::Value groupId(const Napi::CallbackInfo& info) {
  Device& device = deviceArg(info);
  device.enter();
  const GroupId id = isHost(device) ? makeHostGroup() : makeNcclGroup(isRocm(device));
  Napi::Uint8Array out = Napi::Uint8Array::New(info.Env(), id.size());
  std::memcpy(out.Data(), id.data(), id.size());
  return out;
}

// One rank on its way into a group, on a thread of its own: those of libuv are few, and all ranks of a process may wait for the
// last one at the same time.
struct Joining {
  Device* device = nullptr;
  napi_deferred deferred = nullptr;
  napi_threadsafe_function finish = nullptr;
  GroupMember member;
  std::unique_ptr<Communicator> made;
  FailureInfo failure;
};

napi_value settle(napi_env env, Joining* joining) {
  napi_value value = nullptr;
  if (joining->made) {
    const uint32_t id = joining->device->communicators.add(std::move(joining->made));
    if (napi_create_uint32(env, id, &value) == napi_ok) napi_resolve_deferred(env, joining->deferred, value);
  } else {
    value = makeErrorValue(env, joining->failure);
    if (value) napi_reject_deferred(env, joining->deferred, value);
  }
  return nullptr;
}

// On the environment's thread; without an environment when that ends first, and nobody is left to be told.
void finishOnMain(napi_env env, napi_value, void*, void* data) {
  std::unique_ptr<Joining> joining(static_cast<Joining*>(data));
  if (!env) return;
  Device& device = *joining->device;
  contained(env, [&] { return settle(env, joining.get()); });
  napi_release_threadsafe_function(joining->finish, napi_tsfn_release);
  joining.reset();
  device.pending--;
  if (device.pending == 0 && device.closing) device.close();
}

// `ready` is set when the device is not looked at any more: the environment may end from then on.
void joinOnThread(Joining* joining, std::promise<void> ready) {
  const Platform platform = joining->device->platform();
  const Status status = joining->device->table().makeCurrent(joining->device->context());
  if (status != 0) joining->failure = joining->device->describe(Call::MakeCurrent, status, "");
  ready.set_value();
  try {
    if (status == 0) {
      joining->made = platform == Platform::Host ? joinHostGroup(joining->member)
                                                 : joinNcclGroup(platform == Platform::Rocm, joining->member);
    }
  } catch (const HipFailure& failure) {
    joining->failure = failure.info;
  } catch (const std::exception& error) {
    joining->failure.code = "OUT_OF_MEMORY";
    joining->failure.message = std::string("joining a group of ranks: ") + error.what();
  }
  if (napi_call_threadsafe_function(joining->finish, joining, napi_tsfn_blocking) != napi_ok) delete joining;
}

// groupJoin(device, id, rank, size, timeoutMs) => Promise<communicator>
Napi::Value groupJoin(const Napi::CallbackInfo& info) {
  Device& device = deviceArg(info);
  device.enter();
  const View id = view(info, 1);
  auto joining = std::make_unique<Joining>();
  if (id.bytes != joining->member.id.size()) {
    invalidArgument(device.platformText(), "the id of a group has " + std::to_string(joining->member.id.size()) + " bytes, not " +
                                               std::to_string(id.bytes) + ". Hand on what uniqueId() gave");
  }
  std::memcpy(joining->member.id.data(), id.data, id.bytes);
  joining->member.rank = int(u32(info, 2));
  joining->member.size = int(u32(info, 3));
  joining->member.timeoutMs = int(u32(info, 4));
  joining->device = &device;
  napi_env env = info.Env();
  napi_value promise = nullptr;
  napi_value name = nullptr;
  const bool made = napi_create_promise(env, &joining->deferred, &promise) == napi_ok &&
                    napi_create_string_utf8(env, "x-hip-join", NAPI_AUTO_LENGTH, &name) == napi_ok &&
                    napi_create_threadsafe_function(env, nullptr, nullptr, name, 0, 1, nullptr, nullptr, nullptr,
                                                    finishOnMain, &joining->finish) == napi_ok;
  if (!made) invalidArgument(device.platformText(), "a promise could not be created");
  std::promise<void> ready;
  std::future<void> isReady = ready.get_future();
  try {
    std::thread(joinOnThread, joining.get(), std::move(ready)).detach();
  } catch (const std::system_error&) {
    napi_release_threadsafe_function(joining->finish, napi_tsfn_abort);
    FailureInfo failure;
    failure.code = "OUT_OF_MEMORY";
    failure.platform = device.platformText();
    failure.message = "no thread to join a group of ranks on. End other work of this process";
    throw HipFailure{std::move(failure)};
  }
  device.pending++;
  (void)joining.release();
  isReady.wait();
  return Napi::Value(env, promise);
}

Communicator& communicatorArg(const Napi::CallbackInfo& info, Device& device) {
  std::unique_ptr<Communicator>* found = device.communicators.find(u32(info, 1));
  if (!found) invalidArgument(device.platformText(), "this rank has left its group. Join one again");
  return **found;
}

// groupCall(device, communicator, stream, [kind, type, reduction, peer, source, target, count])
Napi::Value groupCall(const Napi::CallbackInfo& info) {
  Device& device = deviceArg(info);
  device.enter();
  Communicator& communicator = communicatorArg(info, device);
  Stream stream = device.stream(u32(info, 2));
  const View numbers = view(info, 3);
  double words[7];
  if (numbers.bytes != sizeof words) invalidArgument(device.platformText(), "a collective call is 7 numbers");
  std::memcpy(words, numbers.data, sizeof words);
  for (double word : words) {
    if (!(word >= 0 && word <= 9007199254740991.0)) invalidArgument(device.platformText(), "a number of a collective call is out of range");
  }
  if (words[0] >= kCollectiveKinds || words[1] >= kElementTypes || words[2] >= kReductions || words[3] >= communicator.size) {
    invalidArgument(device.platformText(), "there is no such collective call, element type, reduction or rank");
  }
  Collective call;
  call.kind = CollectiveKind(uint32_t(words[0]));
  call.type = ElementType(uint32_t(words[1]));
  call.reduction = Reduction(uint32_t(words[2]));
  call.peer = int(words[3]);
  call.source = DevicePtr(words[4]);
  call.target = DevicePtr(words[5]);
  call.count = uint64_t(words[6]);
  const uint64_t each = call.count * bytesOf(call.type);
  const uint64_t all = each * uint64_t(communicator.size);
  Addon& addon = addonOf(info.Env());
  if (call.kind != CollectiveKind::Recv) {
    requireRange(addon, device, call.source, call.kind == CollectiveKind::ReduceScatter ? all : each, "a collective's source");
  }
  if (call.kind != CollectiveKind::Send) {
    requireRange(addon, device, call.target, call.kind == CollectiveKind::AllGather ? all : each, "a collective's target");
  }
  communicator.enqueue(device, call, stream);
  if (!isHost(device)) {
    const Status status = device.counting().libraryCalled(0, stream);
    if (status != 0) device.check(Call::Library, status, "a collective call");
  }
  return info.Env().Undefined();
}

// groupBegin(device, communicator)
Napi::Value groupBegin(const Napi::CallbackInfo& info) {
  Device& device = deviceArg(info);
  device.enter();
  communicatorArg(info, device).beginGroup();
  return info.Env().Undefined();
}

// groupEnd(device, communicator, stream)
Napi::Value groupEnd(const Napi::CallbackInfo& info) {
  Device& device = deviceArg(info);
  device.enter();
  communicatorArg(info, device).endGroup(device, device.stream(u32(info, 2)));
  return info.Env().Undefined();
}

// groupFailure(device, communicator) => { code, rank, message } or undefined
Napi::Value groupFailure(const Napi::CallbackInfo& info) {
  Device& device = deviceArg(info);
  const GroupFailure failure = communicatorArg(info, device).failure();
  if (failure.code.empty()) return info.Env().Undefined();
  Napi::Object out = Napi::Object::New(info.Env());
  out.Set("code", failure.code);
  out.Set("rank", failure.rank);
  out.Set("message", failure.message);
  return out;
}

// groupAbort(device, communicator)
Napi::Value groupAbort(const Napi::CallbackInfo& info) {
  Device& device = deviceArg(info);
  device.enter();
  communicatorArg(info, device).abort();
  return info.Env().Undefined();
}

// groupLeave(device, communicator): waits for what was enqueued
Napi::Value groupLeave(const Napi::CallbackInfo& info) {
  Device& device = deviceArg(info);
  device.enter();
  (void)communicatorArg(info, device);
  device.waitForAll("leaving a group of ranks");
  (void)device.communicators.remove(u32(info, 1));
  return info.Env().Undefined();
}

}  // namespace

void exportCollectives(Napi::Env env, Napi::Object exports) {
  exports.Set("groupId", Napi::Function::New<guarded<groupId>>(env));
  exports.Set("groupJoin", Napi::Function::New<guarded<groupJoin>>(env));
  exports.Set("groupCall", Napi::Function::New<guarded<groupCall>>(env));
  exports.Set("groupBegin", Napi::Function::New<guarded<groupBegin>>(env));
  exports.Set("groupEnd", Napi::Function::New<guarded<groupEnd>>(env));
  exports.Set("groupFailure", Napi::Function::New<guarded<groupFailure>>(env));
  exports.Set("groupAbort", Napi::Function::New<guarded<groupAbort>>(env));
  exports.Set("groupLeave", Napi::Function::New<guarded<groupLeave>>(env));
}

}  // namespace xhip
