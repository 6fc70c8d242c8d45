// Collective operations between devices: one rank a device, each in a thread or process of its own. NCCL and RCCL (nccl.cc) on
// GPUs, sockets (host_collectives.cc) on the host. All ranks make the same calls in the same order.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "driver.h"

namespace xhip {

class Device;

// Numbers that JavaScript gives.
enum class CollectiveKind : uint32_t { AllReduce = 0, AllGather = 1, ReduceScatter = 2, Broadcast = 3, Send = 4, Recv = 5 };
constexpr uint32_t kCollectiveKinds = 6;
enum class Reduction : uint32_t { Sum = 0, Prod = 1, Min = 2, Max = 3, Avg = 4 };
constexpr uint32_t kReductions = 5;
enum class ElementType : uint32_t { U8 = 0, U32 = 1, I32 = 2, I64 = 3, F16 = 4, BF16 = 5, F32 = 6, F64 = 7 };
constexpr uint32_t kElementTypes = 8;

inline size_t bytesOf(ElementType type) {
  static const size_t sizes[kElementTypes] = {1, 4, 4, 8, 2, 2, 4, 8};
  return sizes[uint32_t(type)];
}

// What NCCL's ncclUniqueId holds.
constexpr size_t kGroupIdBytes = 128;
using GroupId = std::array<uint8_t, kGroupIdBytes>;

struct GroupMember {
  GroupId id;
  int rank = 0;
  int size = 0;
  int timeoutMs = 0;
};

// One call. `count` is of one rank: an all-gather writes size times as many, a reduce-scatter reads them.
struct Collective {
  CollectiveKind kind = CollectiveKind::AllReduce;
  ElementType type = ElementType::U8;
  Reduction reduction = Reduction::Sum;
  int peer = 0;  // the root, or the other rank of a send and a receive
  DevicePtr source = 0;
  DevicePtr target = 0;
  uint64_t count = 0;
};

// Why a group does not work any more.
struct GroupFailure {
  std::string code;  // RANK_LOST, RANK_TIMEOUT, RANKS_DIFFER or GROUP_FAILED; empty while it works
  int rank = -1;     // the rank at fault, where it is known
  std::string message;
};

class Communicator {
 public:
  Communicator(int rank, int size) : rank(rank), size(size) {}
  virtual ~Communicator() = default;

  const int rank;
  const int size;

  // Calls on the environment's thread, with the device current. They enqueue; between beginGroup and endGroup, together.
  virtual void enqueue(Device& device, const Collective& call, Stream stream) = 0;
  virtual void beginGroup() = 0;
  virtual void endGroup(Device& device, Stream stream) = 0;

  virtual GroupFailure failure() = 0;
  // Any thread: ends what is under way and makes later calls fail.
  virtual void abort() = 0;
};

// May be called on any thread; joining waits for all ranks and is called off the environment's. Failures are HipFailures, of a
// group that does not come together with a code of GroupFailure.
GroupId makeHostGroup();
std::unique_ptr<Communicator> joinHostGroup(const GroupMember& member);
GroupId makeNcclGroup(bool rocm);
std::unique_ptr<Communicator> joinNcclGroup(bool rocm, const GroupMember& member);

}  // namespace xhip
