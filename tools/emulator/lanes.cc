// The fibers behind lanes.h.
#include "lanes.h"

#include "matrix.h"

#include <sched.h>
#include <sys/mman.h>

#include <cstdlib>
#include <mutex>
#include <vector>

namespace emulated {

thread_local constinit Lane* lane = nullptr;
thread_local constinit const Launch* launch = nullptr;
thread_local constinit uint32_t blockId[3] = {};

namespace {

// Three times what the deepest kernel takes at -O0. Stacks lie together in a few huge pages, since going from lane to lane would
// otherwise wait for the address of a page each time; an odd number of the cache's lines apart, so that they share none.
constexpr size_t STACK_BYTES = 2177 * 64, HUGE_PAGE = size_t{1} << 21;

thread_local std::vector<Lane> allLanes;
thread_local constinit Lane* lanes EMULATED_HERE = nullptr;
thread_local constinit uint32_t count EMULATED_HERE = 0;
// The lanes of the wave that runs: those from `first` on and before `end`.
thread_local constinit uint32_t first EMULATED_HERE = 0, end EMULATED_HERE = 0;
// A thread leaves its stacks to the next one that begins: huge pages take long to be cleared.
std::mutex leftMutex;
std::vector<char*>& leftStacks = *new std::vector<char*>;
struct FreeStacks : std::vector<char*> {
  ~FreeStacks() {
    const std::lock_guard<std::mutex> lock(leftMutex);
    leftStacks.insert(leftStacks.end(), begin(), end());
  }
};
thread_local FreeStacks freeStacks;
thread_local constinit void* scheduler EMULATED_HERE = nullptr;
// Every other block goes through its waves and their lanes backwards, so that waves that race give different results.
thread_local constinit bool backwards EMULATED_HERE = false;

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
  if (freeStacks.empty()) {
    const std::lock_guard<std::mutex> lock(leftMutex);
    freeStacks.swap(leftStacks);
  }
  if (freeStacks.empty()) {
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void* memory = mmap(nullptr, 2 * HUGE_PAGE, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    char* page = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(memory) + HUGE_PAGE - 1) & -HUGE_PAGE);
    madvise(page, HUGE_PAGE, MADV_HUGEPAGE);
    for (size_t at = 0; at + STACK_BYTES <= HUGE_PAGE; at += STACK_BYTES) freeStacks.push_back(page + at);
  }
  char* stack = freeStacks.back();
  freeStacks.pop_back();
  return stack;
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
  // What the lane after this one will need first.
  const uint32_t after = next.index + (backwards ? -1u : 1u);
  if (after < count) __builtin_prefetch(lanes[after].sp);
  return next.sp;
}

/** The first lane of the wave after `index`, in the order of this block, that can go on; null if none can. */
Lane* readyAfter(uint32_t index) {
  if (backwards) {
    while (index-- > first)
      if (lanes[index].state == State::Ready) return &lanes[index];
  } else {
    while (++index < end)
      if (lanes[index].state == State::Ready) return &lanes[index];
  }
  return nullptr;
}

/** Gives each lane of the wave that can go on its turn. */
void runWave() {
  // A lane that waits hands over to the next one itself; one that is done comes back here.
  for (Lane* next = readyAfter(backwards ? end : first - 1); next;) {
    switchTo(&scheduler, enter(*next));
    next = nullptr;
    if (lane->state != State::Done) continue;
    freeStacks.push_back(lane->stack);
    lane->stack = nullptr;
    next = readyAfter(lane->index);
  }
}

/** Lets the lanes of the wave that wait at the first of its operations go on; false if none waits at one, or one polls memory. */
bool meet() {
  const Lane* at = nullptr;
  for (uint32_t i = first; i < end; ++i)
    if (lanes[i].state == State::Ready) return false;
  for (uint32_t i = first; i < end; ++i)
    if (lanes[i].state == State::AtWave && (!at || lanes[i].site < at->site)) at = &lanes[i];
  if (!at) return false;
  Lane* taking[WAVE] = {};
  const void* site = at->site;
  for (uint32_t i = first; i < end; ++i)
    if (lanes[i].state == State::AtWave && lanes[i].site == site) taking[i - first] = &lanes[i];
  at->operation(taking);
  for (Lane* one : taking)
    if (one) one->state = State::Ready;
  return true;
}

/**
 * A wave goes on until its lanes wait for the block, so that its stacks stay in the cache, and no wave is between two barriers
 * as far as another: what lacks a barrier goes wrong.
 */
void runBlock() {
  const uint32_t waves = (count + WAVE - 1) / WAVE;
  for (uint32_t i = 0; i < count; ++i) lanes[i].state = State::Ready;
  for (;;) {
    for (uint32_t i = 0; i < waves; ++i) {
      first = (backwards ? waves - 1 - i : i) * WAVE;
      end = first + WAVE < count ? first + WAVE : count;
      do runWave();
      while (meet());
    }
    bool polling = false, going = false;
    for (uint32_t i = 0; i < count; ++i) polling |= lanes[i].state == State::Ready;
    // What a lane that polls memory waits for may come from another thread; those that wait for the lane go on waiting.
    if (polling) {
      sched_yield();
      continue;
    }
    for (uint32_t i = 0; i < count; ++i)
      if (lanes[i].state == State::AtBlock) going = true, lanes[i].state = State::Ready;
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

void waveBarrier() {
  together([](Lane* const*) {}, nullptr, __builtin_return_address(0));
}

namespace {
struct Vote {
  bool own;
  unsigned long long all;
};
struct Permute {
  int address, value, result;
};
}  // namespace

unsigned long long ballot(bool v) {
  Vote own{v, 0};
  together(
      [](Lane* const* lanes) {
        unsigned long long all = 0;
        for (uint32_t i = 0; i < WAVE; ++i)
          if (lanes[i] && static_cast<Vote*>(lanes[i]->data)->own) all |= 1ull << i;
        for (uint32_t i = 0; i < WAVE; ++i)
          if (lanes[i]) static_cast<Vote*>(lanes[i]->data)->all = all;
      },
      &own, __builtin_return_address(0));
  return own.all;
}

int permute(int address, int value) {
  Permute own{address, value, 0};
  together(
      [](Lane* const* lanes) {
        for (uint32_t i = 0; i < WAVE; ++i) {
          if (!lanes[i]) continue;
          Permute& one = *static_cast<Permute*>(lanes[i]->data);
          const Lane* from = lanes[uint32_t(one.address) / 4 % WAVE];
          one.result = from ? static_cast<Permute*>(from->data)->value : 0x7fbadbad;
        }
      },
      &own, __builtin_return_address(0));
  return own.result;
}

template <class E, uint32_t EACH, uint32_t GROUPS, uint32_t ROW, uint32_t GROUP_ROW>
void multiply(Lane* const* lanes) {
  constexpr uint32_t DEPTH = EACH * GROUPS;
  typedef typename E::Sum Sum;
  Sum left[16][DEPTH], right[DEPTH][16], sums[16][16];
  const auto of = [&](uint32_t lane) -> const Multiply& { return *static_cast<const Multiply*>(lanes[lane]->data); };
  // Matrix instructions ignore which lanes are active.
  for (uint32_t lane = 0; lane < WAVE; ++lane)
    if (!lanes[lane]) std::abort();
  for (uint32_t g = 0; g < GROUPS; ++g)
    for (uint32_t i = 0; i < 16; ++i)
      for (uint32_t e = 0; e < EACH; ++e) {
        left[i][g * EACH + e] = E::at(of(16 * g + i).a, e);
        right[g * EACH + e][i] = E::at(of(16 * g + i).b, e);
      }
  const auto each = [&](auto&& element) {
    for (uint32_t lane = 0; lane < WAVE; ++lane)
      for (uint32_t i = 0; i < 256 / WAVE; ++i)
        element(static_cast<Sum*>(of(lane).c)[i], sums[i * ROW + lane / 16 * GROUP_ROW][lane % 16]);
  };
  each([](Sum& own, Sum& sum) { sum = own; });
  for (uint32_t row = 0; row < 16; ++row)
    for (uint32_t k = 0; k < DEPTH; ++k)
      for (uint32_t column = 0; column < 16; ++column) sums[row][column] += left[row][k] * right[k][column];
  each([](Sum& own, Sum& sum) { own = sum; });
}
#if EMULATED_WAVE == 32
template void multiply<HalfElements, 16, 1, 2, 1>(Lane* const*);
template void multiply<BrainElements, 16, 1, 2, 1>(Lane* const*);
template void multiply<ByteElements, 16, 1, 2, 1>(Lane* const*);
template void multiply<HalfElements, 8, 2, 1, 8>(Lane* const*);
template void multiply<BrainElements, 8, 2, 1, 8>(Lane* const*);
template void multiply<ByteElements, 8, 2, 1, 8>(Lane* const*);
#else
template void multiply<HalfElements, 8, 4, 1, 4>(Lane* const*);
template void multiply<BrainElements, 8, 4, 1, 4>(Lane* const*);
template void multiply<HalfElements, 4, 4, 1, 4>(Lane* const*);
template void multiply<BrainElements, 4, 4, 1, 4>(Lane* const*);
template void multiply<BrainElements, 2, 4, 1, 4>(Lane* const*);
template void multiply<ByteElements, 8, 4, 1, 4>(Lane* const*);
template void multiply<ByteElements, 4, 4, 1, 4>(Lane* const*);
#endif

}  // namespace emulated

using namespace emulated;

/** Runs every block of a launch of a module's kernel with its packed arguments. */
extern "C" __attribute__((visibility("default"))) void emulatedRun(void (*kernel)(const unsigned char*), const unsigned char* args,
                                                                   const uint32_t* grid, const uint32_t* block) {
  const Launch work{kernel, args, {grid[0], grid[1], grid[2]}, {block[0], block[1], block[2]}};
  count = block[0] * block[1] * block[2];
  if (allLanes.size() < count) allLanes.resize(count);
  lanes = allLanes.data();
  for (uint32_t i = 0; i < count; ++i) {
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
