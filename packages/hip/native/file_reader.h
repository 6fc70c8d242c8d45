// Files into device memory, on threads of the caller's: a piece is read into page-locked memory and copied from there while the
// next one is read. Where device memory is the host's, files are read into it directly.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "calls.h"
#include "driver.h"

namespace xhip {

// A part of a file, and what came of it.
struct FileRead {
  int fd = -1;
  uint64_t position = 0;
  DevicePtr target = 0;
  size_t bytes = 0;
  Event after = nullptr;  // where memory is the host's: what is to pass before it is written to

  size_t done = 0;    // bytes that have arrived: fewer than `bytes` where the file ends before
  int error = 0;      // the system's, else 0
  Status status = 0;  // the driver's, of `call`
  Call call = Call::MemcpyHtoD;
  std::string detail;

  std::atomic<bool> cancelled{false};
  bool running = false;  // under the reader's mutex
};

class FileReader {
 public:
  static constexpr size_t kPieceBytes = size_t(2) << 20;
  // Of page-locked memory, which is 32 MiB then. Two for each read under way.
  static constexpr size_t kMostPieces = 16;

  // `direct`: addresses of the device are the host's.
  FileReader(Driver& driver, Context context, bool direct) : driver_(driver), context_(context), direct_(direct) {}
  ~FileReader();

  Status open();
  // Puts the read behind what `stream` was given so far, by `event`, which is to be kept until the read has ended.
  Status order(FileRead& read, Stream stream, Event event, Call* call);
  // Reads, on any thread; all is on the device or given up when it returns.
  void run(FileRead& read);
  // What has not begun does not, and what has is waited for.
  void cancel(FileRead& read);

  uint32_t reading = 0;  // reads that were begun and have not ended; the device's thread alone
  bool doomed = false;   // goes with the last of them

 private:
  // Memory that is page-locked, or ordinary where there is no more of that: then the driver copies it before a call returns.
  struct Piece {
    void* locked = nullptr;
    std::unique_ptr<char[]> plain;
    Event event = nullptr;
    bool busy = false;

    void* host() const { return locked ? locked : plain.get(); }
  };

  bool failed(FileRead& read, Call call, Status status);
  size_t fill(FileRead& read, void* to, size_t bytes, uint64_t position);
  void direct(FileRead& read);
  void staged(FileRead& read);
  std::unique_ptr<Piece> take(FileRead& read);
  bool wait(FileRead& read, Piece& piece);
  bool upload(FileRead& read, Piece& piece, DevicePtr to, size_t bytes);
  void giveBack(std::unique_ptr<Piece> piece);

  Driver& driver_;
  const Context context_;
  const bool direct_;
  Stream stream_ = nullptr;
  std::mutex mutex_;
  std::condition_variable ended_;
  std::vector<std::unique_ptr<Piece>> idle_;
  size_t locked_ = 0;
  bool refused_ = false;  // there is no more page-locked memory
};

}  // namespace xhip
