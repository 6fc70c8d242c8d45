// Many threads and streams at once, and the latencies that `--bench` prints.
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "host_test.h"

using namespace hosttest;
using namespace xhip::host;

// The kernel's numbers of the workers' threads.
static std::vector<pid_t> workerThreads() {
  std::vector<pid_t> found;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    if (name == "x-host-worker") found.push_back(std::stoi(task.path().filename().string()));
  }
  return found;
}

static void holdUp(int) {
  for (const double end = nowUs() + 60; nowUs() < end;) {
  }
}

// Workers are held up at any place by a signal, as a busy machine does, while launches come about when one gives the stream
// up: between giving up and looking once more another may take the stream, run it dry and give it up as well.
TEST(stress_stream_changes_workers) {
  Fixture f;
  Function hit = f.function("hit");
  struct sigaction action = {}, before = {};
  action.sa_handler = holdUp;
  action.sa_flags = SA_RESTART;
  sigaction(SIGPROF, &action, &before);
  std::atomic<bool> done{false};
  const std::vector<pid_t> workers = workerThreads();
  CHECK(!workers.empty());
  std::thread interrupter([&] {
    std::mt19937 random(3);
    while (!done.load()) {
      syscall(SYS_tgkill, getpid(), workers[random() % workers.size()], SIGPROF);
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 60));
    }
  });
  DevicePtr hits = f.malloc(4);
  OK(f.d.memsetD8Async(hits, 0, 4, f.stream));
  std::mt19937 random(5);
  uint32_t launched = 0;
  for (const double end = nowUs() + 3e6; nowUs() < end;) {
    for (const double next = nowUs() + random() % 40; nowUs() < next;) {
    }
    OK(f.launch(hit, Args()(hits)(1u)(1u), 1));
    launched++;
  }
  done = true;
  interrupter.join();
  OK(f.d.streamSynchronize(f.stream));
  CHECK_EQ(f.read(hits), launched);
  // A signal that a busy machine has not delivered yet would end the process by what came before: ignoring drops it.
  signal(SIGPROF, SIG_IGN);
  sigaction(SIGPROF, &before, nullptr);
}

TEST(stress_threads_and_streams) {
  Fixture f;
  Function mix = f.function("mix"), hit = f.function("hit"), slow = f.function("slow_hit");
  constexpr int kThreads = 6, kRounds = 60;
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      auto good = [&](Status status) { wrong += status != 0; };
      Stream stream = nullptr;
      Event event = nullptr;
      good(f.d.streamCreate(&stream));
      good(f.d.eventCreate(&event));
      for (int round = 0; round < kRounds; ++round) {
        const uint32_t blocks = 1 + random() % 300;
        DevicePtr x = 0, hits = 0;
        good(f.d.malloc(&x, 4));
        good(f.d.malloc(&hits, blocks * 4));
        good(f.d.memsetD8Async(x, 0, 4, stream));
        good(f.d.memsetD8Async(hits, 0, blocks * 4, stream));
        void* host = nullptr;
        good(f.d.hostMalloc(&host, 4 + blocks * 4));
        uint32_t expected = 0, expectedHits = 0;
        const int launches = static_cast<int>(random() % 60);
        for (int i = 0; i < launches; ++i) {
          const uint32_t k = random() % 1000;
          good(f.launch(mix, Args()(x)(k), 1, stream));
          expected = expected * 31 + k;
          good(f.launch(i % 20 == 0 ? slow : hit, Args()(hits)(k)(1u), blocks, stream));
          expectedHits += k;
        }
        good(f.d.eventRecord(event, stream));
        Stream second = nullptr;
        good(f.d.streamCreate(&second));
        good(f.d.streamWaitEvent(second, event));
        good(f.launch(mix, Args()(x)(77u), 1, second));
        expected = expected * 31 + 77;
        good(f.d.memcpyDtoHAsync(host, x, 4, second));
        good(f.d.memcpyDtoHAsync(static_cast<char*>(host) + 4, hits, blocks * 4, second));
        good(f.d.free(x));  // all of it still queued
        good(f.d.free(hits));
        if (random() % 2) {
          good(f.d.streamSynchronize(second));
        } else {
          good(f.d.eventRecord(event, second));
          good(f.d.eventSynchronize(event));
        }
        good(f.d.streamDestroy(second));
        const uint32_t* values = static_cast<const uint32_t*>(host);
        wrong += values[0] != expected;
        for (uint32_t b = 0; b < blocks; ++b) wrong += values[1 + b] != expectedHits;
        good(f.d.hostFree(host));
        if (round % 16 == 0) good(f.d.deviceSynchronize());
      }
      good(f.d.eventDestroy(event));
      good(f.d.streamDestroy(stream));
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK_EQ(wrong.load(), 0);
}

TEST(stress_one_stream_from_many_threads) {
  Fixture f;
  Function hit = f.function("hit");
  DevicePtr x = f.malloc(16 * 4);
  constexpr int kThreads = 4, kLaunches = 3000;
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kLaunches; ++i) {
        wrong += f.launch(hit, Args()(x)(1u), 16) != 0;
        if (i % 500 == 0) wrong += f.d.streamSynchronize(f.stream) != 0;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK_EQ(wrong.load(), 0);
  for (uint32_t value : f.read(x, 16)) CHECK_EQ(value, uint32_t{kThreads * kLaunches});
}

TEST(stress_graphs_on_streams) {
  Fixture f;
  Function mix = f.function("mix");
  constexpr uint32_t kStreams = 5;
  DevicePtr x = f.malloc(kStreams * 4);
  std::vector<Stream> streams;
  std::vector<GraphExec> execs(kStreams);
  std::vector<uint32_t> expected(kStreams, 0);
  for (uint32_t s = 0; s < kStreams; ++s) {
    streams.push_back(f.newStream());
    Graph graph = f.capture([&] {
      for (uint32_t k = 0; k < 50; ++k) OK(f.launch(mix, Args()(x + 4 * s)(k)));
    });
    OK(f.d.graphInstantiate(&execs[s], graph));
    OK(f.d.graphDestroy(graph));
  }
  for (int round = 0; round < 200; ++round) {
    for (uint32_t s = 0; s < kStreams; ++s) {
      OK(f.d.graphLaunch(execs[s], streams[s]));
      for (uint32_t k = 0; k < 50; ++k) expected[s] = expected[s] * 31 + k;
    }
  }
  OK(f.d.deviceSynchronize());
  CHECK(f.read(x, kStreams) == expected);
}

TEST(stress_open_and_close) {
  for (int i = 0; i < 30; ++i) {
    Fixture f;
    DevicePtr x = f.malloc(4 * 100);
    for (int k = 0; k < i; ++k) OK(f.launch(f.function("hit"), Args()(x)(1u), 100));
    if (i % 3 == 0) OK(f.d.streamDestroy(f.stream));
  }
}

namespace hosttest {

void benchmark() {
  Fixture f;
  DeviceProperties p;
  OK(f.d.deviceProperties(0, &p));
  std::printf("%s, %s, %d threads\n", p.name.c_str(), p.arch.c_str(), p.multiprocessorCount);
  DevicePtr x = f.malloc(4 << 20);
  Function nop = f.function("nop"), hit = f.function("hit");
  const Args args = Args()(x)(1u)(uint64_t{5})(uint64_t{6});
  constexpr int kChain = 1000, kRepeats = 41;

  // Best and median of several chains: enqueueing alone, and until the last kernel is done.
  auto chain = [&](const char* name, Function function, uint32_t blocks, bool graph) {
    GraphExec exec = nullptr;
    if (graph) {
      OK(f.d.graphInstantiate(&exec, f.capture([&] {
        for (int i = 0; i < kChain; ++i) OK(f.launch(function, args, blocks));
      })));
    }
    std::vector<double> enqueue, total;
    for (int repeat = 0; repeat < kRepeats; ++repeat) {
      const double start = nowUs();
      if (graph) {
        OK(f.d.graphLaunch(exec, f.stream));
      } else {
        for (int i = 0; i < kChain; ++i) OK(f.launch(function, args, blocks));
      }
      enqueue.push_back((nowUs() - start) / (graph ? 1 : kChain) * 1000);
      OK(f.d.streamSynchronize(f.stream));
      total.push_back((nowUs() - start) / kChain * 1000);
    }
    std::sort(enqueue.begin(), enqueue.end());
    std::sort(total.begin(), total.end());
    std::printf("%-44s enqueue %7.0f ns (best %.0f), a kernel %7.0f ns (best %.0f)\n", name, enqueue[kRepeats / 2], enqueue[0],
                total[kRepeats / 2], total[0]);
  };
  chain("1,000 empty kernels, 1 block", nop, 1, false);
  chain("1,000 empty kernels, 1 block, graph", nop, 1, true);
  chain("1,000 empty kernels, 64 blocks", nop, 64, false);
  chain("1,000 empty kernels, 64 blocks, graph", nop, 64, true);
  chain("1,000 tiny kernels, 10,000 blocks, graph", hit, 10000, true);
  chain("1,000 tiny kernels, 200,000 blocks, graph", hit, 200000, true);

  // One kernel at a time: enqueue, run, return to the waiting thread.
  std::vector<double> round;
  for (int i = 0; i < 2000; ++i) {
    const double start = nowUs();
    OK(f.launch(nop, args));
    OK(f.d.streamSynchronize(f.stream));
    round.push_back(nowUs() - start);
  }
  std::sort(round.begin(), round.end());
  std::printf("launch and synchronise: median %.2f us, best %.2f us, p99 %.1f us\n", round[1000], round[0], round[1980]);

  // From enqueueing to the start of the kernel, with pauses that let the workers fall asleep or not.
  for (int pauseUs : {5, 15, 500}) {
    std::vector<double> delay;
    DevicePtr stamp = f.malloc(64);
    Event event = nullptr;
    OK(f.d.eventCreate(&event));
    volatile uint32_t* seen = reinterpret_cast<volatile uint32_t*>(stamp);
    Function mix = f.function("mix");
    for (int i = 0; i < 500; ++i) {
      for (const double until = nowUs() + pauseUs; nowUs() < until;) {
      }
      const uint32_t before = *seen;
      const double start = nowUs();
      OK(f.launch(mix, Args()(stamp)(12345u)));
      while (*seen == before && nowUs() - start < 100000) {
      }
      delay.push_back(nowUs() - start);
    }
    std::sort(delay.begin(), delay.end());
    std::printf("from enqueue to the result being visible, %3d us apart: median %.2f us, best %.2f us, p99 %.1f us\n", pauseUs, delay[250],
                delay[0], delay[495]);
    OK(f.d.eventDestroy(event));
  }

  const size_t bytes = size_t{256} << 20;
  DevicePtr a = f.malloc(bytes), b = f.malloc(bytes);
  double best = 1e30;
  for (int i = 0; i < 5; ++i) {
    const double start = nowUs();
    OK(f.d.memcpyDtoDAsync(b, a, bytes, f.stream));
    OK(f.d.streamSynchronize(f.stream));
    best = std::min(best, nowUs() - start);
  }
  std::printf("copy of 256 MiB: %.1f GB/s read and written\n", 2e-3 * static_cast<double>(bytes) / best);
}

}  // namespace hosttest
