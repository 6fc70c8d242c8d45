// Collectives through NCCL, or RCCL on AMD GPUs, which has the same interface. Communicators do not block where the library
// lets them: a call that another rank never answers ends with the timeout instead of holding the thread for good.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "collectives.h"
#include "device.h"
#include "loaded_library.h"
#include "nccl_api.h"

namespace xhip {
namespace {

using nccl::Api;
using Clock = std::chrono::steady_clock;

struct Loaded : LoadedLibrary<Api> {
  LibraryId id = LibraryId::Nccl;
};

void load(Loaded& entry, LibraryId id) {
  Api& api = entry.api;
  entry.id = id;
  entry.info = loadVendorLibrary(
      id, {X_SYMBOL(ncclGetVersion, false), X_SYMBOL(ncclGetUniqueId, false), X_SYMBOL(ncclCommInitRank, false),
           X_SYMBOL(ncclCommInitRankConfig, true), X_SYMBOL(ncclCommDestroy, false), X_SYMBOL(ncclCommAbort, false),
           X_SYMBOL(ncclCommGetAsyncError, false), X_SYMBOL(ncclGetErrorString, false), X_SYMBOL(ncclGetLastError, true),
           X_SYMBOL(ncclAllReduce, false), X_SYMBOL(ncclAllGather, false), X_SYMBOL(ncclReduceScatter, false),
           X_SYMBOL(ncclBroadcast, false), X_SYMBOL(ncclSend, false), X_SYMBOL(ncclRecv, false),
           X_SYMBOL(ncclGroupStart, false), X_SYMBOL(ncclGroupEnd, false)});
  int version = 0;
  if (!entry.info.available || api.ncclGetVersion(&version) != nccl::kSuccess) return;
  // 21903 is 2.19.3; before 2.9 there were two digits less: 2804.
  const int major = version >= 10000 ? version / 10000 : version / 1000;
  const int minor = version >= 10000 ? version / 100 % 100 : version / 100 % 10;
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
    nccl::UniqueId id;
    static_assert(sizeof id.bytes == kGroupIdBytes, "an id of NCCL");
    std::memcpy(id.bytes, member.id.data(), sizeof id.bytes);
    const Api& api = library_.api;
    int result;
    if (api.ncclCommInitRankConfig) {
      nccl::Config config;
      result = api.ncclCommInitRankConfig(&comm_, size, id, rank, &config);
    } else {
      result = api.ncclCommInitRank(&comm_, size, id, rank);
    }
    finish("ncclCommInitRank", result);
  }

  ~NcclCommunicator() override {
    if (!comm_) return;
    if (aborted_) return;
    (void)library_.api.ncclCommDestroy(comm_);
  }

  void enqueue(Device&, const Collective& call, Stream stream) override {
    const Api& api = library_.api;
    void* source = reinterpret_cast<void*>(call.source);
    void* target = reinterpret_cast<void*>(call.target);
    const size_t count = size_t(call.count);
    const int type = typeOf(call.type);
    switch (call.kind) {
      case CollectiveKind::AllReduce:
        return finish("ncclAllReduce", api.ncclAllReduce(source, target, count, type, opOf(call.reduction), live(), stream));
      case CollectiveKind::AllGather:
        return finish("ncclAllGather", api.ncclAllGather(source, target, count, type, live(), stream));
      case CollectiveKind::ReduceScatter:
        return finish("ncclReduceScatter",
                      api.ncclReduceScatter(source, target, count, type, opOf(call.reduction), live(), stream));
      case CollectiveKind::Broadcast:
        return finish("ncclBroadcast", api.ncclBroadcast(source, target, count, type, call.peer, live(), stream));
      case CollectiveKind::Send: return finish("ncclSend", api.ncclSend(source, count, type, call.peer, live(), stream));
      case CollectiveKind::Recv: return finish("ncclRecv", api.ncclRecv(target, count, type, call.peer, live(), stream));
    }
  }

  void beginGroup() override {
    const int result = library_.api.ncclGroupStart();
    if (result != nccl::kSuccess) refuse(library_, "GROUP_FAILED", "ncclGroupStart", sentence(library_, result, live()));
    inGroup_ = true;
  }

  void endGroup(Device&, Stream) override {
    inGroup_ = false;
    finish("ncclGroupEnd", library_.api.ncclGroupEnd());
  }

  GroupFailure failure() override {
    if (aborted_) return {"GROUP_FAILED", -1, "the group of ranks was aborted"};
    int result = nccl::kSuccess;
    const int asked = library_.api.ncclCommGetAsyncError(comm_, &result);
    if (asked != nccl::kSuccess) result = asked;
    if (result == nccl::kSuccess || result == nccl::kInProgress) return {};
    return {result == nccl::kRemoteError ? "RANK_LOST" : "GROUP_FAILED", -1,
            std::string(libraryName(library_.id)) + ": " + sentence(library_, result, comm_)};
  }

  void abort() override {
    if (aborted_.exchange(true) || !comm_) return;
    (void)library_.api.ncclCommAbort(comm_);
  }

 private:
  void* live() {
    if (aborted_) refuse(library_, "GROUP_FAILED", "ncclComm", "the group of ranks was aborted");
    return comm_;
  }

  // Of a communicator that does not block, a call is done when it is no longer in progress.
  void finish(const char* call, int result) {
    if (inGroup_ && (result == nccl::kSuccess || result == nccl::kInProgress)) return;
    const auto deadline = Clock::now() + std::chrono::milliseconds(timeoutMs_);
    for (int spins = 0; result == nccl::kInProgress; spins++) {
      if (Clock::now() > deadline) {
        abort();
        refuse(library_, "RANK_TIMEOUT", call, "not all " + std::to_string(size) + " ranks came within " +
                                                   std::to_string(timeoutMs_) + " ms");
      }
      if (spins > 100) std::this_thread::sleep_for(std::chrono::microseconds(50));
      const int asked = library_.api.ncclCommGetAsyncError(comm_, &result);
      if (asked != nccl::kSuccess) result = asked;
    }
    if (result == nccl::kSuccess) return;
    const std::string what = sentence(library_, result, comm_);
    if (comm_) abort();
    refuse(library_, result == nccl::kRemoteError ? "RANK_LOST" : "GROUP_FAILED", call, what);
  }

  const Loaded& library_;
  const int timeoutMs_;
  void* comm_ = nullptr;
  bool inGroup_ = false;
  std::atomic<bool> aborted_{false};
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
