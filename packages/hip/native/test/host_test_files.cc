// Reading files into device memory (file_reader.h): directly, and through page-locked memory as on a GPU, with calls that fail.
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include <thread>

#include "../faulty_driver.h"
#include "../file_reader.cc"
#include "host_test.h"

using namespace hosttest;

namespace {

constexpr size_t kBytes = 5 * FileReader::kPieceBytes + 12345;

// A file, memory for it, and a reader that is closed before its device.
struct Files {
  explicit Files(bool direct) {
    char path[] = "/tmp/x-host-files-XXXXXX";
    fd = mkstemp(path);
    (void)unlink(path);
    for (size_t i = 0; i < content.size(); i++) content[i] = static_cast<unsigned char>((i * 2654435761u) >> 13);
    CHECK_EQ(size_t(write(fd, content.data(), content.size())), content.size());
    OK(d.openContext(0, &context));
    OK(d.streamCreate(&stream));
    OK(d.eventCreate(&event));
    OK(d.malloc(&memory, kBytes));
    OK(d.memsetD8Async(memory, 0, kBytes, stream));
    reader = std::make_unique<FileReader>(d, context, direct);
    OK(reader->open());
  }
  ~Files() {
    d.plan({});
    reader.reset();
    OK(d.free(memory));
    OK(d.eventDestroy(event));
    OK(d.streamDestroy(stream));
    CHECK_EQ(live(Live::pinned) + live(Live::events) + live(Live::streams), int64_t(0));
    OK(d.closeContext(context));
    close(fd);
  }

  int64_t live(Live what) { return d.live(uint32_t(what)); }
  void fail(const char* entry, uint64_t nth, Status status, Fault::Reach reach = Fault::kOnce) {
    Fault fault;
    for (fault.entry = 0; std::string(kEntryNames[fault.entry]) != entry;) fault.entry++;
    fault.nth = nth;
    fault.status = status;
    fault.reach = reach;
    d.plan(fault);
  }
  void prepare(FileRead& read, size_t position = 0, size_t bytes = kBytes) {
    read.fd = fd;
    read.position = position;
    read.target = memory + position;
    read.bytes = bytes;
    Call call;
    OK(reader->order(read, stream, event, &call));
  }
  bool holds(size_t from, size_t to) {
    return std::memcmp(reinterpret_cast<void*>(memory + from), content.data() + from, to - from) == 0;
  }

  FaultyDriver d{makeHostDriver()};
  Context context = nullptr;
  Stream stream = nullptr;
  Event event = nullptr;
  DevicePtr memory = 0;
  int fd = -1;
  std::vector<unsigned char> content = std::vector<unsigned char>(kBytes);
  std::unique_ptr<FileReader> reader;
};

}  // namespace

TEST(files_arrive_whole) {
  for (bool direct : {true, false}) {
    Files f(direct);
    FileRead read;
    f.prepare(read);
    f.reader->run(read);
    CHECK_EQ(read.status, 0);
    CHECK_EQ(read.error, 0);
    CHECK_EQ(read.done, kBytes);
    CHECK(f.holds(0, kBytes));
    CHECK_EQ(f.live(Live::pinned), int64_t(direct ? 0 : 2));
  }
}

TEST(files_are_read_by_several_threads) {
  for (bool direct : {true, false}) {
    Files f(direct);
    constexpr size_t kParts = 24;
    std::vector<FileRead> reads(kParts);
    const size_t part = kBytes / kParts + 1;
    for (size_t i = 0; i < kParts; i++) f.prepare(reads[i], i * part, std::min(part, kBytes - i * part));
    std::vector<std::thread> threads;
    for (FileRead& read : reads) threads.emplace_back([&] { f.reader->run(read); });
    for (std::thread& thread : threads) thread.join();
    for (const FileRead& read : reads) CHECK(read.status == 0 && read.error == 0 && read.done == read.bytes);
    CHECK(f.holds(0, kBytes));
    CHECK(f.live(Live::pinned) <= int64_t(FileReader::kMostPieces));
  }
}

TEST(files_that_end_or_fail_say_how_far_they_came) {
  for (bool direct : {true, false}) {
    Files f(direct);
    const size_t end = 2 * FileReader::kPieceBytes + 77;
    OK(ftruncate(f.fd, off_t(end)));
    FileRead read;
    f.prepare(read);
    f.reader->run(read);
    CHECK_EQ(read.done, end);
    CHECK(f.holds(0, end));
    FileRead bad;
    f.prepare(bad);
    bad.fd = -1;
    f.reader->run(bad);
    CHECK_EQ(bad.error, EBADF);
    CHECK_EQ(bad.done, size_t(0));
  }
}

TEST(files_do_without_page_locked_memory) {
  Files f(false);
  f.fail("hostMalloc", 2, 2, Fault::kEntry);
  FileRead read;
  f.prepare(read);
  f.reader->run(read);
  CHECK_EQ(read.status, 0);
  CHECK_EQ(read.done, kBytes);
  CHECK(f.holds(0, kBytes));
  CHECK_EQ(f.live(Live::pinned), int64_t(1));
}

TEST(files_report_each_call_that_fails) {
  const struct {
    const char* entry;
    Call call;
    uint64_t most;
  } sites[] = {{"makeCurrent", Call::MakeCurrent, 1},
               {"eventCreate", Call::EventCreate, 2},
               {"memcpyHtoDAsync", Call::MemcpyHtoD, 6},
               {"eventRecord", Call::EventRecord, 6},
               {"eventSynchronize", Call::EventSynchronize, 6}};
  for (const auto& site : sites) {
    for (uint64_t nth = 1; nth <= site.most; nth++) {
      Files f(false);
      FileRead read;
      f.prepare(read);
      f.fail(site.entry, nth, 999);
      f.reader->run(read);
      CHECK_EQ(read.status, 999);
      CHECK_EQ(int(read.call), int(site.call));
      CHECK_EQ(f.d.hits(), uint64_t(1));
      FileRead again;
      f.prepare(again);
      f.reader->run(again);
      CHECK_EQ(again.status, 0);
      CHECK(f.holds(0, kBytes));
    }
  }
  Files gone(false);
  FileRead read;
  gone.prepare(read);
  gone.fail("memcpyHtoDAsync", 2, 719, Fault::kAll);
  gone.reader->run(read);
  CHECK_EQ(read.status, 719);
}

TEST(files_that_are_cancelled_leave_memory_alone) {
  for (bool direct : {true, false}) {
    Files f(direct);
    FileRead before;
    f.prepare(before);
    f.reader->cancel(before);
    f.reader->run(before);
    CHECK_EQ(before.error, ECANCELED);
    CHECK_EQ(before.done, size_t(0));
    // One that is under way: whatever it got, nothing is written after `cancel`.
    FileRead read;
    f.prepare(read);
    std::thread thread([&] { f.reader->run(read); });
    f.reader->cancel(read);
    OK(f.d.memsetD8Async(f.memory, 9, kBytes, f.stream));
    OK(f.d.streamSynchronize(f.stream));
    thread.join();
    const auto* bytes = reinterpret_cast<const unsigned char*>(f.memory);
    size_t other = 0;
    for (size_t i = 0; i < kBytes; i++) other += bytes[i] != 9;
    CHECK_EQ(other, size_t(0));
  }
}
