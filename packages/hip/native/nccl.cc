// Collectives through NCCL, or RCCL on AMD GPUs, which has the same interface. A call that another rank never answers ends with
// the timeout instead of holding the thread for good, in one of two ways:
//
// - The communicator does not block, where the library lets it (from 2.14 on). What waits for other ranks, the library does on a
//   thread of its own, and we ask until it is done. A call that needs no new connection is made at once.
// - From 2.23 on, NCCL starts such a thread for every call, which takes the host a quarter of a millisecond. There the ranks come
//   together in a communicator that does not block, and calls are made on one that is split from it and does. What may hold such
//   a call (the first with an algorithm connects) ends when the parent is aborted, because with `splitShare` both have one abort
//   flag. A watch does that from its own thread. It touches the parent alone, so nothing is freed under the call.
//
// RCCL starts no such threads, and ROCm 6.4 has faults in splitting, so RCCL is used in the first way.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>

#include "call_watch.h"
#include "collectives.h"
#include "device.h"
#include "loaded_library.h"
#include "nccl_api.h"

namespace xhip {
namespace {

using nccl::Api;
using Clock = std::chrono::steady_clock;

// The first NCCL that starts a thread for each call of a communicator that does not block.
constexpr int kThreadsFrom = 22300;

struct Loaded : LoadedLibrary<Api> {
  LibraryId id = LibraryId::Nccl;
  bool splits = false;  // whether calls are made on a communicator that is split off
};

void load(Loaded& entry, LibraryId id) {
  Api& api = entry.api;
  entry.id = id;
  entry.info = loadVendorLibrary(
      id, {X_SYMBOL(ncclGetVersion, false), X_SYMBOL(ncclGetUniqueId, false), X_SYMBOL(ncclCommInitRank, false),
           X_SYMBOL(ncclCommInitRankConfig, true), X_SYMBOL(ncclCommSplit, true), X_SYMBOL(ncclCommDestroy, false),
           X_SYMBOL(ncclCommAbort, false), X_SYMBOL(ncclCommGetAsyncError, false), X_SYMBOL(ncclGetErrorString, false),
           X_SYMBOL(ncclGetLastError, true), X_SYMBOL(ncclAllReduce, false), X_SYMBOL(ncclAllGather, false),
           X_SYMBOL(ncclReduceScatter, false), X_SYMBOL(ncclBroadcast, false), X_SYMBOL(ncclSend, false),
           X_SYMBOL(ncclRecv, false), X_SYMBOL(ncclGroupStart, false), X_SYMBOL(ncclGroupEnd, false)});
  int version = 0;
  if (!entry.info.available || api.ncclGetVersion(&version) != nccl::kSuccess) return;
  // 21903 is 2.19.3; before 2.9 there were two digits less: 2804.
  const int major = version >= 10000 ? version / 10000 : version / 1000;
  const int minor = version >= 10000 ? version / 100 % 100 : version / 100 % 10;
  entry.splits = id == LibraryId::Nccl && version >= kThreadsFrom && api.ncclCommSplit;
  entry.info.version = std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(version % 100);
}

// One loader each: `loadedOnce` keeps one entry a type.
struct LoadedNccl : Loaded {};
struct LoadedRccl : Loaded {};

Loaded& loaded(bool rocm) {
  if (rocm) return loadedOnce<LoadedRccl>([](Loaded& entry) { load(entry, LibraryId::Rccl); });
  return loadedOnce<LoadedNccl>([](Loaded& entry) { load(entry, LibraryId::Nccl); });
}

int typeOf(ElementType type) {
  static const int types[kElementTypes] = {nccl::kUint8, nccl::kUint32, nccl::kInt32, nccl::kInt64,
                                           nccl::kFloat16, nccl::kBfloat16, nccl::kFloat32, nccl::kFloat64};
  return types[uint32_t(type)];
}

int opOf(Reduction reduction) {
  static const int ops[kReductions] = {nccl::kSum, nccl::kProd, nccl::kMin, nccl::kMax, nccl::kAvg};
  return ops[uint32_t(reduction)];
}

std::string sentence(const Loaded& library, int result, void* comm) {
  std::string text = library.api.ncclGetErrorString(result);
  const char* last = library.api.ncclGetLastError ? library.api.ncclGetLastError(comm) : nullptr;
  if (last && *last) text += std::string(": ") + last;
  return text;
}

[[noreturn]] void refuse(const Loaded& library, const std::string& code, const char* call, const std::string& what) {
  FailureInfo failure;
  failure.code = code;
  failure.platform = platformName(libraryPlatform(library.id));
  failure.call = call;
  failure.message = std::string(call) + " failed: " + what + " (" + library.info.library +
                    "). End all ranks and start them again; NCCL_DEBUG=INFO makes the library say more";
  throw HipFailure{std::move(failure)};
}

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(const Loaded& library, const GroupMember& member)
      : Communicator(member.rank, member.size), library_(library), timeoutMs_(member.timeoutMs) {
    if (library.splits) {
      watch_ = std::make_unique<CallWatch>(timeoutMs_, [this] { (void)library_.api.ncclCommAbort(parent_); });
      join(member, &parent_);
      split();
    } else {
      join(member, &comm_);
    }
  }

  ~NcclCommunicator() override {
    if (aborted_) return;
    if (comm_) (void)library_.api.ncclCommDestroy(comm_);
    if (parent_) (void)library_.api.ncclCommDestroy(parent_);
  }

  void enqueue(Device&, const Collective& call, Stream stream) override {
    if (aborted_) refuse(library_, "GROUP_FAILED", "ncclComm", "the group of ranks was aborted");
    const Api& api = library_.api;
    void* source = reinterpret_cast<void*>(call.source);
    void* target = reinterpret_cast<void*>(call.target);
    const size_t count = size_t(call.count);
    const int type = typeOf(call.type);
    const int op = opOf(call.reduction);
    switch (call.kind) {
      case CollectiveKind::AllReduce:
        return make("ncclAllReduce", [&] { return api.ncclAllReduce(source, target, count, type, op, comm_, stream); });
      case CollectiveKind::AllGather:
        return make("ncclAllGather", [&] { return api.ncclAllGather(source, target, count, type, comm_, stream); });
      case CollectiveKind::ReduceScatter:
        return make("ncclReduceScatter", [&] { return api.ncclReduceScatter(source, target, count, type, op, comm_, stream); });
      case CollectiveKind::Broadcast:
        return make("ncclBroadcast", [&] { return api.ncclBroadcast(source, target, count, type, call.peer, comm_, stream); });
      case CollectiveKind::Send:
        return make("ncclSend", [&] { return api.ncclSend(source, count, type, call.peer, comm_, stream); });
      case CollectiveKind::Recv:
        return make("ncclRecv", [&] { return api.ncclRecv(target, count, type, call.peer, comm_, stream); });
    }
  }

  void beginGroup() override {
    const int result = library_.api.ncclGroupStart();
    if (result != nccl::kSuccess) refuse(library_, "GROUP_FAILED", "ncclGroupStart", sentence(library_, result, comm_));
    inGroup_ = true;
  }

  void endGroup(Device&, Stream) override {
    inGroup_ = false;
    make("ncclGroupEnd", [&] { return library_.api.ncclGroupEnd(); });
  }

  GroupFailure failure() override {
    if (aborted_) return {"GROUP_FAILED", -1, "the group of ranks was aborted"};
    const int result = stateOf(comm_);
    if (result == nccl::kSuccess || result == nccl::kInProgress) return {};
    return {result == nccl::kRemoteError ? "RANK_LOST" : "GROUP_FAILED", -1,
            std::string(libraryName(library_.id)) + ": " + sentence(library_, result, comm_)};
  }

  void abort() override {
    if (aborted_.exchange(true)) return;
    if (parent_) (void)library_.api.ncclCommAbort(parent_);
    if (comm_) (void)library_.api.ncclCommAbort(comm_);
  }

 private:
  // Waits for all ranks.
  void join(const GroupMember& member, void** out) {
    nccl::UniqueId id;
    static_assert(sizeof id.bytes == kGroupIdBytes, "an id of NCCL");
    std::memcpy(id.bytes, member.id.data(), sizeof id.bytes);
    const Api& api = library_.api;
    nccl::Config config;
    config.blocking = 0;
    if (library_.splits) config.splitShare = 1;
    const int result = api.ncclCommInitRankConfig ? api.ncclCommInitRankConfig(out, size, id, rank, &config)
                                                  : api.ncclCommInitRank(out, size, id, rank);
    finish("ncclCommInitRank", *out, result);
  }

  // Waits for all ranks, too.
  void split() {
    nccl::Config config;
    config.blocking = 1;
    const int result = library_.api.ncclCommSplit(parent_, 0, rank, &comm_, &config);
    // It may say success before it is done. When the parent is no longer in progress, `comm_` is set.
    finish("ncclCommSplit", parent_, result == nccl::kSuccess ? nccl::kInProgress : result);
  }

  template <class Call>
  void make(const char* name, Call call) {
    if (!watch_) return finish(name, comm_, call());
    watch_->begin();
    const int result = call();
    if (watch_->end()) return finish(name, comm_, result);
    // The parent is aborted by the time the watch has ended.
    watch_.reset();
    parent_ = nullptr;
    refuseLate(name);
  }

  int stateOf(void* comm) {
    int result = nccl::kSuccess;
    const int asked = library_.api.ncclCommGetAsyncError(comm, &result);
    return asked == nccl::kSuccess ? result : asked;
  }

  // Of a communicator that does not block, a call is done when it is no longer in progress.
  void finish(const char* call, void* comm, int result) {
    if (inGroup_ && (result == nccl::kSuccess || result == nccl::kInProgress)) return;
    const auto deadline = Clock::now() + std::chrono::milliseconds(timeoutMs_);
    for (int spins = 0; result == nccl::kInProgress; spins++) {
      if (Clock::now() > deadline) refuseLate(call);
      if (spins > 100) std::this_thread::sleep_for(std::chrono::microseconds(50));
      result = stateOf(comm);
    }
    if (result == nccl::kSuccess) return;
    const std::string what = sentence(library_, result, comm);
    abort();
    refuse(library_, result == nccl::kRemoteError ? "RANK_LOST" : "GROUP_FAILED", call, what);
  }

  [[noreturn]] void refuseLate(const char* call) {
    abort();
    refuse(library_, "RANK_TIMEOUT", call,
           "not all " + std::to_string(size) + " ranks came within " + std::to_string(timeoutMs_) + " ms");
  }

  const Loaded& library_;
  const int timeoutMs_;
  void* parent_ = nullptr;  // where comm_ is split from it
  void* comm_ = nullptr;    // the one for calls
  bool inGroup_ = false;
  std::atomic<bool> aborted_{false};
  std::unique_ptr<CallWatch> watch_;  // where comm_ is split off
};

}  // namespace

LibraryInfo findNccl() { return loaded(false).info; }
LibraryInfo findRccl() { return loaded(true).info; }

GroupId makeNcclGroup(bool rocm) {
  Loaded& library = loaded(rocm);
  requireLibrary(library.id, library.info);
  nccl::UniqueId made;
  const int result = library.api.ncclGetUniqueId(&made);
  if (result != nccl::kSuccess) refuse(library, "GROUP_FAILED", "ncclGetUniqueId", sentence(library, result, nullptr));
  GroupId id;
  std::memcpy(id.data(), made.bytes, id.size());
  return id;
}

std::unique_ptr<Communicator> joinNcclGroup(bool rocm, const GroupMember& member) {
  Loaded& library = loaded(rocm);
  requireLibrary(library.id, library.info);
  return std::make_unique<NcclCommunicator>(library, member);
}

}  // namespace xhip
