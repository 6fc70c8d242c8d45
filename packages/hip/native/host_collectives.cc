// Collectives of the host platform: tasks in the stream that exchange over the mesh's sockets. Sums are made in the order of the
// ranks, floats of 16 bits in f32, so that all ranks get the same bits.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "collectives.h"
#include "device.h"
#include "mesh.h"

namespace xhip {
namespace {

// A whole tensor of this size goes to every rank at once; larger ones in parts, each of which one rank reduces for all.
constexpr uint64_t kWholeBytes = 32 * 1024;
// Calls of a group, which are part of a task's payload.
constexpr uint32_t kMaxGroup = 48;

float fromF16(uint16_t bits) {
  const uint32_t exponent = bits >> 10 & 31;
  const float fraction = float(bits & 1023);
  const float magnitude = exponent == 31 ? (fraction != 0 ? NAN : INFINITY)
                          : exponent == 0 ? std::ldexp(fraction, -24)
                                          : std::ldexp(1024 + fraction, int(exponent) - 25);
  return bits & 0x8000 ? -magnitude : magnitude;
}

uint16_t toF16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  const uint16_t sign = uint16_t(bits >> 16 & 0x8000);
  const float magnitude = std::fabs(value);
  if (magnitude == 0) return sign;
  if (std::isnan(value)) return uint16_t(sign | 0x7e00);
  if (magnitude >= 65520) return uint16_t(sign | 0x7c00);
  int exponent = 0;
  (void)std::frexp(magnitude, &exponent);
  // Units of the last place; nearbyint rounds halves to even, and a fraction that overflows raises the exponent.
  const int unit = std::max(exponent - 11, -24);
  const uint32_t units = uint32_t(std::nearbyint(std::ldexp(magnitude, -unit)));
  if (unit == -24) return uint16_t(sign | units);
  return uint16_t(sign | ((uint32_t(unit + 25) << 10) + units - 1024));
}

float fromBF16(uint16_t bits) {
  const uint32_t wide = uint32_t(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

uint16_t toBF16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  if (std::isnan(value)) return uint16_t(bits >> 16 | 0x40);
  return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// NaN wins, as it does in sums.
template <class T>
T least(T a, T b) {
  return b < a || b != b ? b : a;
}
template <class T>
T greatest(T a, T b) {
  return b > a || b != b ? b : a;
}

template <class T>
void combine(T* into, const T* from, uint64_t count, Reduction reduction) {
  switch (reduction) {
    case Reduction::Sum:
    case Reduction::Avg:
      for (uint64_t i = 0; i < count; i++) into[i] = T(into[i] + from[i]);
      break;
    case Reduction::Prod:
      for (uint64_t i = 0; i < count; i++) into[i] = T(into[i] * from[i]);
      break;
    case Reduction::Min:
      for (uint64_t i = 0; i < count; i++) into[i] = least(into[i], from[i]);
      break;
    case Reduction::Max:
      for (uint64_t i = 0; i < count; i++) into[i] = greatest(into[i], from[i]);
      break;
  }
}

// Reduces the ranks' parts, in their order, into `target`.
template <class T>
void reduceAs(const std::vector<const void*>& parts, void* target, uint64_t count, Reduction reduction) {
  std::vector<T> sums(static_cast<const T*>(parts[0]), static_cast<const T*>(parts[0]) + count);
  for (size_t rank = 1; rank < parts.size(); rank++) combine(sums.data(), static_cast<const T*>(parts[rank]), count, reduction);
  if (reduction == Reduction::Avg) {
    for (T& sum : sums) sum = T(sum / T(parts.size()));
  }
  std::memcpy(target, sums.data(), count * sizeof(T));
}

template <float (*widen)(uint16_t), uint16_t (*narrow)(float)>
void reduceHalves(const std::vector<const void*>& parts, void* target, uint64_t count, Reduction reduction) {
  std::vector<std::vector<float>> wide(parts.size(), std::vector<float>(count));
  std::vector<const void*> pointers;
  for (size_t rank = 0; rank < parts.size(); rank++) {
    const uint16_t* part = static_cast<const uint16_t*>(parts[rank]);
    std::transform(part, part + count, wide[rank].begin(), widen);
    pointers.push_back(wide[rank].data());
  }
  reduceAs<float>(pointers, wide[0].data(), count, reduction);
  std::transform(wide[0].begin(), wide[0].end(), static_cast<uint16_t*>(target), narrow);
}

void reduce(ElementType type, const std::vector<const void*>& parts, void* target, uint64_t count, Reduction reduction) {
  switch (type) {
    case ElementType::U8: return reduceAs<uint8_t>(parts, target, count, reduction);
    case ElementType::U32: return reduceAs<uint32_t>(parts, target, count, reduction);
    case ElementType::I32: return reduceAs<int32_t>(parts, target, count, reduction);
    case ElementType::I64: return reduceAs<int64_t>(parts, target, count, reduction);
    case ElementType::F16: return reduceHalves<fromF16, toF16>(parts, target, count, reduction);
    case ElementType::BF16: return reduceHalves<fromBF16, toBF16>(parts, target, count, reduction);
    case ElementType::F32: return reduceAs<float>(parts, target, count, reduction);
    case ElementType::F64: return reduceAs<double>(parts, target, count, reduction);
  }
}

unsigned char* at(DevicePtr pointer) { return reinterpret_cast<unsigned char*>(pointer); }

class HostCommunicator final : public Communicator {
 public:
  explicit HostCommunicator(const GroupMember& member) : Communicator(member.rank, member.size), mesh_(Mesh::join(member)) {}

  void enqueue(Device& device, const Collective& call, Stream stream) override {
    if (inGroup_) {
      group_.push_back(call);
      return;
    }
    hand(device, &call, 1, stream);
  }

  void beginGroup() override {
    inGroup_ = true;
    group_.clear();
  }

  void endGroup(Device& device, Stream stream) override {
    inGroup_ = false;
    if (group_.size() > kMaxGroup) {
      invalidArgument(device.platformText(), "a group of " + std::to_string(group_.size()) + " calls; at most " +
                                                 std::to_string(kMaxGroup) + " are one exchange on cpu devices. Make several groups");
    }
    if (!group_.empty()) hand(device, group_.data(), uint32_t(group_.size()), stream);
  }

  GroupFailure failure() override { return mesh_->failure(); }
  void abort() override { mesh_->shutDown(); }

 private:
  struct Task {
    HostCommunicator* self;
    uint64_t count;
    Collective calls[kMaxGroup];
  };

  void hand(Device& device, const Collective* calls, uint32_t count, Stream stream) {
    Task task;
    task.self = this;
    task.count = count;
    std::copy(calls, calls + count, task.calls);
    const size_t bytes = offsetof(Task, calls) + count * sizeof(Collective);
    const Status status = device.table().enqueueTask(run, &task, bytes, 1, stream);
    if (status != 0) device.check(Call::Library, status, "a collective call");
  }

  // Runs once per execution, also of a captured graph: the calls are counted here.
  static void run(const void* payload, uint64_t, uint64_t) {
    const Task& task = *static_cast<const Task*>(payload);
    HostCommunicator& self = *task.self;
    try {
      if (task.count == 1) {
        self.perform(task.calls[0]);
      } else {
        self.performGroup(task.calls, task.count);
      }
    } catch (const std::bad_alloc&) {
      self.mesh_->fail({"GROUP_FAILED", self.rank, "rank " + std::to_string(self.rank) + " ran out of memory"});
    }
  }

  MessageHeader header(const Collective& call, uint64_t bytes) const {
    MessageHeader made;
    made.sequence = sequence_;
    made.bytes = bytes;
    made.kind = uint32_t(call.kind);
    const bool reduces = call.kind == CollectiveKind::AllReduce || call.kind == CollectiveKind::ReduceScatter;
    made.detail = reduces ? uint32_t(call.type) << 8 | uint32_t(call.reduction) : 0;
    return made;
  }

  void perform(const Collective& call) {
    const uint64_t bytes = call.count * bytesOf(call.type);
    const bool oneWay = call.kind == CollectiveKind::Send || call.kind == CollectiveKind::Recv;
    if (oneWay) return performGroup(&call, 1);
    sequence_++;
    switch (call.kind) {
      case CollectiveKind::AllReduce: return allReduce(call, bytes);
      case CollectiveKind::AllGather:
        std::memmove(at(call.target) + bytes * uint64_t(rank), at(call.source), bytes);
        return gather(call, bytes);
      case CollectiveKind::ReduceScatter: return (void)reduceParts(call, at(call.target), [&](int part) {
        return std::pair<uint64_t, uint64_t>(call.count * uint64_t(part), call.count);
      });
      case CollectiveKind::Broadcast: return broadcast(call, bytes);
      default: return;
    }
  }

  void allReduce(const Collective& call, uint64_t bytes) {
    if (bytes <= kWholeBytes || call.count < uint64_t(size)) {
      std::vector<Outgoing> outgoing;
      std::vector<Incoming> incoming;
      std::vector<std::vector<unsigned char>> theirs(static_cast<size_t>(size));
      std::vector<const void*> parts(size_t(size), at(call.source));
      for (int other = 0; other < size; other++) {
        if (other == rank) continue;
        theirs[size_t(other)].resize(bytes);
        parts[size_t(other)] = theirs[size_t(other)].data();
        outgoing.push_back({other, header(call, bytes), at(call.source)});
        incoming.push_back({other, header(call, bytes), theirs[size_t(other)].data()});
      }
      if (mesh_->exchange(outgoing, incoming)) reduce(call.type, parts, at(call.target), call.count, call.reduction);
      return;
    }
    // The first ranks' parts are one element longer where it does not divide.
    auto partOf = [&](int part) {
      const uint64_t each = call.count / uint64_t(size), more = call.count % uint64_t(size), index = uint64_t(part);
      return std::pair<uint64_t, uint64_t>(each * index + std::min(index, more), each + (index < more ? 1 : 0));
    };
    const size_t width = bytesOf(call.type);
    const auto own = partOf(rank);
    if (!reduceParts(call, at(call.target) + own.first * width, partOf)) return;
    std::vector<Outgoing> outgoing;
    std::vector<Incoming> incoming;
    for (int other = 0; other < size; other++) {
      if (other == rank) continue;
      const auto theirs = partOf(other);
      outgoing.push_back({other, header(call, own.second * width), at(call.target) + own.first * width});
      incoming.push_back({other, header(call, theirs.second * width), at(call.target) + theirs.first * width});
    }
    (void)mesh_->exchange(outgoing, incoming);
  }

  // Every rank's part, elements [first, first + second) of the source, goes to it; this one's is reduced into `target`.
  template <class PartOf>
  bool reduceParts(const Collective& call, unsigned char* target, PartOf partOf) {
    const size_t width = bytesOf(call.type);
    const auto own = partOf(rank);
    std::vector<Outgoing> outgoing;
    std::vector<Incoming> incoming;
    std::vector<std::vector<unsigned char>> theirs(static_cast<size_t>(size));
    std::vector<const void*> parts(size_t(size), at(call.source) + own.first * width);
    for (int other = 0; other < size; other++) {
      if (other == rank) continue;
      const auto part = partOf(other);
      theirs[size_t(other)].resize(own.second * width);
      parts[size_t(other)] = theirs[size_t(other)].data();
      outgoing.push_back({other, header(call, part.second * width), at(call.source) + part.first * width});
      incoming.push_back({other, header(call, own.second * width), theirs[size_t(other)].data()});
    }
    if (!mesh_->exchange(outgoing, incoming)) return false;
    reduce(call.type, parts, target, own.second, call.reduction);
    return true;
  }

  void gather(const Collective& call, uint64_t bytes) {
    std::vector<Outgoing> outgoing;
    std::vector<Incoming> incoming;
    for (int other = 0; other < size; other++) {
      if (other == rank) continue;
      outgoing.push_back({other, header(call, bytes), at(call.target) + bytes * uint64_t(rank)});
      incoming.push_back({other, header(call, bytes), at(call.target) + bytes * uint64_t(other)});
    }
    (void)mesh_->exchange(outgoing, incoming);
  }

  void broadcast(const Collective& call, uint64_t bytes) {
    std::vector<Outgoing> outgoing;
    std::vector<Incoming> incoming;
    if (rank == call.peer) {
      for (int other = 0; other < size; other++) {
        if (other != rank) outgoing.push_back({other, header(call, bytes), at(call.source)});
      }
    } else {
      incoming.push_back({call.peer, header(call, bytes), at(call.target)});
    }
    (void)mesh_->exchange(outgoing, incoming);
  }

  // Sends and receives at once. Both ends say the same: what is between two ranks is not counted by the others.
  void performGroup(const Collective* calls, uint64_t count) {
    std::vector<Outgoing> outgoing;
    std::vector<Incoming> incoming;
    for (uint64_t i = 0; i < count; i++) {
      const Collective& call = calls[i];
      if (call.kind != CollectiveKind::Send && call.kind != CollectiveKind::Recv) {
        perform(call);
        continue;
      }
      MessageHeader agreed;
      agreed.bytes = call.count * bytesOf(call.type);
      agreed.kind = uint32_t(CollectiveKind::Send);
      if (call.kind == CollectiveKind::Send) {
        outgoing.push_back({call.peer, agreed, at(call.source)});
      } else {
        incoming.push_back({call.peer, agreed, at(call.target)});
      }
    }
    (void)mesh_->exchange(outgoing, incoming);
  }

  std::unique_ptr<Mesh> mesh_;
  uint64_t sequence_ = 0;  // of the task that runs
  bool inGroup_ = false;
  std::vector<Collective> group_;
};

}  // namespace

GroupId makeHostGroup() { return listenForGroup(); }

std::unique_ptr<Communicator> joinHostGroup(const GroupMember& member) { return std::make_unique<HostCommunicator>(member); }

}  // namespace xhip
