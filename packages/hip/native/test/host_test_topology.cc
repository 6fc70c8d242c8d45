// Which CPUs are cores and nodes, from made-up trees of /sys; threads and memory shared out over nodes; what an idle pool uses.
#include <sched.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "../host/cpu_levels.h"
#include "../host/node_memory.h"
#include "../host/system_info.h"
#include "../host/thread_pool.h"
#include "host_test.h"

using namespace hosttest;
using namespace xhip::host;

namespace {

// A tree like /sys/devices/system that goes with the case.
class Tree {
 public:
  Tree() {
    char folder[] = "/tmp/x-topology-XXXXXX";
    if (!mkdtemp(folder)) std::abort();
    root_ = folder;
  }
  ~Tree() { std::filesystem::remove_all(root_); }
  Tree& siblings(uint32_t cpu, const std::string& list) {
    return write("cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list", list);
  }
  Tree& node(uint32_t number, const std::string& list) { return write("node/node" + std::to_string(number) + "/cpulist", list); }
  Tree& write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = std::filesystem::path(root_) / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
    return *this;
  }
  Topology read(const std::string& allowed) const { return readTopology(parseCpuList(allowed), root_); }

 private:
  std::string root_;
};

// Two packages of four cores with two threads each: CPUs 0 to 7, and 8 to 15 for the second threads.
void fillTwoPackages(Tree& tree) {
  for (uint32_t cpu = 0; cpu < 16; ++cpu) tree.siblings(cpu, std::to_string(cpu % 8) + "," + std::to_string(cpu % 8 + 8));
  tree.node(0, "0-3,8-11").node(1, "4-7,12-15").write("node/online", "0-1").write("node/nodes_info", "");
}

std::string text(const std::vector<uint32_t>& values) {
  std::string all;
  for (const uint32_t value : values) all += (all.empty() ? "" : " ") + std::to_string(value);
  return all;
}
std::string text(const Topology& topology) {
  std::string all;
  for (const CpuNode& node : topology.nodes) {
    all += std::to_string(node.id) + ": " + text(node.cpus) + " are " + std::to_string(node.cores) + "; ";
  }
  return all;
}
std::string text(const std::vector<NodeThreads>& nodes) {
  std::string all;
  for (const NodeThreads& node : nodes) all += std::to_string(node.id) + ": " + std::to_string(node.threads) + "; ";
  return all;
}
void checkText(const std::string& actual, const std::string& expected) {
  if (actual != expected) failed(__FILE__, __LINE__, "got '" + actual + "', not '" + expected + "'");
}

double cpuMs() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) * 1e-6;
}

}  // namespace

TEST(cpu_lists_are_parsed) {
  checkText(text(parseCpuList("0-3,8,10-11\n")), "0 1 2 3 8 10 11");
  checkText(text(parseCpuList("5")), "5");
  checkText(text(parseCpuList("4,2-3,3,2")), "2 3 4");
  for (const char* wrong : {"", "\n", "a", "1-", "3-1", "-1", "1;2", "1 2", "0-99999999999", "70000"}) {
    checkText(text(parseCpuList(wrong)), "");
  }
}

TEST(siblings_are_one_core) {
  Tree tree;
  fillTwoPackages(tree);
  checkText(text(tree.read("0-15")), "0: 0 1 2 3 8 9 10 11 are 4; 1: 4 5 6 7 12 13 14 15 are 4; ");
  CHECK_EQ(tree.read("0-15").cores(), 8u);
  // Of a core only the allowed threads count, whichever they are.
  checkText(text(tree.read("0,8,9,10")), "0: 0 8 9 10 are 3; ");
  checkText(text(tree.read("3,11,12")), "0: 3 11 are 1; 1: 12 are 1; ");
}

TEST(what_cannot_be_read_lowers_nothing) {
  Tree none;
  checkText(text(none.read("0-3")), "0: 0 1 2 3 are 4; ");
  // A CPU without its file, one whose sibling does not know of it, and nonsense.
  Tree some;
  some.siblings(0, "0-1").siblings(1, "1").siblings(2, "2-3").siblings(4, "?").siblings(5, "4-5");
  checkText(text(some.read("0-5")), "0: 0 1 2 3 4 5 are 6; ");
  // Lists that name another CPU but not their own.
  Tree strange;
  strange.siblings(0, "0").siblings(1, "0");
  checkText(text(strange.read("0-1")), "0: 0 1 are 2; ");
}

TEST(nodes_must_cover_all_cpus_once) {
  Tree missing;
  missing.node(0, "0-1").node(1, "3");
  checkText(text(missing.read("0-3")), "0: 0 1 2 3 are 4; ");
  Tree twice;
  twice.node(0, "0-2").node(1, "2-3");
  checkText(text(twice.read("0-3")), "0: 0 1 2 3 are 4; ");
  // Memory without CPUs is no node of ours, and numbers need not be neighbours.
  Tree sparse;
  sparse.node(0, "").node(2, "0-1").node(8, "2-3");
  checkText(text(sparse.read("0-3")), "2: 0 1 are 2; 8: 2 3 are 2; ");
  checkText(text(sparse.read("2")), "8: 2 are 1; ");
}

TEST(threads_are_shared_by_cores) {
  Tree tree;
  fillTwoPackages(tree);
  const Topology both = tree.read("0-15"), uneven = tree.read("0-3,4");
  checkText(text(shareThreads(both, 8)), "0: 4; 1: 4; ");
  checkText(text(shareThreads(both, 3)), "0: 2; 1: 1; ");
  checkText(text(shareThreads(both, 1)), "0: 1; ");
  checkText(text(shareThreads(both, 16)), "0: 8; 1: 8; ");
  checkText(text(shareThreads(uneven, 5)), "0: 4; 1: 1; ");
  checkText(text(shareThreads(uneven, 1)), "0: 1; ");
}

TEST(memory_follows_the_threads) {
  const std::vector<NodeThreads> nodes = {{0, {0}, 3}, {4, {1}, 1}};
  const auto parts = [&](size_t bytes) {
    std::string all;
    size_t next = 0;
    for (const MemoryPart& part : memoryParts(bytes, nodes, 100)) {
      CHECK_EQ(part.begin, next);
      next = part.end;
      all += std::to_string(part.node) + ": " + std::to_string(part.end) + "; ";
    }
    CHECK_EQ(next, bytes);
    return all;
  };
  checkText(parts(800), "0: 600; 4: 800; ");
  checkText(parts(750), "0: 600; 4: 750; ");
  checkText(parts(100), "0: 100; ");
  // The system may refuse a node that it does not have; the memory is there all the same.
  std::vector<unsigned char> memory(3 << 20);
  unsigned char* page = reinterpret_cast<unsigned char*>((reinterpret_cast<uintptr_t>(memory.data()) + 4095) & ~uintptr_t{4095});
  placeByParts(page, 2 << 20, nodes, 4096);
  std::memset(page, 1, 2 << 20);
}

// Two nodes made of whatever CPUs there are.
TEST(a_pool_of_two_nodes_keeps_to_their_parts) {
  const std::vector<uint32_t> allowed = allowedCpus();
  const std::vector<NodeThreads> nodes = {{0, {allowed.front()}, 2}, {1, {allowed.back()}, 2}};
  auto pool = ThreadPool::create(nodes, static_cast<uint32_t>(allowed.size()));
  CHECK(pool != nullptr);
  CHECK_EQ(pool->threads(), 4u);

  struct Work : Runnable {
    ThreadPool* pool = nullptr;
    std::atomic<uint32_t> runs[1000] = {};
    std::atomic<uint32_t> wrong{0}, done{0};  // blocks on a CPU or of parts that they should not be
    std::vector<uint32_t> cpus;
    uint64_t ownPart = 0;
    pthread_t owner{};
    std::vector<bool> partsOfOwner;  // of each of the owner's turns whether it was in its node's part
    static void blocks(const void* task, unsigned char*, uint64_t begin, uint64_t end) {
      Work& work = *static_cast<Work*>(const_cast<void*>(task));
      const std::vector<uint32_t> bound = allowedCpus();
      if (bound.size() != 1 || std::find(work.cpus.begin(), work.cpus.end(), bound[0]) == work.cpus.end()) work.wrong.fetch_add(1);
      for (uint64_t b = begin; b < end; ++b) work.runs[b].fetch_add(1);
      if (pthread_equal(work.owner, pthread_self())) work.partsOfOwner.push_back(begin / 500 == work.ownPart);
      if (begin / 500 != (end - 1) / 500) work.wrong.fetch_add(1);
    }
    void run(Worker& worker) override {
      ownPart = worker.node;
      owner = pthread_self();
      pool->parallel(worker, blocks, this, 1000, 70, false);
      done.store(1);
    }
  };
  int inBoth = 0;
  for (int i = 0; i < 20; ++i) {
    Work work;
    work.pool = pool.get();
    work.cpus = {allowed.front(), allowed.back()};
    pool->schedule(&work);
    while (work.done.load() == 0) std::this_thread::yield();
    for (auto& runs : work.runs) CHECK_EQ(runs.load(), 1u);
    CHECK_EQ(work.wrong.load(), 0u);
    // Own part first, then the other's, unless somebody is awake and helps.
    CHECK(std::is_sorted(work.partsOfOwner.rbegin(), work.partsOfOwner.rend()));
    if (!work.partsOfOwner.empty()) inBoth += work.partsOfOwner.front() && !work.partsOfOwner.back();
  }
  CHECK(inBoth > 0);
}

TEST(shares_of_blocks_have_room_for_any_total) {
  auto pool = ThreadPool::create({{0, allowedCpus(), 3}}, 1);
  CHECK_EQ(pool->shareOf(uint64_t{1} << 62, 3), uint64_t{1} << 62);
  CHECK_EQ(pool->shareOf(10, 1), uint64_t{3});
  CHECK_EQ(pool->shareOf(10, 2), uint64_t{6});
}

TEST(levels_of_arm_processors) {
  const auto level = [](uint64_t capabilities, uint64_t more) { return armLevels(capabilities, more).back(); };
  const uint64_t dotprod = 1u << 8 | 1u << 9 | 1u << 10 | 1u << 12 | 1u << 20;
  checkText(level(3, 0), "aarch64");
  checkText(level(1u << 20, ~0ull), "aarch64");
  checkText(level(dotprod, 0), "aarch64-dotprod");
  checkText(level(dotprod, 1u << 13), "aarch64-dotprod");
  checkText(level(dotprod, 1u << 13 | 1u << 14), "aarch64-i8mm");
}

TEST(default_threads_are_physical_cores) {
  unsetenv("X_HOST_THREADS");
  CpuInfo cpu;
  OK(readCpu(&cpu));
  const uint32_t cores = readTopology(allowedCpus(), "/sys/devices/system").cores();
  const uint32_t quota = cpuQuota();
  CHECK_EQ(cpu.threads, std::min(quota > 0 ? std::min(quota, cores) : cores, 1024u));
  uint32_t shared = 0;
  for (const NodeThreads& node : cpu.nodes) shared += node.threads;
  CHECK_EQ(shared, cpu.threads);
  setenv("X_HOST_THREADS", "7", 1);
  OK(readCpu(&cpu));
  unsetenv("X_HOST_THREADS");
  CHECK_EQ(cpu.threads, 7u);
  CHECK(cpu.spins);
}

// All of the process's threads together, after work that woke every worker.
TEST(an_idle_device_uses_no_cpu) {
  Fixture f;
  DevicePtr x = f.malloc(4000);
  for (int i = 0; i < 20; ++i) OK(f.launch(f.function("slow_hit"), Args()(x)(1u)(20u), 1000));
  OK(f.d.deviceSynchronize());
  usleep(5000);  // idle workers spin for tens of microseconds before they sleep
  const double before = cpuMs();
  usleep(300000);
  const double used = cpuMs() - before;
  if (used > 5) failed(__FILE__, __LINE__, "300 ms of idling used " + std::to_string(used) + " ms of CPU time");
}

// Of the 0.4 ms that idle workers wait awake behind each launch, nothing is left.
TEST(a_device_that_does_not_spin_sleeps_between_launches) {
  setenv("X_HOST_SPIN", "0", 1);
  Fixture f;
  unsetenv("X_HOST_SPIN");
  DevicePtr x = f.malloc(4000);
  const double before = cpuMs();
  for (int i = 0; i < 200; ++i) {
    OK(f.launch(f.function("hit"), Args()(x)(1u), 1000));
    OK(f.d.deviceSynchronize());
    usleep(1000);
  }
  const double used = cpuMs() - before;
  if (used > 50) failed(__FILE__, __LINE__, "200 small launches used " + std::to_string(used) + " ms of CPU time");
  for (uint32_t value : f.read(x, 1000)) CHECK_EQ(value, 200u);
}
