// Failures on request, for tests (faulty_driver.h). @x/hip exports none of it: its own and its dependants' tests reach the
// addon through src/addon.ts.
#include "addon.h"

namespace xhip {
namespace {

FaultyDriver& driverArg(const Napi::CallbackInfo& info) {
  return addonOf(info.Env()).faulty(platformArg(info, 0));
}

// planFault(platform, entry, nth, status, reach): the nth call of an entry point from now on fails with `status`; with reach 1 all
// later ones of that entry point do, with 2 all later ones of any. An empty name plans none. Counts begin anew.
Napi::Value planFault(const Napi::CallbackInfo& info) {
  FaultyDriver& driver = driverArg(info);
  const std::string name = text(info, 1);
  Fault fault;
  fault.nth = u64(info, 2);
  fault.status = Status(u32(info, 3));
  fault.reach = Fault::Reach(u32(info, 4));
  if (!name.empty()) {
    for (fault.entry = 0; fault.entry < kEntryCount && name != kEntryNames[fault.entry];) fault.entry++;
    if (fault.entry == kEntryCount) invalidArgument("", "the driver table has no entry point '" + name + "'");
    if (fault.nth == 0 || fault.status == 0 || fault.reach > Fault::kAll) {
      invalidArgument("", "a fault is of a call from 1 on, has a status other than 0 and a reach from 0 to 2");
    }
  }
  driver.plan(fault);
  return info.Env().Undefined();
}

// faultState(platform) => { hits, counts: { malloc: 3, ... }, live: { streams: 1, ... } }, without zeros
Napi::Value faultState(const Napi::CallbackInfo& info) {
  Napi::Env env = info.Env();
  FaultyDriver& driver = driverArg(info);
  Napi::Object counts = Napi::Object::New(env);
  for (uint32_t i = 0; i < kEntryCount; i++) {
    if (driver.count(i) > 0) counts.Set(kEntryNames[i], double(driver.count(i)));
  }
  Napi::Object live = Napi::Object::New(env);
  for (uint32_t i = 0; i < kLiveCount; i++) {
    if (driver.live(i) != 0) live.Set(kLiveNames[i], double(driver.live(i)));
  }
  Napi::Object out = Napi::Object::New(env);
  out.Set("hits", double(driver.hits()));
  out.Set("counts", counts);
  out.Set("live", live);
  return out;
}

}  // namespace

void exportFaults(Napi::Env env, Napi::Object exports) {
  exports.Set("planFault", Napi::Function::New<guarded<planFault>>(env));
  exports.Set("faultState", Napi::Function::New<guarded<faultState>>(env));
}

}  // namespace xhip
