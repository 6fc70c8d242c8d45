// Streams, events, capture and graphs: the calls that do not wait. Waiting is in bind_waits.cc.
#include "addon.h"

namespace xhip {
namespace {

Napi::Value number(const Napi::CallbackInfo& info, double value) { return Napi::Number::New(info.Env(), value); }

Napi::Value streamCreate(const Napi::CallbackInfo& info) { return number(info, deviceArg(info).createStream()); }

Napi::Value streamDestroy(const Napi::CallbackInfo& info) {
  deviceArg(info).destroyStream(u32(info, 1));
  return Napi::Value();
}

// streamWaitEvent(device, stream, event)
Napi::Value streamWaitEvent(const Napi::CallbackInfo& info) {
  Device& device = deviceArg(info);
  device.enter();
  Stream stream = device.stream(u32(info, 1));
  EventEntry& event = device.event(u32(info, 2));
  device.check(Call::StreamWaitEvent, device.table().streamWaitEvent(stream, event.handle));
  return Napi::Value();
}

Napi::Value beginCapture(const Napi::CallbackInfo& info) {
  Device& device = deviceArg(info);
  device.enter();
  Stream stream = device.idleStream(u32(info, 1), "beginCapture()");
  device.check(Call::StreamBeginCapture, device.table().streamBeginCapture(stream));
  return Napi::Value();
}

// endCapture(device, stream) => graph
Napi::Value endCapture(const Napi::CallbackInfo& info) {
  Device& device = deviceArg(info);
  device.enter();
  Stream stream = device.stream(u32(info, 1));
  if (!device.counting().capturing(stream)) {
    invalidArgument(device.platformText(), "endCapture() without beginCapture() on this stream. Begin a capture first");
  }
  Graph graph = nullptr;
  Status status = device.table().streamEndCapture(stream, &graph);
  device.check(Call::StreamEndCapture, status);
  return number(info, device.graphs.add(graph));
}

Napi::Value eventCreate(const Napi::CallbackInfo& info) { return number(info, deviceArg(info).createEvent()); }

Napi::Value eventDestroy(const Napi::CallbackInfo& info) {
  deviceArg(info).destroyEvent(u32(info, 1));
  return Napi::Value();
}

// eventRecord(device, event, stream)
Napi::Value eventRecord(const Napi::CallbackInfo& info) {
  Device& device = deviceArg(info);
  device.enter();
  EventEntry& event = device.event(u32(info, 1));
  Stream stream = device.stream(u32(info, 2));
  device.check(Call::EventRecord, device.table().eventRecord(event.handle, stream));
  event.recorded = true;
  return Napi::Value();
}

Napi::Value eventQuery(const Napi::CallbackInfo& info) {
  Device& device = deviceArg(info);
  device.enter();
  bool done = false;
  device.check(Call::EventQuery, device.table().eventQuery(device.event(u32(info, 1)).handle, &done));
  return Napi::Boolean::New(info.Env(), done);
}

// eventElapsed(device, start, end) => milliseconds
Napi::Value eventElapsed(const Napi::CallbackInfo& info) {
  Device& device = deviceArg(info);
  device.enter();
  EventEntry& start = device.event(u32(info, 1));
  EventEntry& end = device.event(u32(info, 2));
  if (!start.recorded || !end.recorded) {
    invalidArgument(device.platformText(), "elapsedMs() of an event that was never recorded. Record both events first");
  }
  float milliseconds = 0;
  device.check(Call::EventElapsed, device.table().eventElapsedMs(&milliseconds, start.handle, end.handle),
               "both events must have passed: await synchronize() of the later one");
  return number(info, milliseconds);
}

// graphInstantiate(device, graph) => exec
Napi::Value graphInstantiate(const Napi::CallbackInfo& info) {
  Device& device = deviceArg(info);
  device.enter();
  GraphExec exec = nullptr;
  device.check(Call::GraphInstantiate, device.table().graphInstantiate(&exec, device.graph(u32(info, 1))));
  return number(info, device.graphExecs.add(exec));
}

Napi::Value graphDestroy(const Napi::CallbackInfo& info) {
  deviceArg(info).destroyGraph(u32(info, 1));
  return Napi::Value();
}

// execUpdate(device, exec, graph) => whether the instance took the new graph
Napi::Value execUpdate(const Napi::CallbackInfo& info) {
  Device& device = deviceArg(info);
  device.enter();
  bool updated = false;
  GraphExec exec = device.graphExec(u32(info, 1));
  Graph graph = device.graph(u32(info, 2));
  device.check(Call::GraphExecUpdate, device.table().graphExecUpdate(exec, graph, &updated));
  return Napi::Boolean::New(info.Env(), updated);
}

// execLaunch(device, exec, stream)
Napi::Value execLaunch(const Napi::CallbackInfo& info) {
  Device& device = deviceArg(info);
  device.enter();
  GraphExec exec = device.graphExec(u32(info, 1));
  Stream stream = device.idleStream(u32(info, 2), "a graph launch");
  device.check(Call::GraphLaunch, device.table().graphLaunch(exec, stream),
               device.counting().blocking() ? "X_LAUNCH_BLOCKING=1: a kernel of this graph failed" : "");
  return Napi::Value();
}

Napi::Value execDestroy(const Napi::CallbackInfo& info) {
  deviceArg(info).destroyGraphExec(u32(info, 1));
  return Napi::Value();
}

}  // namespace

void exportStreams(Napi::Env env, Napi::Object exports) {
  exports.Set("streamCreate", Napi::Function::New<guarded<streamCreate>>(env));
  exports.Set("streamDestroy", Napi::Function::New<guarded<streamDestroy>>(env));
  exports.Set("streamWaitEvent", Napi::Function::New<guarded<streamWaitEvent>>(env));
  exports.Set("beginCapture", Napi::Function::New<guarded<beginCapture>>(env));
  exports.Set("endCapture", Napi::Function::New<guarded<endCapture>>(env));
  exports.Set("eventCreate", Napi::Function::New<guarded<eventCreate>>(env));
  exports.Set("eventDestroy", Napi::Function::New<guarded<eventDestroy>>(env));
  exports.Set("eventRecord", Napi::Function::New<guarded<eventRecord>>(env));
  exports.Set("eventQuery", Napi::Function::New<guarded<eventQuery>>(env));
  exports.Set("eventElapsed", Napi::Function::New<guarded<eventElapsed>>(env));
  exports.Set("graphInstantiate", Napi::Function::New<guarded<graphInstantiate>>(env));
  exports.Set("graphDestroy", Napi::Function::New<guarded<graphDestroy>>(env));
  exports.Set("execUpdate", Napi::Function::New<guarded<execUpdate>>(env));
  exports.Set("execLaunch", Napi::Function::New<guarded<execLaunch>>(env));
  exports.Set("execDestroy", Napi::Function::New<guarded<execDestroy>>(env));
}

}  // namespace xhip
