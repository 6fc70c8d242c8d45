// A stand-in for libnccl and librccl with their C interface: signatures.h is made from nccl-signatures.ts, so a definition that
// differs from the table does not compile. Groups are of one process and their memory is the host's. A call is made when the
// last rank has come to it, whichever thread that is on; each is written to FAKE_LOG. FAKE_NCCL: `slow` has every call report
// ncclInProgress first, `alone` never lets a group come together, `whole` never lets it be split, `lost` says after the first
// reduction that a rank is gone, and `threads` is for ranks with a thread each: a call is in progress until it is made, and on a
// communicator that blocks it returns only then, or when that is aborted; a call of a stream that is captured is made, and waited
// for, by each launch of the graph. FAKE_NCCL_VERSION is another version than 2.27.3.
#include "signatures.h"

#include <dlfcn.h>

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "values.h"

namespace {

struct Call {
  std::string what;
  const void* send;
  void* recv;
  size_t count;
  int type, op, peer;
};
struct Group {
  std::string name;
  int size = 0;
  int joined = 0;
  bool lost = false;
  std::vector<std::vector<Call>> waiting;  // of each rank, in order
};
struct Comm {
  Group* group;
  int rank;
  bool blocking = false;
  bool shares = false;  // with what is split from it
  std::shared_ptr<bool> aborted;
  int progress = 0;  // how often it is still asked for
  int calls = 0;     // under way
  Comm* child = nullptr;  // being split off, to be stored here:
  void** childTo = nullptr;
};

std::recursive_mutex gMutex;
std::condition_variable_any gMade;
std::map<std::string, Group> gGroups;
int gIds = 0;
thread_local int tDepth = 0;
// Of the calls since the group began.
thread_local Comm* tGrouped = nullptr;

bool isMode(const char* mode) {
  const char* set = std::getenv("FAKE_NCCL");
  return set && std::string(set) == mode;
}

size_t widthOf(int type) {
  switch (type) {
    case ncclUint8: return 1;
    case ncclFloat16: case ncclBfloat16: return 2;
    case ncclInt32: case ncclUint32: case ncclFloat32: return 4;
    default: return 8;
  }
}

double numberAt(int type, const void* base, size_t i) {
  switch (type) {
    case ncclUint8: return static_cast<const uint8_t*>(base)[i];
    case ncclInt32: return static_cast<const int32_t*>(base)[i];
    case ncclUint32: return static_cast<const uint32_t*>(base)[i];
    case ncclInt64: return double(static_cast<const int64_t*>(base)[i]);
    case ncclFloat16: return load(Format::F16, base, int64_t(i));
    case ncclBfloat16: return load(Format::BF16, base, int64_t(i));
    case ncclFloat32: return static_cast<const float*>(base)[i];
    default: return static_cast<const double*>(base)[i];
  }
}

void putNumber(int type, void* base, size_t i, double value) {
  switch (type) {
    case ncclUint8: static_cast<uint8_t*>(base)[i] = uint8_t(value); break;
    case ncclInt32: static_cast<int32_t*>(base)[i] = int32_t(value); break;
    case ncclUint32: static_cast<uint32_t*>(base)[i] = uint32_t(value); break;
    case ncclInt64: static_cast<int64_t*>(base)[i] = int64_t(value); break;
    case ncclFloat16: store(Format::F16, base, int64_t(i), value); break;
    case ncclBfloat16: store(Format::BF16, base, int64_t(i), value); break;
    case ncclFloat32: static_cast<float*>(base)[i] = float(value); break;
    default: static_cast<double*>(base)[i] = value;
  }
}

double reduced(Group& group, size_t i) {
  const Call& first = group.waiting[0].front();
  double sum = numberAt(first.type, first.send, i);
  for (int rank = 1; rank < group.size; rank++) {
    const Call& call = group.waiting[size_t(rank)].front();
    const double value = numberAt(call.type, call.send, i);
    sum = call.op == ncclProd ? sum * value : call.op == ncclMax ? (value > sum ? value : sum) : call.op == ncclMin ? (value < sum ? value : sum) : sum + value;
  }
  return first.op == ncclAvg ? sum / group.size : sum;
}

void perform(Group& group) {
  const Call call = group.waiting[0].front();
  const size_t bytes = call.count * widthOf(call.type);
  const bool reduces = call.what == "allReduce" || call.what == "reduceScatter";
  std::vector<double> sums(reduces ? call.count * (call.what == "reduceScatter" ? size_t(group.size) : 1) : 0);
  for (size_t i = 0; i < sums.size(); i++) sums[i] = reduced(group, i);
  std::vector<std::string> sent;
  for (auto& calls : group.waiting) {
    const char* from = static_cast<const char*>(calls.front().send);
    sent.push_back(reduces ? std::string() : std::string(from, from + bytes));
  }
  for (int rank = 0; rank < group.size; rank++) {
    const Call own = group.waiting[size_t(rank)].front();
    char* to = static_cast<char*>(own.recv);
    if (reduces) {
      const size_t start = own.what == "reduceScatter" ? size_t(rank) * own.count : 0;
      for (size_t i = 0; i < own.count; i++) putNumber(own.type, to, i, sums[start + i]);
    } else if (own.what == "allGather") {
      for (int other = 0; other < group.size; other++) std::memcpy(to + size_t(other) * bytes, sent[size_t(other)].data(), bytes);
    } else {
      std::memcpy(to, sent[size_t(own.peer)].data(), bytes);
    }
    group.waiting[size_t(rank)].erase(group.waiting[size_t(rank)].begin());
  }
  if (reduces && isMode("lost")) group.lost = true;
}

// Pairs a send with the receive that waits for it.
bool deliver(Group& group) {
  for (int from = 0; from < group.size; from++) {
    for (auto s = group.waiting[size_t(from)].begin(); s != group.waiting[size_t(from)].end(); ++s) {
      if (s->what != "send") continue;
      auto& others = group.waiting[size_t(s->peer)];
      for (auto r = others.begin(); r != others.end(); ++r) {
        if (r->what != "recv" || r->peer != from) continue;
        std::memcpy(r->recv, s->send, s->count * widthOf(s->type));
        others.erase(r);
        group.waiting[size_t(from)].erase(s);
        return true;
      }
    }
  }
  return false;
}

bool isMade(const Comm& comm) { return comm.group->waiting[size_t(comm.rank)].empty(); }

// With threads, a call is over when all ranks have made theirs.
ncclResult_t waited(Comm* comm, std::unique_lock<std::recursive_mutex>& lock) {
  if (!comm->blocking) return isMade(*comm) ? ncclSuccess : ncclInProgress;
  comm->calls++;
  gMade.wait(lock, [&] { return *comm->aborted || isMade(*comm); });
  comm->calls--;
  return *comm->aborted ? ncclInternalError : ncclSuccess;
}

// A call of a rank, and all that can be made with it.
void post(Comm& comm, const Call& call) {
  Group& group = *comm.group;
  group.waiting[size_t(comm.rank)].push_back(call);
  while (deliver(group)) {
  }
  auto ready = [&] {
    for (auto& calls : group.waiting) {
      if (calls.empty() || calls.front().what == "send" || calls.front().what == "recv") return false;
    }
    return true;
  };
  while (ready()) perform(group);
  gMade.notify_all();
}

// Whether the stand-in for the HIP runtime captures the stream: then the call is part of the graph.
bool isKept(Comm* comm, const Call& call, void* stream) {
  using Keep = int (*)(void*, const std::function<void()>&);
  static const Keep keep = [] {
    const char* path = std::getenv("X_HIP_LIBRARY");
    void* hip = path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : nullptr;
    return hip ? reinterpret_cast<Keep>(dlsym(hip, "fakeHipKeep")) : nullptr;
  }();
  return keep && keep(stream, [=] {
    std::unique_lock<std::recursive_mutex> lock(gMutex);
    if (*comm->aborted) return;
    post(*comm, call);
    comm->calls++;
    gMade.wait(lock, [&] { return *comm->aborted || isMade(*comm); });
    comm->calls--;
  });
}

ncclResult_t enqueue(const char* what, const void* send, void* recv, size_t count, int type, int op, int peer, void* handle, void* stream) {
  std::unique_lock<std::recursive_mutex> lock(gMutex);
  Comm* comm = static_cast<Comm*>(handle);
  if (!comm || *comm->aborted || !stream) return ncclInvalidArgument;
  const Call call{what, send, recv, count, type, op, peer};
  if (isMode("threads") && tDepth == 0 && isKept(comm, call, stream)) return ncclSuccess;
  note(std::string(what) + " rank " + std::to_string(comm->rank) + " type " + std::to_string(type) + " op " + std::to_string(op) +
       " peer " + std::to_string(peer) + " count " + std::to_string(count) + (tDepth > 0 ? " grouped" : "") +
       (comm->blocking ? " blocking" : ""));
  post(*comm, call);
  tGrouped = tDepth > 0 ? comm : nullptr;
  if (isMode("threads") && tDepth == 0) return waited(comm, lock);
  if (!isMode("slow") || comm->blocking) return ncclSuccess;
  comm->progress = 3;
  return ncclInProgress;
}

// A rank of the group of that name.
Comm* join(const std::string& name, int size, int rank) {
  Group& group = gGroups[name];
  group.name = name;
  group.size = size;
  group.joined++;
  group.waiting.resize(size_t(size));
  Comm* comm = new Comm;
  comm->group = &group;
  comm->rank = rank;
  comm->progress = isMode("slow") ? 3 : 0;
  return comm;
}

bool isConfig(const Config& config, int blocking) {
  return config.size == sizeof config && config.magic == 0xcafebeef && config.version >= 21800 && config.blocking == blocking;
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  const char* set = std::getenv("FAKE_NCCL_VERSION");
  return *version = set ? std::atoi(set) : 22703, ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* out) {
  std::memset(out->bytes, 0, sizeof out->bytes);
  std::snprintf(out->bytes, sizeof out->bytes, "group %d", ++gIds);
  return ncclSuccess;
}
ncclResult_t ncclCommInitRank(ncclComm_t*, int, ncclUniqueId, int) { return ncclInvalidUsage; }
ncclResult_t ncclCommInitRankConfig(ncclComm_t* out, int size, ncclUniqueId id, int rank, ncclConfig_t* config) {
  if (!isConfig(*config, 0)) return ncclInvalidArgument;
  std::lock_guard<std::recursive_mutex> lock(gMutex);
  Comm* comm = join(std::string(id.bytes, sizeof id.bytes), size, rank);
  comm->shares = config->splitShare == 1;
  comm->aborted = std::make_shared<bool>(false);
  note("join rank " + std::to_string(rank) + " of " + std::to_string(size));
  return *out = comm, ncclInProgress;
}
// Done when the parent is asked and all have come, and not when it returns.
ncclResult_t ncclCommSplit(ncclComm_t handle, int color, int key, ncclComm_t* out, ncclConfig_t* config) {
  Comm* comm = static_cast<Comm*>(handle);
  if (color != 0 || key != comm->rank || !isConfig(*config, 1)) return ncclInvalidArgument;
  std::lock_guard<std::recursive_mutex> lock(gMutex);
  comm->child = join(comm->group->name + " split", comm->group->size, key);
  comm->child->blocking = true;
  comm->child->aborted = comm->shares ? comm->aborted : std::make_shared<bool>(false);
  comm->childTo = out;
  note("split rank " + std::to_string(key));
  return *out = nullptr, ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) { return note("destroy"), delete static_cast<Comm*>(comm), ncclSuccess; }
ncclResult_t ncclCommAbort(ncclComm_t handle) {
  std::lock_guard<std::recursive_mutex> lock(gMutex);
  Comm* comm = static_cast<Comm*>(handle);
  note(comm->calls > 0 ? "abort under a call" : "abort");
  *comm->aborted = true;
  // Its memory is not there for the others any more.
  comm->group->waiting[size_t(comm->rank)].clear();
  return gMade.notify_all(), ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t* result) {
  std::lock_guard<std::recursive_mutex> lock(gMutex);
  Comm* comm = static_cast<Comm*>(handle);
  bool together = comm->group->joined >= comm->group->size && !isMode("alone");
  if (comm->child) {
    together = comm->child->group->joined >= comm->group->size && !isMode("whole");
    if (together) {
      *comm->childTo = comm->child;
      comm->child = nullptr;
    }
  }
  const bool waits = isMode("threads") && tDepth == 0 && !comm->blocking && !isMade(*comm);
  *result = comm->group->lost                             ? ncclRemoteError
            : !together || waits || comm->progress-- > 0 ? ncclInProgress
                                                         : ncclSuccess;
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t result) { return result == ncclRemoteError ? "remote process exited" : "invalid argument"; }
const char* ncclGetLastError(ncclComm_t) { return "the stand-in's last words"; }
ncclResult_t ncclAllReduce(const void* send, void* recv, size_t n, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm, ncclStream_t stream) {
  return enqueue("allReduce", send, recv, n, type, op, 0, comm, stream);
}
ncclResult_t ncclAllGather(const void* send, void* recv, size_t n, ncclDataType_t type, ncclComm_t comm, ncclStream_t stream) {
  return enqueue("allGather", send, recv, n, type, 0, 0, comm, stream);
}
ncclResult_t ncclReduceScatter(const void* send, void* recv, size_t n, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm, ncclStream_t stream) {
  return enqueue("reduceScatter", send, recv, n, type, op, 0, comm, stream);
}
ncclResult_t ncclBroadcast(const void* send, void* recv, size_t n, ncclDataType_t type, int root, ncclComm_t comm, ncclStream_t stream) {
  return enqueue("broadcast", send, recv, n, type, 0, root, comm, stream);
}
ncclResult_t ncclSend(const void* send, size_t n, ncclDataType_t type, int peer, ncclComm_t comm, ncclStream_t stream) {
  return enqueue("send", send, nullptr, n, type, 0, peer, comm, stream);
}
ncclResult_t ncclRecv(void* recv, size_t n, ncclDataType_t type, int peer, ncclComm_t comm, ncclStream_t stream) {
  return enqueue("recv", nullptr, recv, n, type, 0, peer, comm, stream);
}
ncclResult_t ncclGroupStart() { return tDepth++, ncclSuccess; }
ncclResult_t ncclGroupEnd() {
  Comm* comm = tGrouped;
  if (--tDepth > 0 || !comm) return ncclSuccess;
  tGrouped = nullptr;
  std::unique_lock<std::recursive_mutex> lock(gMutex);
  return isMode("threads") ? waited(comm, lock) : ncclSuccess;
}

}  // extern "C"
