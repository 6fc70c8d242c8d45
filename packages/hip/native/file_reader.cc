// Behind file_reader.h.
#include "file_reader.h"

#include <errno.h>
#include <unistd.h>

#include <algorithm>
#include <new>

namespace xhip {

FileReader::~FileReader() {
  for (auto& piece : idle_) {
    (void)driver_.eventDestroy(piece->event);
    if (piece->locked) (void)driver_.hostFree(piece->locked);
  }
  if (!stream_) return;
  // A stream is destroyed idle, and this one may still have to wait for what failed reads were to come behind.
  (void)driver_.streamSynchronize(stream_);
  (void)driver_.streamDestroy(stream_);
}

Status FileReader::open() { return direct_ ? 0 : driver_.streamCreate(&stream_); }

Status FileReader::order(FileRead& read, Stream stream, Event event, Call* call) {
  *call = Call::EventRecord;
  Status status = driver_.eventRecord(event, stream);
  if (direct_) {
    read.after = event;
  } else if (status == 0) {
    *call = Call::StreamWaitEvent;
    status = driver_.streamWaitEvent(stream_, event);
  }
  return status;
}

void FileReader::run(FileRead& read) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (read.cancelled) {
      read.error = ECANCELED;
      return;
    }
    read.running = true;
  }
  if (!failed(read, Call::MakeCurrent, driver_.makeCurrent(context_))) {
    if (direct_) {
      direct(read);
    } else {
      staged(read);
    }
  }
  std::lock_guard<std::mutex> lock(mutex_);
  read.running = false;
  ended_.notify_all();
}

void FileReader::cancel(FileRead& read) {
  std::unique_lock<std::mutex> lock(mutex_);
  read.cancelled = true;
  ended_.wait(lock, [&] { return !read.running; });
}

bool FileReader::failed(FileRead& read, Call call, Status status) {
  if (status == 0) return false;
  if (read.status == 0) {
    read.call = call;
    read.status = status;
    read.detail = driver_.failureDetail();
  }
  return true;
}

// Bytes that came: fewer where the file ends, or with an error.
size_t FileReader::fill(FileRead& read, void* to, size_t bytes, uint64_t position) {
  size_t done = 0;
  while (done < bytes) {
    if (read.cancelled) read.error = ECANCELED;
    if (read.error != 0) break;
    const ssize_t got = pread(read.fd, static_cast<char*>(to) + done, bytes - done, off_t(position + done));
    if (got == 0) break;
    if (got > 0) {
      done += size_t(got);
    } else if (errno != EINTR) {
      read.error = errno;
    }
  }
  return done;
}

void FileReader::direct(FileRead& read) {
  if (failed(read, Call::EventSynchronize, driver_.eventSynchronize(read.after))) return;
  while (read.done < read.bytes) {
    const size_t length = std::min(kPieceBytes, read.bytes - read.done);
    void* to = reinterpret_cast<void*>(uintptr_t(read.target + read.done));
    const size_t got = fill(read, to, length, read.position + read.done);
    read.done += got;
    if (got < length) return;
  }
}

void FileReader::staged(FileRead& read) {
  std::unique_ptr<Piece> pieces[2];
  size_t begun = 0;
  for (size_t turn = 0; begun < read.bytes; turn++) {
    std::unique_ptr<Piece>& piece = pieces[turn % 2];
    if (piece ? !wait(read, *piece) : !(piece = take(read))) break;
    const size_t length = std::min(kPieceBytes, read.bytes - begun);
    const size_t got = fill(read, piece->host(), length, read.position + begun);
    if (got > 0 && !upload(read, *piece, read.target + begun, got)) break;
    begun += got;
    if (got < length) break;
  }
  for (auto& piece : pieces) {
    if (!piece) continue;
    if (!wait(read, *piece)) (void)driver_.streamSynchronize(stream_);  // nothing may be copied from it any more
    giveBack(std::move(piece));
  }
  if (read.status == 0) read.done = begun;
}

std::unique_ptr<FileReader::Piece> FileReader::take(FileRead& read) {
  bool mayLock;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!idle_.empty()) {
      std::unique_ptr<Piece> piece = std::move(idle_.back());
      idle_.pop_back();
      return piece;
    }
    mayLock = !refused_ && locked_ < kMostPieces;
    if (mayLock) locked_++;
  }
  auto piece = std::make_unique<Piece>();
  if (failed(read, Call::EventCreate, driver_.eventCreate(&piece->event))) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (mayLock) locked_--;
    return nullptr;
  }
  if (mayLock && driver_.hostMalloc(&piece->locked, kPieceBytes) != 0) {
    // No error: copies take longer then, as those of memory that JavaScript has.
    (void)driver_.failureDetail();
    piece->locked = nullptr;
    std::lock_guard<std::mutex> lock(mutex_);
    refused_ = true;
    locked_--;
  }
  if (piece->locked) return piece;
  piece->plain.reset(new (std::nothrow) char[kPieceBytes]);
  if (piece->plain) return piece;
  read.error = ENOMEM;
  (void)driver_.eventDestroy(piece->event);
  return nullptr;
}

// Whether what was copied from the piece has passed.
bool FileReader::wait(FileRead& read, Piece& piece) {
  if (!piece.busy) return true;
  piece.busy = false;
  return !failed(read, Call::EventSynchronize, driver_.eventSynchronize(piece.event));
}

bool FileReader::upload(FileRead& read, Piece& piece, DevicePtr to, size_t bytes) {
  const Status status = piece.locked ? driver_.memcpyPinnedAsync(to, piece.locked, bytes, stream_)
                                     : driver_.memcpyHtoDAsync(to, piece.plain.get(), bytes, stream_);
  if (failed(read, Call::MemcpyHtoD, status)) return false;
  if (failed(read, Call::EventRecord, driver_.eventRecord(piece.event, stream_))) {
    (void)driver_.streamSynchronize(stream_);
    return false;
  }
  return piece.busy = true;
}

void FileReader::giveBack(std::unique_ptr<Piece> piece) {
  std::lock_guard<std::mutex> lock(mutex_);
  idle_.push_back(std::move(piece));
}

}  // namespace xhip
