// Workgroups of an AMD GPU on the host: every lane is a fiber of the thread that launches, blocks run one after the other.
// A lane runs until it meets others: at a barrier of the block, or at an operation of its wave, which takes place once no
// lane of the wave can go on without it. Lanes of a wave that wait at different operations are different paths of
// divergent code: the operation that lies first in the code goes first, and lanes that are elsewhere have no part in it.
#pragma once
#include <cstdint>

namespace emulated {

constexpr uint32_t WAVE = EMULATED_WAVE;

enum class State : uint8_t { Ready, AtWave, AtBlock, Done };

struct Lane {
  void* sp = nullptr;
  char* stack = nullptr;
  uint32_t index = 0, id[3] = {};
  State state = State::Ready;
  // Of the wave's operation that it waits at: where it is in the code, what it does for all lanes there, this lane's data.
  const void* site = nullptr;
  void (*operation)(Lane* const* lanes) = nullptr;
  void* data = nullptr;
};

struct Launch {
  void (*kernel)(const unsigned char* args);
  const unsigned char* args;
  uint32_t grid[3], block[3];
};

// At fixed places of a thread's memory: kernels ask for them at every turn, and the general way is a call.
#define EMULATED_HERE __attribute__((tls_model("initial-exec")))
extern thread_local constinit Lane* lane EMULATED_HERE;
extern thread_local constinit const Launch* launch EMULATED_HERE;
extern thread_local constinit uint32_t blockId[3] EMULATED_HERE;

/** Suspends the lane until its block has reached `state` too; with Ready, until the others have had their turn. */
void wait(State state);

/** Waits for the lanes of the wave that come here and has `operation` done for them; lanes[i] is null for all others. */
__attribute__((always_inline)) inline void together(void (*operation)(Lane* const* lanes), void* data, const void* site) {
  lane->operation = operation;
  lane->data = data;
  lane->site = site;
  wait(State::AtWave);
}

// Operations of the wave: each is where it returns to.
void waveBarrier();
/** The lanes that vote for it. */
unsigned long long ballot(bool v);
/** ds_bpermute_b32; what a lane reads of one that is not there is nothing to rely on. */
int permute(int address, int value);

}  // namespace emulated
