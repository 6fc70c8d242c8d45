// The fibers behind lanes.h.
#include "lanes.h"

#include <sched.h>
#include <sys/mman.h>

#include <cstdlib>
#include <vector>

namespace emulated {

thread_local constinit Lane* lane = nullptr;
thread_local constinit const Launch* launch = nullptr;
thread_local constinit uint32_t blockId[3] = {};

namespace {

constexpr size_t STACK_BYTES = size_t{1} << 20;

thread_local std::vector<Lane> lanes;
thread_local std::vector<char*> freeStacks;
thread_local void* scheduler = nullptr;
// Every other block goes through its lanes backwards, so that waves that race give different results.
thread_local bool backwards = false;

// Keeps the registers that a call must keep on the stack it leaves, and goes on with another.
__attribute__((naked, noinline)) void switchTo(void** leave, void* enter) {
  asm("pushq %rbp\n pushq %rbx\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
      "movq %rsp, (%rdi)\n movq %rsi, %rsp\n"
      "popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbx\n popq %rbp\n ret");
}

void runLane() {
  launch->kernel(launch->args);
  lane->state = State::Done;
  switchTo(&lane->sp, scheduler);
  std::abort();
}

char* takeStack() {
  if (!freeStacks.empty()) {
    char* stack = freeStacks.back();
    freeStacks.pop_back();
    return stack;
  }
  void* memory = mmap(nullptr, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  return static_cast<char*>(memory);
}

/** The stack pointer with which the lane goes on, or begins. */
void* enter(Lane& next) {
  if (!next.stack) {
    next.stack = takeStack();
    void** top = reinterpret_cast<void**>(next.stack + STACK_BYTES);
    top[-1] = nullptr;
    top[-2] = reinterpret_cast<void*>(&runLane);
    next.sp = top - 8;  // six registers below the address to return to
  }
  lane = &next;
  return next.sp;
}

/** The first lane after `index`, in the order of this block, that can go on; null if none can. */
Lane* readyAfter(uint32_t index) {
  const uint32_t count = uint32_t(lanes.size());
  if (backwards) {
    while (index-- > 0)
      if (lanes[index].state == State::Ready) return &lanes[index];
  } else {
    while (++index < count)
      if (lanes[index].state == State::Ready) return &lanes[index];
  }
  return nullptr;
}

/** Lets the lanes of a wave that wait at the first of its operations go on; false if none waits at one, or one polls memory. */
bool meet(size_t first) {
  const Lane* at = nullptr;
  const size_t end = first + WAVE < lanes.size() ? first + WAVE : lanes.size();
  for (size_t i = first; i < end; ++i)
    if (lanes[i].state == State::Ready) return false;
  for (size_t i = first; i < end; ++i)
    if (lanes[i].state == State::AtWave && (!at || lanes[i].site < at->site)) at = &lanes[i];
  if (!at) return false;
  Lane* taking[WAVE] = {};
  const void* site = at->site;
  for (size_t i = first; i < end; ++i)
    if (lanes[i].state == State::AtWave && lanes[i].site == site) taking[i - first] = &lanes[i];
  at->operation(taking);
  for (Lane* one : taking)
    if (one) one->state = State::Ready;
  return true;
}

void runBlock() {
  for (Lane& one : lanes) one.state = State::Ready;
  for (;;) {
    // A lane that waits hands over to the next one itself; one that is done comes back here.
    for (Lane* next = readyAfter(backwards ? uint32_t(lanes.size()) : ~0u); next;) {
      switchTo(&scheduler, enter(*next));
      next = nullptr;
      if (lane->state != State::Done) continue;
      freeStacks.push_back(lane->stack);
      lane->stack = nullptr;
      next = readyAfter(lane->index);
    }
    bool going = false;
    for (size_t first = 0; first < lanes.size(); first += WAVE) going |= meet(first);
    if (going) continue;
    // What a lane that polls memory waits for comes from another thread; those that wait for the lane go on waiting.
    if (readyAfter(backwards ? uint32_t(lanes.size()) : ~0u)) {
      sched_yield();
      continue;
    }
    for (Lane& one : lanes)
      if (one.state == State::AtBlock) going = true, one.state = State::Ready;
    if (!going) return;
  }
}

}  // namespace

void wait(State state) {
  Lane* self = lane;
  self->state = state;
  Lane* next = readyAfter(self->index);
  switchTo(&self->sp, next ? enter(*next) : scheduler);
}

}  // namespace emulated

using namespace emulated;

/** Runs every block of a launch of a module's kernel with its packed arguments. */
extern "C" __attribute__((visibility("default"))) void emulatedRun(void (*kernel)(const unsigned char*), const unsigned char* args,
                                                                   const uint32_t* grid, const uint32_t* block) {
  const Launch work{kernel, args, {grid[0], grid[1], grid[2]}, {block[0], block[1], block[2]}};
  lanes.resize(size_t{block[0]} * block[1] * block[2]);
  for (uint32_t i = 0; i < lanes.size(); ++i) {
    lanes[i].index = i;
    lanes[i].id[0] = i % block[0];
    lanes[i].id[1] = i / block[0] % block[1];
    lanes[i].id[2] = i / block[0] / block[1];
  }
  launch = &work;
  for (blockId[2] = 0; blockId[2] < grid[2]; ++blockId[2])
    for (blockId[1] = 0; blockId[1] < grid[1]; ++blockId[1])
      for (blockId[0] = 0; blockId[0] < grid[0]; ++blockId[0], backwards = !backwards) runBlock();
}
