// How the ranks of a group on the host find each other. The id holds an address, a port and a secret. One rank of the process
// that made the id meets the others there: each says who it is and where it listens itself, and gets the list of all. Of every
// other two the higher rank connects to the lower one. Who does not know the secret is sent away.
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <map>
#include <random>

#include "calls.h"
#include "dynlib.h"
#include "failure.h"
#include "mesh.h"

namespace xhip {
namespace {

using Clock = std::chrono::steady_clock;
using Secret = std::array<uint8_t, 16>;

constexpr char kMagic[8] = {'x', 'm', 'e', 's', 'h', '0', '0', '1'};

// What the 128 bytes of an id hold here.
struct Name {
  char magic[8];
  Secret secret;
  uint32_t address;  // IPv4, network order
  uint16_t port;     // network order
};
static_assert(sizeof(Name) <= kGroupIdBytes, "a name fits into an id");

// What a rank says first on a connection.
struct Hello {
  Secret secret;
  int32_t rank;
  int32_t size;
  uint16_t port;  // where it listens, network order
  uint16_t unused;
};
struct Place {
  uint32_t address;
  uint16_t port;
  uint16_t taken;
};

[[noreturn]] void refuse(const char* code, const std::string& message) {
  FailureInfo failure;
  failure.code = code;
  failure.platform = platformName(Platform::Host);
  failure.message = message;
  throw HipFailure{std::move(failure)};
}

// A socket that is closed unless it is taken.
class Socket {
 public:
  explicit Socket(int fd = -1) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(other.take()) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  int fd() const { return fd_; }
  int take() {
    const int fd = fd_;
    fd_ = -1;
    return fd;
  }

 private:
  int fd_;
};

// Sockets that processes of this one's making do not inherit.
Socket openSocket() {
  Socket made(socket(AF_INET, SOCK_STREAM, 0));
  if (made.fd() < 0) refuse("GROUP_FAILED", std::string("no socket for a group of ranks: ") + std::strerror(errno));
  (void)fcntl(made.fd(), F_SETFD, FD_CLOEXEC);
  return made;
}

uint32_t ownAddress() {
  std::string text = environment("X_COLLECTIVES_ADDRESS");
  if (text.empty()) text = "127.0.0.1";
  in_addr address = {};
  if (inet_pton(AF_INET, text.c_str(), &address) != 1) {
    refuse("INVALID_ARGUMENT", "X_COLLECTIVES_ADDRESS is '" + text + "', which is no IPv4 address. Give one of this machine's own");
  }
  return address.s_addr;
}

Socket listenAt(uint32_t address, uint16_t* port) {
  Socket listener = openSocket();
  sockaddr_in at = {};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = address;
  socklen_t length = sizeof at;
  if (bind(listener.fd(), reinterpret_cast<sockaddr*>(&at), length) != 0 || listen(listener.fd(), 128) != 0 ||
      getsockname(listener.fd(), reinterpret_cast<sockaddr*>(&at), &length) != 0) {
    refuse("GROUP_FAILED", std::string("no port to listen at for a group of ranks: ") + std::strerror(errno) +
                               ". X_COLLECTIVES_ADDRESS must be an address of this machine");
  }
  *port = at.sin_port;
  return listener;
}

std::mutex gListenersMutex;
std::map<Secret, Socket>& listeners() {
  static std::map<Secret, Socket> all;
  return all;
}

}  // namespace

GroupId listenForGroup() {
  Name name = {};
  std::memcpy(name.magic, kMagic, sizeof kMagic);
  std::random_device random;
  for (uint8_t& byte : name.secret) byte = uint8_t(random());
  name.address = ownAddress();
  Socket listener = listenAt(name.address, &name.port);
  std::lock_guard<std::mutex> lock(gListenersMutex);
  listeners().emplace(name.secret, std::move(listener));
  GroupId id = {};
  std::memcpy(id.data(), &name, sizeof name);
  return id;
}

// The way of one rank to its connections.
class Meeting {
 public:
  explicit Meeting(const GroupMember& member)
      : member_(member), deadline_(Clock::now() + std::chrono::milliseconds(member.timeoutMs)), places_(size_t(member.size)) {
    std::memcpy(&name_, member.id.data(), sizeof name_);
    if (std::memcmp(name_.magic, kMagic, sizeof kMagic) != 0) {
      refuse("INVALID_ARGUMENT", "the id names no group of cpu devices. Use what uniqueId() of a cpu device gave");
    }
  }

  void connect(Mesh* mesh) {
    sockets_ = &mesh->sockets_;
    Socket meetingPlace = takeListener();
    if (meetingPlace.fd() >= 0) {
      gather(meetingPlace);
    } else {
      uint16_t port = 0;
      Socket own = member_.size > 1 ? listenAt(ownAddress(), &port) : Socket();
      visit(port);
      for (int rank = 0; rank < member_.rank; rank++) {
        if (rank != host_) set(rank, dial(places_[size_t(rank)].address, places_[size_t(rank)].port, "rank " + std::to_string(rank)));
        if (rank != host_) sayHello((*sockets_)[size_t(rank)], 0);
      }
      while (missing() >= 0) (void)accepted(own);
    }
    for (int socket : *sockets_) {
      if (socket < 0) continue;
      const int yes = 1;
      (void)setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    }
  }

 private:
  // Of the ranks in the process that made the id the first one to come.
  Socket takeListener() {
    std::lock_guard<std::mutex> lock(gListenersMutex);
    auto found = listeners().find(name_.secret);
    if (found == listeners().end()) return Socket();
    Socket listener = std::move(found->second);
    listeners().erase(found);
    return listener;
  }

  // Waits for all others, then tells everyone where all are.
  void gather(Socket& listener) {
    while (missing() >= 0) {
      const Hello hello = accepted(listener);
      sockaddr_in from = {};
      socklen_t length = sizeof from;
      (void)getpeername((*sockets_)[size_t(hello.rank)], reinterpret_cast<sockaddr*>(&from), &length);
      places_[size_t(hello.rank)] = {from.sin_addr.s_addr, hello.port, 1};
    }
    const int32_t self = member_.rank;
    for (int socket : *sockets_) {
      if (socket < 0) continue;
      send(socket, &self, sizeof self);
      send(socket, places_.data(), places_.size() * sizeof(Place));
    }
  }

  void visit(uint16_t port) {
    Socket host = dial(name_.address, name_.port, "the rank that made the group's id");
    sayHello(host.fd(), port);
    int32_t rank = -1;
    receive(host.fd(), &rank, sizeof rank);
    receive(host.fd(), places_.data(), places_.size() * sizeof(Place));
    if (rank < 0 || rank >= member_.size || rank == member_.rank) {
      refuse("RANKS_DIFFER", "two ranks came as rank " + std::to_string(member_.rank) + ". Give each a number of its own");
    }
    host_ = rank;
    set(rank, std::move(host));
  }

  void sayHello(int socket, uint16_t port) {
    const Hello hello = {name_.secret, member_.rank, member_.size, port, 0};
    send(socket, &hello, sizeof hello);
  }

  // The next rank that comes; strangers are sent away.
  Hello accepted(Socket& listener) {
    for (;;) {
      wait(listener.fd(), POLLIN, missing());
      Socket socket(accept(listener.fd(), nullptr, nullptr));
      if (socket.fd() < 0) continue;
      (void)fcntl(socket.fd(), F_SETFD, FD_CLOEXEC);
      Hello hello;
      if (!heard(socket.fd(), &hello, sizeof hello) || hello.secret != name_.secret) continue;
      if (hello.size != member_.size) {
        refuse("RANKS_DIFFER", "rank " + std::to_string(hello.rank) + " came to a group of " + std::to_string(hello.size) +
                                   " ranks, rank " + std::to_string(member_.rank) + " to one of " + std::to_string(member_.size));
      }
      if (hello.rank < 0 || hello.rank >= member_.size || hello.rank == member_.rank || (*sockets_)[size_t(hello.rank)] >= 0) {
        refuse("RANKS_DIFFER", "two ranks came as rank " + std::to_string(hello.rank) + ". Give each a number of its own");
      }
      set(hello.rank, std::move(socket));
      return hello;
    }
  }

  // A stranger who says little or nothing must not hold up the others for long.
  static bool heard(int socket, void* data, size_t bytes) {
    const auto deadline = Clock::now() + std::chrono::seconds(1);
    size_t done = 0;
    while (done < bytes) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
      pollfd polled = {socket, POLLIN, 0};
      if (left <= 0 || poll(&polled, 1, int(left)) != 1) return false;
      const ssize_t got = recv(socket, static_cast<char*>(data) + done, bytes - done, MSG_DONTWAIT);
      if (got <= 0) return false;
      done += size_t(got);
    }
    return true;
  }

  // The one who listens may come later than the one who calls.
  Socket dial(uint32_t address, uint16_t port, const std::string& who) {
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = address;
    to.sin_port = port;
    for (;;) {
      Socket made = openSocket();
      if (::connect(made.fd(), reinterpret_cast<sockaddr*>(&to), sizeof to) == 0) return made;
      if (Clock::now() > deadline_) {
        refuse("RANK_TIMEOUT", who + " was not reached within " + std::to_string(member_.timeoutMs) + " ms: " + std::strerror(errno));
      }
      usleep(20000);
    }
  }

  void set(int rank, Socket socket) { (*sockets_)[size_t(rank)] = socket.take(); }

  // A rank that there is no connection to yet; -1: none.
  int missing() const {
    for (int rank = 0; rank < member_.size; rank++) {
      if (rank != member_.rank && (*sockets_)[size_t(rank)] < 0) return rank;
    }
    return -1;
  }

  void wait(int socket, short events, int rank) {
    for (;;) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now()).count();
      pollfd polled = {socket, events, 0};
      const int ready = left <= 0 ? 0 : poll(&polled, 1, int(left));
      if (ready > 0) return;
      if (ready < 0 && errno == EINTR) continue;
      refuse("RANK_TIMEOUT", (rank >= 0 ? "rank " + std::to_string(rank) + " of " : std::string("the group of ")) +
                                 std::to_string(member_.size) + " ranks did not come within " +
                                 std::to_string(member_.timeoutMs) + " ms. Start all of them, with the same id");
    }
  }

  void send(int socket, const void* data, size_t bytes) {
    if (::send(socket, data, bytes, MSG_NOSIGNAL) != ssize_t(bytes)) {
      refuse("RANK_LOST", std::string("a rank left while the group was coming together: ") + std::strerror(errno));
    }
  }

  void receive(int socket, void* data, size_t bytes) {
    size_t done = 0;
    while (done < bytes) {
      wait(socket, POLLIN, -1);
      const ssize_t got = recv(socket, static_cast<char*>(data) + done, bytes - done, 0);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) {
        refuse("RANKS_DIFFER", "rank " + std::to_string(member_.rank) +
                                   " was sent away: another one has that number, the sizes differ, or a rank failed to come");
      }
      done += size_t(got);
    }
  }

  const GroupMember& member_;
  const Clock::time_point deadline_;
  Name name_;
  std::vector<Place> places_;
  std::vector<int>* sockets_ = nullptr;
  int host_ = -1;
};

std::unique_ptr<Mesh> Mesh::join(const GroupMember& member) {
  std::unique_ptr<Mesh> mesh(new Mesh(member));
  Meeting(member).connect(mesh.get());
  return mesh;
}

}  // namespace xhip
