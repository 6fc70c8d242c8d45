// Tests of the host driver, a program of its own. From this folder:
//   g++ -std=c++17 -O2 -pthread *.cc ../host/*.cc -ldl -o /tmp/host_test && /tmp/host_test
// and likewise with -fsanitize=thread or -fsanitize=address,undefined (then TEST_KERNEL_FLAGS="-fsanitize=thread"
// instruments the kernels as well). An argument that is no option runs only the cases whose name contains it; `--bench`
// prints latencies instead. Exit status 1 when a check failed.
#include "host_test.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "host_test_kernels.h"

namespace hosttest {

void benchmark();

std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}

static int failures = 0;
static const char* running = "";

void failed(const char* file, int line, const std::string& what) {
  ++failures;
  const char* name = std::strrchr(file, '/');
  std::printf("  FAILED %s: %s:%d: %s\n", running, name ? name + 1 : file, line, what.c_str());
}

double nowUs() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::vector<unsigned char> compileKernels(const std::string& more) {
  char folder[] = "/tmp/x-host-test-XXXXXX";
  if (!mkdtemp(folder)) std::abort();
  const std::string base = folder;
  std::ofstream(base + "/kernels.cc") << kKernelSource;
  const std::string here = __FILE__;
  const size_t slash = here.find_last_of('/');
  const std::string include = (slash == std::string::npos ? std::string(".") : here.substr(0, slash)) + "/..";
  const char* compiler = std::getenv("CXX");
  const char* flags = std::getenv("TEST_KERNEL_FLAGS");
  const std::string command = std::string(compiler ? compiler : "c++") + " -std=c++17 -O2 -shared -fPIC " + (flags ? flags : "") + " " + more +
                              " -I'" + include + "' -o " + base + "/kernels.so " + base + "/kernels.cc";
  if (std::system(command.c_str()) != 0) {
    std::printf("the test kernels do not compile: %s\n", command.c_str());
    std::exit(2);
  }
  std::ifstream file(base + "/kernels.so", std::ios::binary);
  std::vector<unsigned char> bytes{std::istreambuf_iterator<char>(file), {}};
  for (const char* name : {"/kernels.cc", "/kernels.so", ""}) std::remove((base + name).c_str());
  return bytes;
}

const std::vector<unsigned char>& kernelImage() {
  static const std::vector<unsigned char> image = compileKernels("");
  return image;
}

Fixture::Fixture() {
  OK(d.init());
  OK(d.openContext(0, &context));
  OK(d.makeCurrent(context));
  OK(d.moduleLoad(&module, kernelImage().data(), kernelImage().size()));
  OK(d.streamCreate(&stream));
}

Fixture::~Fixture() {
  if (context) OK(d.closeContext(context));
}

Function Fixture::function(const char* name) {
  Function function = nullptr;
  OK(d.moduleGetFunction(&function, module, name));
  return function;
}

DevicePtr Fixture::malloc(size_t bytes) {
  DevicePtr address = 0;
  OK(d.malloc(&address, bytes));
  OK(d.memsetD8Async(address, 0, bytes, stream));
  OK(d.streamSynchronize(stream));
  return address;
}

Stream Fixture::newStream() {
  Stream created = nullptr;
  OK(d.streamCreate(&created));
  return created;
}

Status Fixture::launch(Function function, const Args& args, uint32_t blocks, Stream on, uint32_t shared) {
  const LaunchConfig config{{blocks, 1, 1}, {256, 1, 1}, shared};
  return d.launch(function, config, args.data(), args.size(), on ? on : stream);
}

std::vector<uint32_t> Fixture::read(DevicePtr from, size_t count) {
  std::vector<uint32_t> values(count);
  OK(d.memcpyDtoHAsync(values.data(), from, count * 4, stream));
  OK(d.streamSynchronize(stream));
  return values;
}

Graph Fixture::capture(const std::function<void()>& body) {
  Graph graph = nullptr;
  OK(d.streamBeginCapture(stream));
  body();
  OK(d.streamEndCapture(stream, &graph));
  return graph;
}

}  // namespace hosttest

int main(int argc, char** argv) {
  using namespace hosttest;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const std::string filter = argc > 1 ? argv[1] : "";
  if (filter == "--bench") {
    benchmark();
    return failures > 0;
  }
  int passed = 0, broken = 0;
  for (const Case& test : cases()) {
    if (std::string(test.name).find(filter) == std::string::npos) continue;
    const int before = failures;
    running = test.name;
    const double start = nowUs();
    test.body();
    const bool good = failures == before;
    (good ? passed : broken)++;
    std::printf("%s %s (%.0f ms)\n", good ? "ok  " : "FAIL", test.name, (nowUs() - start) / 1000);
  }
  std::printf("%d passed, %d failed\n", passed, broken);
  return broken > 0 || passed == 0;
}
