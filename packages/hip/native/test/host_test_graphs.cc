// Capture, replay, update, forks and joins, and captures that fail.
#include "host_test.h"

using namespace hosttest;
using namespace xhip::host;

TEST(a_graph_replays_in_order) {
  Fixture f;
  Function mix = f.function("mix"), addOne = f.function("add_one");
  const uint32_t n = 1000;
  DevicePtr a = f.malloc(n * 4), b = f.malloc(n * 4), x = f.malloc(4);
  void* host = nullptr;
  OK(f.d.hostMalloc(&host, n * 4));
  std::vector<uint32_t> source(n, 41);
  Graph graph = f.capture([&] {
    OK(f.d.memcpyHtoDAsync(a, source.data(), n * 4, f.stream));
    OK(f.launch(addOne, Args()(uint64_t{n})(a)(b), 8));
    OK(f.d.memsetD8Async(a, 0, n * 4, f.stream));
    OK(f.d.memcpyDtoDAsync(a, b, n * 2, f.stream));
    OK(f.launch(mix, Args()(x)(3u)));
    OK(f.launch(mix, Args()(x)(4u)));
    OK(f.d.memcpyDtoHAsync(host, b, n * 4, f.stream));
  });
  std::fill(source.begin(), source.end(), 0u);
  CHECK_EQ(f.read(x), 0u);  // nothing ran
  GraphExec exec = nullptr;
  OK(f.d.graphInstantiate(&exec, graph));
  OK(f.d.graphDestroy(graph));
  CHECK_EQ(f.d.graphDestroy(graph), kInvalidHandle);
  uint32_t expected = 0;
  for (int i = 0; i < 100; ++i) {
    OK(f.d.graphLaunch(exec, f.stream));
    expected = (expected * 31 + 3) * 31 + 4;
  }
  CHECK_EQ(f.read(x), expected);
  CHECK_EQ(static_cast<uint32_t*>(host)[n - 1], 42u);
  const std::vector<uint32_t> values = f.read(a, n);
  CHECK_EQ(values[0], 42u);
  CHECK_EQ(values[n - 1], 0u);
  OK(f.d.graphLaunch(exec, f.stream));
  OK(f.d.graphExecDestroy(exec));  // while queued
  CHECK_EQ(f.d.graphLaunch(exec, f.stream), kInvalidHandle);
  OK(f.d.streamSynchronize(f.stream));
}

TEST(a_graph_is_updated) {
  Fixture f;
  Function mix = f.function("mix"), slow = f.function("slow_mix");
  DevicePtr x = f.malloc(4), y = f.malloc(4);
  auto make = [&](Function function, DevicePtr to, uint32_t k, bool second) {
    return f.capture([&] {
      OK(f.launch(function, Args()(to)(k)(100u)));
      if (second) OK(f.d.memsetD8Async(y, static_cast<uint8_t>(k), 4, f.stream));
    });
  };
  Graph first = make(slow, x, 1, true), changed = make(slow, x, 2, true);
  Graph otherFunction = make(mix, x, 2, true), shorter = make(slow, x, 2, false);
  GraphExec exec = nullptr;
  OK(f.d.graphInstantiate(&exec, first));
  bool updated = false;
  uint32_t expected = 0;
  for (int i = 0; i < 50; ++i) {
    OK(f.d.graphLaunch(exec, f.stream));  // queued with the arguments of now
    OK(f.d.graphExecUpdate(exec, i % 2 == 0 ? changed : first, &updated));
    CHECK(updated);
    expected = expected * 31 + 1 + static_cast<uint32_t>(i % 2);
  }
  CHECK_EQ(f.read(x), expected);
  CHECK_EQ(f.read(y), 0x02020202u);
  for (Graph graph : {otherFunction, shorter}) {
    updated = true;
    OK(f.d.graphExecUpdate(exec, graph, &updated));
    CHECK(!updated);
  }
  OK(f.d.graphLaunch(exec, f.stream));
  CHECK_EQ(f.read(x), expected * 31 + 1);
  CHECK_EQ(f.d.graphExecUpdate(exec, exec, &updated), kInvalidHandle);
  CHECK_EQ(f.d.graphExecUpdate(nullptr, first, &updated), kInvalidHandle);
  CHECK_EQ(f.d.graphInstantiate(&exec, f.stream), kInvalidHandle);
}

TEST(a_graph_keeps_its_module_but_not_its_memory) {
  Fixture f;
  Module second = nullptr;
  Function mix = nullptr;
  OK(f.d.moduleLoad(&second, kernelImage().data(), kernelImage().size()));
  OK(f.d.moduleGetFunction(&mix, second, "mix"));
  DevicePtr x = f.malloc(4), scratch = f.malloc(64);
  Graph withCopy = f.capture([&] { OK(f.d.memsetD8Async(scratch, 1, 64, f.stream)); });
  Graph graph = f.capture([&] { OK(f.launch(mix, Args()(x)(5u))); });
  GraphExec exec = nullptr, copyExec = nullptr;
  OK(f.d.graphInstantiate(&exec, graph));
  OK(f.d.graphInstantiate(&copyExec, withCopy));
  OK(f.d.moduleUnload(second));
  OK(f.d.graphLaunch(exec, f.stream));
  CHECK_EQ(f.read(x), 5u);
  OK(f.d.graphLaunch(copyExec, f.stream));
  OK(f.d.free(scratch));
  CHECK_EQ(f.d.graphLaunch(copyExec, f.stream), kInvalidValue);
  OK(f.d.graphLaunch(exec, f.stream));
  OK(f.d.streamSynchronize(f.stream));
}

TEST(capture_forks_and_joins) {
  Fixture f;
  Function mix = f.function("mix");
  Stream side = f.newStream();
  DevicePtr x = f.malloc(4);
  Event fork = nullptr, join = nullptr, outside = nullptr;
  OK(f.d.eventCreate(&fork));
  OK(f.d.eventCreate(&join));
  OK(f.d.eventCreate(&outside));
  Graph graph = f.capture([&] {
    OK(f.launch(mix, Args()(x)(1u)));
    OK(f.d.eventRecord(fork, f.stream));
    OK(f.d.streamWaitEvent(side, fork));
    OK(f.launch(mix, Args()(x)(2u), 1, side));
    OK(f.d.eventRecord(join, side));
    OK(f.d.streamWaitEvent(f.stream, join));
    OK(f.launch(mix, Args()(x)(3u)));
  });
  GraphExec exec = nullptr;
  OK(f.d.graphInstantiate(&exec, graph));
  OK(f.d.graphLaunch(exec, side));  // the side stream is itself again
  OK(f.d.streamSynchronize(side));
  CHECK_EQ(f.read(x), (1u * 31 + 2) * 31 + 3);
  bool done = false;
  CHECK_EQ(f.d.eventQuery(fork, &done), kCapturedEvent);
  CHECK_EQ(f.d.streamWaitEvent(side, join), kCapturedEvent);

  // Not joined back: no graph, and both streams are usable.
  Graph none = f.stream;
  OK(f.d.streamBeginCapture(f.stream));
  OK(f.d.eventRecord(fork, f.stream));
  OK(f.d.streamWaitEvent(side, fork));
  OK(f.launch(mix, Args()(x)(2u), 1, side));
  CHECK_EQ(f.d.streamEndCapture(f.stream, &none), kStreamCaptureUnjoined);
  CHECK(none == nullptr);
  OK(f.d.memsetD8Async(x, 0, 4, f.stream));
  OK(f.d.streamSynchronize(f.stream));
  OK(f.launch(mix, Args()(x)(9u), 1, side));
  OK(f.d.streamSynchronize(side));
  CHECK_EQ(f.read(x), 9u);

  // An event from outside, and the end on the wrong stream.
  OK(f.d.eventRecord(outside, side));
  OK(f.d.streamBeginCapture(f.stream));
  CHECK_EQ(f.d.streamWaitEvent(f.stream, outside), kStreamCaptureIsolation);
  CHECK_EQ(f.launch(mix, Args()(x)(9u)), kStreamCaptureInvalidated);
  CHECK_EQ(f.d.streamEndCapture(f.stream, &none), kStreamCaptureInvalidated);
  OK(f.d.streamBeginCapture(f.stream));
  OK(f.d.eventRecord(fork, f.stream));
  OK(f.d.streamWaitEvent(side, fork));
  CHECK_EQ(f.d.streamEndCapture(side, &none), kStreamCaptureUnmatched);
  CHECK_EQ(f.d.streamEndCapture(f.stream, &none), kStreamCaptureInvalidated);
  // Two captures cannot merge.
  OK(f.d.streamBeginCapture(f.stream));
  OK(f.d.streamBeginCapture(side));
  OK(f.d.eventRecord(fork, f.stream));
  CHECK_EQ(f.d.streamWaitEvent(side, fork), kStreamCaptureMerge);
  CHECK_EQ(f.d.streamEndCapture(side, &none), kStreamCaptureInvalidated);
  OK(f.d.streamEndCapture(f.stream, &none));
}

TEST(failed_captures_leave_the_stream_usable) {
  Fixture f;
  Function mix = f.function("mix");
  DevicePtr x = f.malloc(4);
  Graph graph = nullptr;
  CHECK_EQ(f.d.streamEndCapture(f.stream, &graph), kIllegalState);
  OK(f.d.streamBeginCapture(f.stream));
  CHECK_EQ(f.d.streamBeginCapture(f.stream), kIllegalState);
  CHECK_EQ(f.d.deviceSynchronize(), kStreamCaptureUnsupported);
  uint32_t local = 0;
  CHECK_EQ(f.d.memcpyDtoHAsync(&local, x, 4, f.stream), kStreamCaptureUnsupported);
  OK(f.launch(mix, Args()(x)(7u)));  // refusals before the stream is reached lose nothing
  Stream other = f.newStream();
  OK(f.launch(mix, Args()(x)(1u), 1, other));
  OK(f.d.streamSynchronize(other));  // other streams stay usable
  DevicePtr meanwhile = 0;
  OK(f.d.malloc(&meanwhile, 100));
  OK(f.d.free(meanwhile));
  CHECK_EQ(f.d.streamSynchronize(f.stream), kStreamCaptureUnsupported);
  CHECK_EQ(f.d.streamEndCapture(f.stream, &graph), kStreamCaptureInvalidated);
  CHECK(graph == nullptr);
  CHECK_EQ(f.read(x), 1u);
  OK(f.launch(mix, Args()(x)(2u)));
  CHECK_EQ(f.read(x), 33u);
  // A stream destroyed in the middle of its capture, and one closed with the context.
  OK(f.d.streamBeginCapture(other));
  OK(f.launch(mix, Args()(x)(2u), 1, other));
  OK(f.d.streamDestroy(other));
  OK(f.d.streamBeginCapture(f.stream));
  OK(f.launch(mix, Args()(x)(2u)));
}

TEST(graphs_nest_and_may_be_empty) {
  Fixture f;
  DevicePtr x = f.malloc(4);
  Graph inner = f.capture([&] { OK(f.launch(f.function("mix"), Args()(x)(1u))); });
  GraphExec innerExec = nullptr, outerExec = nullptr, emptyExec = nullptr;
  OK(f.d.graphInstantiate(&innerExec, inner));
  Graph outer = f.capture([&] {
    for (int i = 0; i < 3; ++i) OK(f.d.graphLaunch(innerExec, f.stream));
  });
  OK(f.d.graphInstantiate(&outerExec, outer));
  OK(f.d.graphInstantiate(&emptyExec, f.capture([] {})));
  OK(f.d.graphLaunch(emptyExec, f.stream));
  OK(f.d.graphLaunch(outerExec, f.stream));
  CHECK_EQ(f.read(x), (1u * 31 + 1) * 31 + 1);
  // Large uploads are kept by the graph.
  const size_t n = 3000000;
  DevicePtr big = f.malloc(n * 4);
  GraphExec bigExec = nullptr;
  {
    std::vector<uint32_t> source(n);
    for (size_t i = 0; i < n; ++i) source[i] = static_cast<uint32_t>(i);
    OK(f.d.graphInstantiate(&bigExec, f.capture([&] { OK(f.d.memcpyHtoDAsync(big, source.data(), n * 4, f.stream)); })));
  }
  OK(f.d.graphLaunch(bigExec, f.stream));
  const std::vector<uint32_t> values = f.read(big, n);
  CHECK_EQ(values[n - 1], static_cast<uint32_t>(n - 1));
  CHECK_EQ(values[12345], 12345u);
}
