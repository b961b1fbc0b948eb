// Cooperative groups: the block, tiles of a warp, coalesced lanes, the grid.
#pragma once

#include "dice/cuda.h"

namespace cooperative_groups {

struct thread_block {
  static unsigned size() { return blockDim.x * blockDim.y * blockDim.z; }
  static unsigned num_threads() { return size(); }
  static unsigned thread_rank() { return dice::current; }
  static dim3 group_index() { return blockIdx; }
  static dim3 thread_index() { return threadIdx; }
  static dim3 group_dim() { return blockDim; }
  static dim3 dim_threads() { return blockDim; }
  static void sync(int line = __builtin_LINE()) { __syncthreads(line); }
};
inline thread_block this_thread_block() { return {}; }

// Lanes of one warp: `members` in lane order.
class lanes {
 public:
  explicit lanes(unsigned members) : members_(members) {}
  unsigned size() const { return __popc(members_); }
  unsigned num_threads() const { return size(); }
  unsigned thread_rank() const { return __popc(members_ & ((1u << dice::lane()) - 1)); }
  void sync(int line = __builtin_LINE()) const { __syncwarp(members_, line); }
  template <class T>
  T shfl(T value, int rank, int line = __builtin_LINE()) const {
    return dice::shuffle(members_, value, nth(rank % int(size())), line);
  }
  template <class T>
  T shfl_down(T value, unsigned delta, int line = __builtin_LINE()) const {
    unsigned rank = thread_rank() + delta;
    return dice::shuffle(members_, value, nth(rank < size() ? rank : thread_rank()), line);
  }
  template <class T>
  T shfl_up(T value, unsigned delta, int line = __builtin_LINE()) const {
    unsigned rank = thread_rank();
    return dice::shuffle(members_, value, nth(rank >= delta ? rank - delta : rank), line);
  }
  template <class T>
  T shfl_xor(T value, unsigned mask, int line = __builtin_LINE()) const {
    unsigned rank = thread_rank() ^ mask;
    return dice::shuffle(members_, value, nth(rank < size() ? rank : thread_rank()), line);
  }
  int any(int predicate, int line = __builtin_LINE()) const { return __any_sync(members_, predicate, line); }
  int all(int predicate, int line = __builtin_LINE()) const { return __all_sync(members_, predicate, line); }
  unsigned ballot(int predicate, int line = __builtin_LINE()) const { return packed(__ballot_sync(members_, predicate, line)); }
  template <class T>
  unsigned match_any(T value, int line = __builtin_LINE()) const {
    return packed(__match_any_sync(members_, value, line));
  }
  template <class T>
  unsigned match_all(T value, int& all, int line = __builtin_LINE()) const {
    return packed(__match_all_sync(members_, value, &all, line));
  }
  unsigned meta_group_size() const { return (thread_block::size() + size() - 1) / size(); }
  unsigned meta_group_rank() const { return dice::current / size(); }
  unsigned members() const { return members_; }

 private:
  unsigned nth(unsigned rank) const {
    unsigned first = __builtin_ctz(members_), run = members_ >> first;
    if ((run & (run + 1)) == 0) return first + rank;  // lanes side by side, as in every tile
    unsigned rest = members_;
    while (rank--) rest &= rest - 1;
    return rest ? __builtin_ctz(rest) : dice::lane();
  }
  unsigned packed(unsigned by_lane) const {
    unsigned by_rank = 0, rank = 0;
    for (unsigned rest = members_; rest; rest &= rest - 1, ++rank) by_rank |= (by_lane >> __builtin_ctz(rest) & 1) << rank;
    return by_rank;
  }
  unsigned members_;
};

template <unsigned Size, class Parent = thread_block>
struct thread_block_tile : lanes {
  static_assert(Size <= 32 && (Size & (Size - 1)) == 0, "tiles larger than a warp are not supported on the CPU backend");
  thread_block_tile() : lanes((Size == 32 ? ~0u : (1u << Size % 32) - 1) << (dice::lane() & ~(Size - 1))) {}
  static constexpr unsigned size() { return Size; }
  static constexpr unsigned num_threads() { return Size; }
  static unsigned thread_rank() { return dice::lane() & (Size - 1); }
  static unsigned meta_group_size() { return (thread_block::size() + Size - 1) / Size; }
  static unsigned meta_group_rank() { return dice::current / Size; }
};

struct coalesced_group : lanes {
  explicit coalesced_group(unsigned members) : lanes(members) {}
};
// Any of the groups above, known only when it runs.
class thread_group {
 public:
  thread_group(const thread_block&) : block_(true), members_(0) {}
  thread_group(const lanes& group) : block_(false), members_(group) {}
  unsigned size() const { return block_ ? thread_block::size() : members_.size(); }
  unsigned num_threads() const { return size(); }
  unsigned thread_rank() const { return block_ ? thread_block::thread_rank() : members_.thread_rank(); }
  void sync(int line = __builtin_LINE()) const { block_ ? thread_block::sync(line) : members_.sync(line); }
  unsigned members() const { return members_.members(); }

 private:
  bool block_;
  lanes members_;
};

template <unsigned Size, class Parent>
thread_block_tile<Size, Parent> tiled_partition(const Parent&) { return {}; }
inline thread_group tiled_partition(const thread_group&, unsigned size) {
  return lanes((size == 32 ? ~0u : (1u << size) - 1) << (dice::lane() & ~(size - 1)));
}
inline coalesced_group coalesced_threads(int line = __builtin_LINE()) { return coalesced_group(__activemask(line)); }

inline coalesced_group coalesced_threads_alone() { return coalesced_group(__activemask_alone()); }
inline coalesced_group labeled_partition(const lanes& group, int label, int line = __builtin_LINE()) {
  return coalesced_group(__match_any_sync(group.members(), label, line));
}
inline coalesced_group binary_partition(const lanes& group, bool label, int line = __builtin_LINE()) {
  return labeled_partition(group, label, line);
}
template <class Group, class F>
void invoke_one(const Group& group, F&& action) {
  if (group.thread_rank() == 0) action();
}

struct grid_group {
  static unsigned long long size() { return (unsigned long long)gridDim.x * gridDim.y * gridDim.z * thread_block::size(); }
  static unsigned long long num_threads() { return size(); }
  static unsigned long long thread_rank() {
    return ((blockIdx.z * (unsigned long long)gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x) * thread_block::size() +
           dice::current;
  }
  static dim3 group_dim() { return gridDim; }
  static dim3 dim_blocks() { return gridDim; }
  static unsigned long long num_blocks() { return (unsigned long long)gridDim.x * gridDim.y * gridDim.z; }
  static dim3 block_index() { return blockIdx; }
  static unsigned long long block_rank() {
    return (blockIdx.z * (unsigned long long)gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  }
  static bool is_valid() { return true; }
  static void sync(int = 0) { dice::grid_barrier(); }
};
inline grid_group this_grid() { return {}; }

template <class Group>
void sync(const Group& group, int line = __builtin_LINE()) { group.sync(line); }

// Copies that a GPU makes meanwhile are made at once; what was copied is there after the wait, as on a GPU.
template <class Group, class T>
void memcpy_async(const Group& group, T* to, const T* from, size_t bytes) {
  auto target = reinterpret_cast<unsigned char*>(to);
  auto source = reinterpret_cast<const unsigned char*>(from);
  for (size_t i = group.thread_rank(); i < bytes; i += group.size()) target[i] = source[i];
}
template <class Group>
void wait(const Group& group, int line = __builtin_LINE()) { group.sync(line); }
template <unsigned Stages, class Group>
void wait_prior(const Group& group, int line = __builtin_LINE()) { group.sync(line); }

template <class T = void>
struct plus { T operator()(T a, T b) const { return a + b; } };
template <class T = void>
struct less { T operator()(T a, T b) const { return a < b ? a : b; } };
template <class T = void>
struct greater { T operator()(T a, T b) const { return a > b ? a : b; } };
template <class T = void>
struct bit_and { T operator()(T a, T b) const { return a & b; } };
template <class T = void>
struct bit_or { T operator()(T a, T b) const { return a | b; } };
template <class T = void>
struct bit_xor { T operator()(T a, T b) const { return a ^ b; } };

template <class Group, class T, class F>
T reduce(const Group& group, T value, F combine, int line = __builtin_LINE()) {
  return dice::reduce(group.members(), value, line, combine);
}
template <class Group, class T, class F>
T inclusive_scan(const Group& group, T value, F combine, int line = __builtin_LINE()) {
  T sum = value;
  for (unsigned delta = 1; delta < group.size(); delta *= 2) {
    T before = group.shfl_up(sum, delta, line);
    if (group.thread_rank() >= delta) sum = combine(before, sum);
  }
  return sum;
}
template <class Group, class T>
T inclusive_scan(const Group& group, T value, int line = __builtin_LINE()) {
  return inclusive_scan(group, value, plus<T>(), line);
}
template <class Group, class T, class F>
T exclusive_scan(const Group& group, T value, F combine, int line = __builtin_LINE()) {
  T before = group.shfl_up(inclusive_scan(group, value, combine, line), 1, line);
  return group.thread_rank() ? before : T(0);
}
template <class Group, class T>
T exclusive_scan(const Group& group, T value, int line = __builtin_LINE()) {
  return exclusive_scan(group, value, plus<T>(), line);
}

}  // namespace cooperative_groups
