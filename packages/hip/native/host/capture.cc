// The bookkeeping of a capture and the comparison behind a graph's update.
#include "capture.h"

#include <algorithm>

namespace xhip::host {

uint32_t Capture::join(const Clock& after) {
  clocks.push_back(after);
  clocks.back().resize(clocks.size(), 0);
  return static_cast<uint32_t>(clocks.size() - 1);
}

void Capture::advance(uint32_t stream) {
  Clock& clock = clocks[stream];
  if (clock.size() <= stream) clock.resize(stream + 1, 0);
  ++clock[stream];
}

void Capture::merge(uint32_t stream, const Clock& after) {
  Clock& clock = clocks[stream];
  if (clock.size() < after.size()) clock.resize(after.size(), 0);
  for (size_t i = 0; i < after.size(); ++i) clock[i] = std::max(clock[i], after[i]);
}

bool Capture::joined() const {
  for (size_t i = 1; i < clocks.size(); ++i) {
    const uint64_t recorded = clocks[i].size() > i ? clocks[i][i] : 0;
    const uint64_t known = clocks[0].size() > i ? clocks[0][i] : 0;
    if (known < recorded) return false;
  }
  return true;
}

bool sameShape(const Program& before, const Program& next) {
  if (before.count != next.count) return false;
  const Record* a = before.begin();
  const Record* b = next.begin();
  for (; a != before.end(); a = nextRecord(a), b = nextRecord(b)) {
    if (a->kind != b->kind) return false;
    if (a->kind == RecordKind::kKernel) {
      auto* left = static_cast<const KernelRecord*>(a);
      auto* right = static_cast<const KernelRecord*>(b);
      if (left->kernel != right->kernel || left->bytes != right->bytes) return false;
    }
    if (a->kind == RecordKind::kTask && static_cast<const TaskRecord*>(a)->run != static_cast<const TaskRecord*>(b)->run) return false;
    if (a->kind == RecordKind::kCopy) {
      // An upload from the host and a copy on the device are different kinds of node.
      if ((static_cast<const CopyRecord*>(a)->source == nullptr) != (static_cast<const CopyRecord*>(b)->source == nullptr)) return false;
    }
  }
  return true;
}

}  // namespace xhip::host
