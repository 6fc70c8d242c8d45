// The harness of the host driver's tests: registration, checks, and a fixture with an open context and loaded kernels.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "../driver.h"
#include "../host/status.h"

namespace hosttest {

using namespace xhip;

struct Case {
  const char* name;
  std::function<void()> body;
};
std::vector<Case>& cases();
struct Register {
  Register(const char* name, std::function<void()> body) { cases().push_back({name, std::move(body)}); }
};

// Counts a failure of the running case and says where; the case goes on.
void failed(const char* file, int line, const std::string& what);

#define TEST(name)                                          \
  static void test_##name();                                \
  static const hosttest::Register register_##name(#name, test_##name); \
  static void test_##name()
#define CHECK(condition) \
  ((condition) ? void() : hosttest::failed(__FILE__, __LINE__, #condition))
#define CHECK_EQ(actual, expected)                                                                           \
  do {                                                                                                       \
    const auto actual_ = (actual);                                                                           \
    const decltype(actual_) expected_ = (expected);                                                          \
    if (!(actual_ == expected_))                                                                             \
      hosttest::failed(__FILE__, __LINE__, std::string(#actual) + " is " + std::to_string(actual_) + ", not " + std::to_string(expected_)); \
  } while (0)
#define OK(call) CHECK_EQ((call), 0)

// The kernels of host_test_kernels.h as a code object, compiled with more options.
std::vector<unsigned char> compileKernels(const std::string& more);
// The same without more options, compiled once per run.
const std::vector<unsigned char>& kernelImage();
double nowUs();

// Packs kernel arguments at their natural alignment.
class Args {
 public:
  template <class T>
  Args& operator()(T value) {
    bytes_.resize((bytes_.size() + alignof(T) - 1) / alignof(T) * alignof(T));
    const auto* from = reinterpret_cast<const unsigned char*>(&value);
    bytes_.insert(bytes_.end(), from, from + sizeof value);
    return *this;
  }
  const void* data() const { return bytes_.data(); }
  size_t size() const { return bytes_.size(); }

 private:
  std::vector<unsigned char> bytes_;
};

// An open device with the test kernels and one stream; closes in order at the end of a case.
struct Fixture {
  std::unique_ptr<Driver> driver = makeHostDriver();
  Driver& d = *driver;
  Context context = nullptr;
  Module module = nullptr;
  Stream stream = nullptr;

  Fixture();
  ~Fixture();
  Function function(const char* name);
  DevicePtr malloc(size_t bytes);
  Stream newStream();
  Status launch(Function function, const Args& args, uint32_t blocks = 1, Stream on = nullptr, uint32_t shared = 0);
  std::vector<uint32_t> read(DevicePtr from, size_t count);
  uint32_t read(DevicePtr from) { return read(from, 1)[0]; }
  // Captures what `body` does on `stream`.
  Graph capture(const std::function<void()>& body);
};

}  // namespace hosttest
