// A block's shared memory: where it lies, what it holds at first, and putting it aside while other blocks run.
#pragma once

#include <vector>

namespace dice {

constexpr int kMaxShared = 227 * 1024;
alignas(1024) static unsigned char dynamic_shared[kMaxShared];

// The `__shared__` variables of the source, as found in the built library (see cpu_variables.py).
struct Range {
  unsigned char* at;
  size_t size;
};
static std::vector<Range>* ranges;

constexpr unsigned char kFence = 0xa5;
constexpr size_t kFenceBytes = 4096;

DICE_FN size_t fence_size(unsigned shared) { return kMaxShared - shared < kFenceBytes ? kMaxShared - shared : kFenceBytes; }

// What follows the bytes that a launch asked for must be left alone.
inline void put_fence(unsigned shared) { memset(dynamic_shared + shared, kFence, fence_size(shared)); }
inline bool fence_whole(unsigned shared) {
  for (size_t i = 0; i < fence_size(shared); ++i)
    if (dynamic_shared[shared + i] != kFence) return false;
  return true;
}

// What lies in fresh shared memory is undefined: NaN for floats, so that reading it shows.
inline void fresh_shared(unsigned shared) {
  memset(dynamic_shared, 0xff, shared);
  if (ranges)
    for (const Range& range : *ranges) memset(range.at, 0xff, range.size);
}

inline std::vector<unsigned char> shared_contents(unsigned shared) {
  std::vector<unsigned char> held(dynamic_shared, dynamic_shared + shared);
  if (ranges)
    for (const Range& range : *ranges) held.insert(held.end(), range.at, range.at + range.size);
  return held;
}

inline void put_back(const std::vector<unsigned char>& held, unsigned shared) {
  memcpy(dynamic_shared, held.data(), shared);
  const unsigned char* from = held.data() + shared;
  if (ranges)
    for (const Range& range : *ranges) memcpy(range.at, from, range.size), from += range.size;
}

}  // namespace dice
