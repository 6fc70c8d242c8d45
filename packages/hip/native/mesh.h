// Sockets between the ranks of a group on the host: a connection between every two, made by way of the rank that named the
// group. What two ranks say to each other is messages of a header and bytes; a header that is not the expected one, a
// connection that breaks and a rank that does not come in time are failures with the rank's number.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "collectives.h"

namespace xhip {

// What the two ends of a message must agree about.
struct MessageHeader {
  uint64_t sequence = 0;  // of the call, counted by each rank
  uint64_t bytes = 0;
  uint32_t kind = 0;
  uint32_t detail = 0;  // type and reduction
};

struct Outgoing {
  int rank;
  MessageHeader header;
  const void* data;
};
struct Incoming {
  int rank;
  MessageHeader header;
  void* data;
};

class Mesh {
 public:
  // Throws HipFailure with a code of GroupFailure.
  static std::unique_ptr<Mesh> join(const GroupMember& member);
  ~Mesh();

  // Sends and receives all of it at once, to and from one rank in the order given. False when the group has failed. One caller
  // at a time.
  bool exchange(const std::vector<Outgoing>& outgoing, const std::vector<Incoming>& incoming);

  GroupFailure failure();
  void fail(GroupFailure failure);  // the first one counts; the others are told
  void shutDown();                  // any thread: what is under way ends

 private:
  explicit Mesh(const GroupMember& member)
      : rank_(member.rank), timeoutMs_(member.timeoutMs), sockets_(size_t(member.size), -1) {}
  bool lost(int rank, int error);
  bool sendSome(const Outgoing& message, uint64_t& done);
  bool receiveSome(const Incoming& message, uint64_t& done);
  bool receiveHeader(const Incoming& message, uint64_t& done);

  const int rank_;
  const int timeoutMs_;
  std::vector<int> sockets_;  // by rank; -1 for this one
  std::mutex mutex_;
  GroupFailure failure_;
  std::atomic<bool> failed_{false};

  friend class Meeting;
};

// A name for a group; this process listens until one of its ranks joins.
GroupId listenForGroup();

}  // namespace xhip
