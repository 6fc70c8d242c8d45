// Messages over the connections of mesh.h; mesh_join.cc makes them.
#include "mesh.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>

namespace xhip {
namespace {

using Clock = std::chrono::steady_clock;

// The kind of a message by which a rank says that the group has failed; `detail` is the rank at fault.
constexpr uint32_t kFarewell = 0xffff;

std::string nameOf(int rank) { return "rank " + std::to_string(rank); }

uint64_t totalOf(const MessageHeader& header) { return sizeof header + header.bytes; }

// The first message to or from a rank that is not through.
template <class Message>
long nextOf(const std::vector<Message>& messages, const std::vector<uint64_t>& done, int rank) {
  for (size_t i = 0; i < messages.size(); i++) {
    if (messages[i].rank == rank && done[i] < totalOf(messages[i].header)) return long(i);
  }
  return -1;
}

std::string describe(const MessageHeader& header) {
  return "call " + std::to_string(header.sequence) + " (kind " + std::to_string(header.kind) + ", form " +
         std::to_string(header.detail) + ", " + std::to_string(header.bytes) + " bytes)";
}

}  // namespace

Mesh::~Mesh() {
  for (int socket : sockets_) {
    if (socket >= 0) close(socket);
  }
}

GroupFailure Mesh::failure() {
  std::lock_guard<std::mutex> lock(mutex_);
  return failure_;
}

void Mesh::fail(GroupFailure failure) {
  MessageHeader farewell;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (failed_) return;
    farewell.kind = kFarewell;
    farewell.detail = uint32_t(failure.rank);
    failure_ = std::move(failure);
    failed_ = true;
  }
  // So that the others name the rank at fault and not this one, which leaves because of it.
  for (int socket : sockets_) {
    if (socket < 0) continue;
    (void)!send(socket, &farewell, sizeof farewell, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)shutdown(socket, SHUT_WR);
  }
}

bool Mesh::lost(int rank, int error) {
  if (error == EAGAIN || error == EWOULDBLOCK || error == EINTR) return true;
  fail({"RANK_LOST", rank, nameOf(rank) + " is gone: " + (error ? std::strerror(error) : "it closed the connection")});
  return false;
}

void Mesh::shutDown() {
  fail({"GROUP_FAILED", rank_, nameOf(rank_) + " ended the group"});
  for (int socket : sockets_) {
    if (socket >= 0) (void)shutdown(socket, SHUT_RDWR);
  }
}

bool Mesh::sendSome(const Outgoing& message, uint64_t& done) {
  const MessageHeader& header = message.header;
  iovec parts[2];
  int count = 0;
  if (done < sizeof header) {
    parts[count++] = {const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(&header)) + done,
                      size_t(sizeof header - done)};
  }
  const uint64_t sent = done > sizeof header ? done - sizeof header : 0;
  if (sent < header.bytes) {
    parts[count++] = {const_cast<unsigned char*>(static_cast<const unsigned char*>(message.data)) + sent,
                      size_t(header.bytes - sent)};
  }
  msghdr all = {};
  all.msg_iov = parts;
  all.msg_iovlen = size_t(count);
  const ssize_t wrote = sendmsg(sockets_[size_t(message.rank)], &all, MSG_NOSIGNAL | MSG_DONTWAIT);
  // A rank that leaves says why before it does: that is read first.
  if (wrote < 0) return errno == EPIPE || errno == ECONNRESET ? true : lost(message.rank, errno);
  done += uint64_t(wrote);
  return true;
}

// Headers are read whole or not at all: what there is of one stays in the socket.
bool Mesh::receiveHeader(const Incoming& message, uint64_t& done) {
  const int socket = sockets_[size_t(message.rank)];
  MessageHeader header;
  const ssize_t seen = recv(socket, &header, sizeof header, MSG_PEEK | MSG_DONTWAIT);
  if (seen <= 0) return lost(message.rank, seen < 0 ? errno : 0);
  if (seen < ssize_t(sizeof header)) return true;
  if (header.kind == kFarewell) {
    const int culprit = int(header.detail);
    const bool other = culprit >= 0 && culprit < int(sockets_.size()) && culprit != message.rank;
    fail({"RANK_LOST", other ? culprit : message.rank,
          other ? nameOf(culprit) + " failed, says " + nameOf(message.rank) : nameOf(message.rank) + " ended the group"});
    return false;
  }
  if (std::memcmp(&header, &message.header, sizeof header) != 0) {
    fail({"RANKS_DIFFER", message.rank,
          nameOf(message.rank) + " made " + describe(header) + " where " + nameOf(rank_) + " made " + describe(message.header) +
              ": all ranks must make the same calls, of the same sizes"});
    return false;
  }
  done = uint64_t(recv(socket, &header, sizeof header, MSG_DONTWAIT));
  return true;
}

bool Mesh::receiveSome(const Incoming& message, uint64_t& done) {
  if (done < sizeof message.header) {
    if (!receiveHeader(message, done)) return false;
    if (done < sizeof message.header || message.header.bytes == 0) return true;
  }
  const uint64_t had = done - sizeof message.header;
  const ssize_t got = recv(sockets_[size_t(message.rank)], static_cast<unsigned char*>(message.data) + had,
                           size_t(message.header.bytes - had), MSG_DONTWAIT);
  if (got <= 0) return lost(message.rank, got < 0 ? errno : 0);
  done += uint64_t(got);
  return true;
}

bool Mesh::exchange(const std::vector<Outgoing>& outgoing, const std::vector<Incoming>& incoming) {
  std::vector<uint64_t> sent(outgoing.size(), 0);
  std::vector<uint64_t> received(incoming.size(), 0);
  std::vector<pollfd> polled;
  std::vector<int> ranks;
  auto deadline = Clock::now() + std::chrono::milliseconds(timeoutMs_);
  for (;;) {
    if (failed_) return false;
    polled.clear();
    ranks.clear();
    for (int rank = 0; rank < int(sockets_.size()); rank++) {
      const bool writes = nextOf(outgoing, sent, rank) >= 0;
      const bool reads = nextOf(incoming, received, rank) >= 0;
      if (!writes && !reads) continue;
      polled.push_back({sockets_[size_t(rank)], short((writes ? POLLOUT : 0) | (reads ? POLLIN : 0)), 0});
      ranks.push_back(rank);
    }
    if (polled.empty()) return true;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    const int ready = left <= 0 ? 0 : poll(polled.data(), nfds_t(polled.size()), int(left));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) {
      fail({"RANK_TIMEOUT", ranks[0], nameOf(ranks[0]) + " did not come within " + std::to_string(timeoutMs_) + " ms"});
      return false;
    }
    for (size_t p = 0; p < polled.size(); p++) {
      const int rank = ranks[p];
      const short happened = polled[p].revents;
      const bool broken = happened & (POLLHUP | POLLERR | POLLNVAL);
      if (happened & POLLIN || broken) {
        const long i = nextOf(incoming, received, rank);
        if (i >= 0 && !receiveSome(incoming[size_t(i)], received[size_t(i)])) return false;
        // Nothing is expected of it, and it is gone.
        if (i < 0 && broken) return lost(rank, 0);
      }
      if (happened & POLLOUT) {
        const long i = nextOf(outgoing, sent, rank);
        if (i >= 0 && !sendSome(outgoing[size_t(i)], sent[size_t(i)])) return false;
      }
      if (happened) deadline = Clock::now() + std::chrono::milliseconds(timeoutMs_);
    }
  }
}

}  // namespace xhip
