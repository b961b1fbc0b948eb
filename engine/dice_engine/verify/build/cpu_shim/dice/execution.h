// How a launch runs: plain loops for kernels that never wait, one fiber for each thread for those that do.
#pragma once

#include <sys/mman.h>

#include "shared.h"
#include "switch.h"

// Internal linkage and no address taken: the compiler knows that stores through the kernel's pointers miss them.
static uint3 threadIdx, blockIdx;
static dim3 blockDim, gridDim;
constexpr int warpSize = 32;

namespace dice {

constexpr int kMaxThreads = 1024;

// A number, as an integer and as a real; or bytes of a type of the source's own: `whole` of them.
struct Arg {
  long long whole;
  double real;
  const void* bytes;
};

struct Launch {
  unsigned grid[3], block[3];
  unsigned shared;
  const Arg* args;
};

enum Error { kNone = 0, kDivergent = 1, kAssert = 2, kTrap = 3, kUnexpectedWait = 4, kNoMemory = 5, kOutside = 6 };
static char error_text[512];

// A visiting order of 0..count-1: (a * i + b) mod count with a coprime to count.
enum OrderKind { kForward = 0, kReverse = 1, kShuffled = 2 };
static OrderKind order_kind = kForward;
static unsigned long long order_seed = 0;

struct Order {
  unsigned long long count, a = 1, b = 0;

  explicit Order(unsigned long long count) : count(count) {
    if (order_kind == kForward || count < 2) return;
    if (order_kind == kReverse) {
      a = b = count - 1;
      return;
    }
    auto gcd = [](unsigned long long p, unsigned long long q) {
      while (q) {
        auto r = p % q;
        p = q, q = r;
      }
      return p;
    };
    unsigned long long mixed = (order_seed + 1) * 0x9e3779b97f4a7c15ull;
    mixed ^= mixed >> 29, mixed *= 0xbf58476d1ce4e5b9ull, mixed ^= mixed >> 32;
    a = 1 + mixed % (count - 1);
    while (gcd(a, count) != 1) a = a + 1 < count ? a + 1 : 1;
    b = (mixed >> 20) % count;
  }
  unsigned long long operator()(unsigned long long i) const { return (unsigned long long)((unsigned __int128)a * i % count + b) % count; }
};

DICE_FN uint3 position(unsigned long long linear, const dim3& extent) {
  unsigned long long plane = (unsigned long long)extent.x * extent.y;
  return {unsigned(linear % extent.x), unsigned(linear / extent.x % extent.y), unsigned(linear / plane)};
}

// ---- Waiting: the scheduler of one block's fibers -------------------------------------------------------------

enum WaitKind : unsigned char { kExchange, kActive };

struct Warp {
  uint64_t offered[32], taken[32];    // what a lane brings to an exchange, and what all brought to the last one
  uint32_t mask[32], group[32];       // lanes that a lane waits for; lanes that took part in its last exchange
  int line[32];
  WaitKind kind[32];
  unsigned passed;                    // operations of the warp that have come together so far
  uint32_t ready, waiting, alive;     // the rest of `alive` waits at the block's barrier
};

static Warp warps[kMaxThreads / 32];
static void* stacks[kMaxThreads];     // saved stack pointers
static void* scheduler;
static char* stack_memory;
static bool in_fibers = false;
static unsigned current;              // linear thread index in the block
static uint3 positions[kMaxThreads];  // threadIdx of each linear index
static unsigned char lane_order[32], lane_slot[32];  // the order in which a warp's lanes run, and its inverse
static Error error = kNone;
static void (*body)(void*);
static void* body_self;
static void* escape[5];

struct Barrier {
  unsigned arrived, count;
  int line;
  int counted;                        // predicate's count at the last release
};
static Barrier barrier;
static unsigned barriers_passed;
static unsigned at_grid_barrier;      // threads of the running block that wait for all other blocks

constexpr size_t kStackBytes = 128 * 1024;

[[noreturn]] inline void fail(Error code) {
  error = code;
  if (!in_fibers) __builtin_longjmp(escape, 1);
  void* unused;
  for (;;) dice_switch(in_fibers ? &stacks[current] : &unused, scheduler);
}

DICE_FN void become(unsigned thread) {
  current = thread;
  threadIdx = positions[thread];
}

// Give way to the next lane of the warp that can run, else to the scheduler.
__attribute__((noinline)) inline void wait() {
  unsigned own = current, lane = own % 32;
  uint32_t ready = warps[own / 32].ready;
  unsigned slot = lane_slot[lane] + 1;
  while (slot < 32 && !(ready >> lane_order[slot] & 1)) ++slot;
  if (slot == 32) {
    dice_switch(&stacks[own], scheduler);
  } else {
    become(own - lane + lane_order[slot]);
    dice_switch(&stacks[own], stacks[current]);
  }
}

inline void need_fibers() {
  if (in_fibers) return;
  snprintf(error_text, sizeof error_text, "a barrier or warp operation in a kernel that was built without");
  fail(kUnexpectedWait);
}

__attribute__((noinline)) inline int block_barrier(bool predicate, int line) {
  need_fibers();
  Warp& warp = warps[current / 32];
  if (barrier.arrived == 0) barrier.line = line;
  if (barrier.line != line) {
    snprintf(error_text, sizeof error_text,
             "divergent __syncthreads: thread (%u,%u,%u) of block (%u,%u,%u) waits at line %d, others at line %d",
             threadIdx.x, threadIdx.y, threadIdx.z, blockIdx.x, blockIdx.y, blockIdx.z, line, barrier.line);
    fail(kDivergent);
  }
  barrier.arrived++;
  barrier.count += predicate;
  warp.ready &= ~(1u << current % 32);
  wait();
  return barrier.counted;
}

inline void grid_barrier() {
  need_fibers();
  at_grid_barrier++;
  warps[current / 32].ready &= ~(1u << current % 32);
  wait();
}

// Bring `value` to the lanes of `mask`; returns the warp whose `taken` and `group` hold what they brought.
__attribute__((noinline)) inline const Warp& exchange(uint32_t mask, uint64_t value, WaitKind kind, int line) {
  need_fibers();
  Warp& warp = warps[current / 32];
  unsigned lane = current % 32;
  warp.offered[lane] = value;
  warp.mask[lane] = mask;
  warp.line[lane] = line;
  warp.kind[lane] = kind;
  warp.ready &= ~(1u << lane);
  warp.waiting |= 1u << lane;
  wait();
  return warp;
}

inline void release(Warp& warp, uint32_t group) {
  warp.passed++;
  for (uint32_t rest = group; rest; rest &= rest - 1) {
    int lane = __builtin_ctz(rest);
    warp.taken[lane] = warp.offered[lane];
    warp.group[lane] = group;
  }
  warp.waiting &= ~group;
  warp.ready |= group;
}

inline uint32_t companions(const Warp& warp, int lane) {
  uint32_t group = 0;
  for (uint32_t rest = warp.waiting; rest; rest &= rest - 1) {
    int other = __builtin_ctz(rest);
    bool same = warp.line[other] == warp.line[lane] && warp.kind[other] == warp.kind[lane];
    if (same && (warp.kind[lane] == kActive || warp.mask[other] == warp.mask[lane])) group |= 1u << other;
  }
  return group;
}

// Release each group of lanes that is complete: every lane of its mask that has not exited waits at this operation.
inline bool release_complete(Warp& warp) {
  bool any = false;
  for (uint32_t seen = 0; warp.waiting & ~seen;) {
    int lane = __builtin_ctz(warp.waiting & ~seen);
    uint32_t group = companions(warp, lane);
    seen |= group;
    if (warp.kind[lane] == kActive || (warp.mask[lane] & warp.alive & ~group) == 0) release(warp, group), any = true;
  }
  return any;
}

// Nothing moves: lanes of some mask sit elsewhere. The GPU runs such an operation with the lanes that are there, the
// earliest in the text first, and so do we.
inline bool release_partial(Warp& warp) {
  if (!warp.waiting) return false;
  int first = __builtin_ctz(warp.waiting);
  for (uint32_t rest = warp.waiting; rest; rest &= rest - 1) {
    int lane = __builtin_ctz(rest);
    if (warp.line[lane] < warp.line[first]) first = lane;
  }
  release(warp, companions(warp, first));
  return true;
}

inline void fiber_entry() {
  body(body_self);
  Warp& warp = warps[current / 32];
  warp.ready &= ~(1u << current % 32);
  warp.alive &= ~(1u << current % 32);
  for (;;) wait();
}

// Stacks for the threads of one more block, the first with guards between them; null where there is no memory.
inline char* map_stacks(bool guarded) {
  void* memory = mmap(nullptr, kMaxThreads * kStackBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    snprintf(error_text, sizeof error_text, "no memory for the threads' stacks");
    return nullptr;
  }
  for (int i = 0; guarded && i < kMaxThreads; ++i) mprotect(static_cast<char*>(memory) + i * kStackBytes, 4096, PROT_NONE);
  return static_cast<char*>(memory);
}

inline void start_block(unsigned threads) {
  unsigned warp_count = (threads + 31) / 32;
  for (unsigned w = 0; w < warp_count; ++w) {
    unsigned lanes = threads - w * 32;
    warps[w].ready = warps[w].alive = lanes >= 32 ? ~0u : (1u << lanes) - 1;
    warps[w].waiting = 0;
  }
  for (unsigned t = 0; t < threads; ++t) {
    // Stack tops spread over cache sets: equal low address bits would evict one another.
    char* top = stack_memory + (t + 1) * kStackBytes - (t % 32) * 128;
    stacks[t] = fresh_stack(top, fiber_entry);
  }
  barrier = {};
}

// Run the block's threads until all have ended, or all that have not wait for the grid.
inline Error run_block(unsigned threads, const Order& warp_order) {
  unsigned warp_count = (threads + 31) / 32;
  for (;;) {
    unsigned alive = 0;
    for (unsigned k = 0; k < warp_count; ++k) {
      unsigned w = unsigned(warp_order(k));
      Warp& warp = warps[w];
      do {
        for (int slot = 0; slot < 32 && warp.ready; ++slot) {
          unsigned lane = lane_order[slot];
          if (!(warp.ready >> lane & 1)) continue;
          become(w * 32 + lane);
          dice_switch(&scheduler, stacks[current]);  // runs every ready lane: each hands over to the next
          if (error) return error;
        }
      } while (release_complete(warp));
      alive += __builtin_popcount(warp.alive);
    }
    if (at_grid_barrier == alive) return kNone;
    if (barrier.arrived == alive) {
      barriers_passed++;
      barrier.counted = barrier.count;
      barrier.arrived = barrier.count = 0;
      for (unsigned w = 0; w < warp_count; ++w) warps[w].ready = warps[w].alive;
      continue;
    }
    bool moved = false;
    for (unsigned w = 0; w < warp_count; ++w) moved |= release_partial(warps[w]);
    if (!moved) {
      snprintf(error_text, sizeof error_text, "divergent grid sync: some threads of block (%u,%u,%u) wait for their block",
               blockIdx.x, blockIdx.y, blockIdx.z);
      return error = kDivergent;
    }
  }
}

// A block that waits for the others, with everything that is its own.
struct Parked {
  uint3 index;
  char* memory;
  std::vector<void*> stacks;
  std::vector<Warp> warps;
  std::vector<unsigned char> shared;

  Parked(unsigned threads, unsigned bytes)
      : index(blockIdx), memory(stack_memory), stacks(dice::stacks, dice::stacks + threads),
        warps(dice::warps, dice::warps + (threads + 31) / 32), shared(shared_contents(bytes)) {}

  void resume(unsigned bytes) const {
    blockIdx = index;
    stack_memory = memory;
    memcpy(dice::stacks, stacks.data(), stacks.size() * sizeof(void*));
    memcpy(dice::warps, warps.data(), warps.size() * sizeof(Warp));
    for (size_t w = 0; w < warps.size(); ++w) dice::warps[w].ready = dice::warps[w].alive;
    put_back(shared, bytes);
    barrier = {};
  }
};

inline Error run_fibers(const Launch& launch, void (*call)(void*), void* self) {
  body = call, body_self = self;
  unsigned long long blocks = (unsigned long long)gridDim.x * gridDim.y * gridDim.z;
  unsigned threads = blockDim.x * blockDim.y * blockDim.z;
  Order block_order(blocks), warp_order((threads + 31) / 32), lanes(32);
  for (int i = 0; i < 32; ++i) lane_order[i] = (unsigned char)lanes(i), lane_slot[lane_order[i]] = (unsigned char)i;
  for (unsigned t = 0; t < threads; ++t) positions[t] = position(t, blockDim);
  std::vector<Parked> parked, resumed;
  unsigned long long ended = 0;
  in_fibers = true;
  for (unsigned long long i = 0; i < blocks && !error; ++i) {
    if (!stack_memory && !(stack_memory = map_stacks(i == 0))) error = kNoMemory;
    if (error) break;
    blockIdx = position(block_order(i), gridDim);
    fresh_shared(launch.shared);
    start_block(threads);
    at_grid_barrier = 0;
    run_block(threads, warp_order);
    if (!error && at_grid_barrier) {
      parked.emplace_back(threads, launch.shared);
      stack_memory = nullptr;
    } else {
      ended++;
    }
  }
  char* spare = stack_memory;
  while (!parked.empty() && !error) {
    if (ended) {
      snprintf(error_text, sizeof error_text, "divergent grid sync: %llu of %llu blocks have ended", ended, blocks);
      error = kDivergent;
      break;
    }
    resumed.swap(parked);
    parked.clear();
    for (Parked& block : resumed) {
      block.resume(launch.shared);
      at_grid_barrier = 0;
      run_block(threads, warp_order);
      if (error) break;
      if (at_grid_barrier) {
        parked.emplace_back(threads, launch.shared);
      } else {
        ended++;
        if (spare) munmap(stack_memory, kMaxThreads * kStackBytes);
        else spare = stack_memory;
      }
    }
    if (ended == blocks) break;
  }
  if (!error) stack_memory = spare;
  in_fibers = false;
  return error;
}

// ---- Plain loops ----------------------------------------------------------------------------------------------

template <auto kernel, class... A>
__attribute__((flatten, noinline)) void loop_forward(const Launch& launch, A... args) {
  for (unsigned bz = 0; bz < gridDim.z; ++bz)
    for (unsigned by = 0; by < gridDim.y; ++by)
      for (unsigned bx = 0; bx < gridDim.x; ++bx) {
        blockIdx = {bx, by, bz};
        fresh_shared(launch.shared);
        for (unsigned tz = 0; tz < blockDim.z; ++tz)
          for (unsigned ty = 0; ty < blockDim.y; ++ty)
            for (unsigned tx = 0; tx < blockDim.x; ++tx) {
              threadIdx = {tx, ty, tz};
              kernel(args...);
            }
      }
}

template <auto kernel, class... A>
__attribute__((noinline)) void loop_ordered(const Launch& launch, A... args) {
  unsigned long long blocks = (unsigned long long)gridDim.x * gridDim.y * gridDim.z;
  unsigned threads = blockDim.x * blockDim.y * blockDim.z;
  Order block_order(blocks), thread_order(threads);
  for (unsigned long long b = 0; b < blocks; ++b) {
    blockIdx = position(block_order(b), gridDim);
    fresh_shared(launch.shared);
    for (unsigned t = 0; t < threads; ++t) {
      threadIdx = position(thread_order(t), blockDim);
      kernel(args...);
    }
  }
}

// ---- Launchers ------------------------------------------------------------------------------------------------

template <class T>
DICE_FN T unpack(const Arg& arg) {
  if (arg.bytes) {
    alignas(T) unsigned char copy[sizeof(T)];
    memcpy(copy, arg.bytes, arg.whole == sizeof(T) ? sizeof(T) : 0);
    return *reinterpret_cast<T*>(copy);
  }
  if constexpr (std::is_pointer_v<T>) {
    return reinterpret_cast<T>(static_cast<uintptr_t>(arg.whole));
  } else if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(arg.real);
  } else if constexpr (std::is_same_v<T, bool>) {
    return arg.whole != 0 || (arg.real != 0);
  } else if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
    return static_cast<T>(arg.whole);
  } else if constexpr (std::is_constructible_v<T, float>) {
    return T(static_cast<float>(arg.real));
  } else {
    snprintf(error_text, sizeof error_text, "a parameter's type cannot be passed as a number");
    fail(kUnexpectedWait);
  }
}

template <bool fibers, auto kernel, class... A, size_t... I>
__attribute__((noinline)) int launch_with(void (*)(A...), std::index_sequence<I...>, const Launch& launch) {
  blockDim = dim3(launch.block[0], launch.block[1], launch.block[2]);
  gridDim = dim3(launch.grid[0], launch.grid[1], launch.grid[2]);
  error = kNone;
  error_text[0] = 0;
  put_fence(launch.shared);
  if constexpr (fibers) {
    auto call = [&] { kernel(unpack<std::decay_t<A>>(launch.args[I])...); };
    run_fibers(launch, [](void* self) { (*static_cast<decltype(call)*>(self))(); }, &call);
  } else {
    if (__builtin_setjmp(escape)) return error;
    if (order_kind == kForward) {
      loop_forward<kernel, std::decay_t<A>...>(launch, unpack<std::decay_t<A>>(launch.args[I])...);
    } else {
      loop_ordered<kernel, std::decay_t<A>...>(launch, unpack<std::decay_t<A>>(launch.args[I])...);
    }
  }
  if (!error && !fence_whole(launch.shared)) {
    snprintf(error_text, sizeof error_text, "writes past its %u bytes of dynamic shared memory", launch.shared);
    error = kOutside;
  }
  return error;
}

template <class... A>
constexpr std::index_sequence_for<A...> parameters(void (*)(A...)) { return {}; }

// A kernel may share its name with a C function (`remove`, `div`): the one that returns nothing is meant.
template <class... A>
constexpr auto pick(void (*kernel)(A...)) { return kernel; }

}  // namespace dice

#define DICE_EXPORT extern "C" __attribute__((visibility("default")))
#define DICE_LAUNCHER(name, fibers, ...)                                                                \
  DICE_EXPORT int name(const dice::Launch* launch) {                                                    \
    constexpr auto kernel = dice::pick(&__VA_ARGS__);                                                   \
    return dice::launch_with<fibers, kernel>(kernel, decltype(dice::parameters(kernel)){}, *launch);    \
  }

DICE_EXPORT const char* dice_error_text() { return dice::error_text; }
DICE_EXPORT void dice_set_order(int kind, unsigned long long seed) {
  dice::order_kind = static_cast<dice::OrderKind>(kind);
  dice::order_seed = seed;
}
// The source's `__shared__` variables: `count` pairs of address and size.
DICE_EXPORT void dice_shared_ranges(const unsigned long long* pairs, unsigned count) {
  if (!dice::ranges) dice::ranges = new std::vector<dice::Range>;
  dice::ranges->clear();
  for (unsigned i = 0; i < count; ++i)
    dice::ranges->push_back({reinterpret_cast<unsigned char*>(uintptr_t(pairs[2 * i])), size_t(pairs[2 * i + 1])});
}
