// What a host translation unit needs besides torch: launches through a table of function pointers, and bindings.
//
// A kernel's host version is a stub, as nvcc makes it: `k<<<g, b, s, st>>>(x)` is rewritten to
// `(::dice::configure(g, b, s, st), k(x))`, and the stub's body hands its parameters' addresses to ::dice::launch.
#pragma once

#include <Python.h>
#include <cuda_runtime.h>

#include <array>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

// Torch declares it for nvcc alone, but host code names it where it packs accessors.
namespace at {
template <typename T>
struct RestrictPtrTraits {
  typedef T* __restrict__ PtrType;
};
}  // namespace at
namespace torch {
using at::RestrictPtrTraits;
}  // namespace torch
namespace cooperative_groups {}
namespace cub {}
namespace nvcuda {
namespace wmma {}
}  // namespace nvcuda

namespace dice {

struct Arg {
  void* address;
  int size;
  char kind;  // p pointer, b bool, i signed, u unsigned, f floating point, s anything else
};

struct Shape {
  unsigned grid[3], block[3];
  size_t shared;
  void* stream;
};

// Filled by host.py after loading; the layout is mirrored there.
struct Table {
  // Handle of the kernel whose stub has this name and __PRETTY_FUNCTION__; 0 when it cannot be had.
  void* (*resolve)(const char* name, const char* signature, size_t shared);
  // The driver's cuLaunchKernel, null on backends that launch by `launch`.
  int (*driver_launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**);
  int (*launch)(const char* name, const char* signature, const Shape* shape, const Arg* args, int count);
  int (*symbol)(const char* name, void** address, size_t* size);
  void* (*unpack)(PyObject*);           // borrowed TensorImpl of a tensor, null for anything else
  PyObject* (*wrap)(void*);             // takes one reference to the TensorImpl
  long long count;                      // launches so far
  int mode;                             // 0 launch, 1 make launches fail, 2 leave them out
  int pending;                          // CUDA's number of the last launch's error, until someone asks for it
};

}  // namespace dice

extern "C" __attribute__((visibility("default"))) dice::Table dice_table;

namespace dice {

inline thread_local Shape next_shape{};

template <class Grid, class Block>
inline void configure(Grid grid, Block block, size_t shared = 0, cudaStream_t stream = nullptr) {
  dim3 g(grid), b(block);
  next_shape = {{g.x, g.y, g.z}, {b.x, b.y, b.z}, shared, (void*)stream};
}

struct Slot {
  const char* name;
  const char* signature;
  void* handle = nullptr;
  size_t shared = 0;
};

template <class T>
constexpr char kind() {
  if (std::is_convertible_v<T, const volatile void*>) return 'p';  // is_pointer says no to T* __restrict__
  if (std::is_same_v<T, bool>) return 'b';
  if (std::is_floating_point_v<T>) return 'f';
  if (std::is_integral_v<T>) return std::is_signed_v<T> ? 'i' : 'u';
  if (std::is_enum_v<T>) return 'i';
  return 's';
}

template <class T>
inline Arg arg(T& value) {
  using Plain = std::remove_cv_t<T>;
  return {const_cast<void*>(static_cast<const volatile void*>(std::addressof(value))), int(sizeof(T)), kind<Plain>()};
}

inline void launch(Slot& slot, const Arg* args, int count) {
  Table& table = dice_table;
  ++table.count;
  if (table.mode == 1) throw std::runtime_error("kernel launch refused");
  if (table.mode == 2) return;
  Shape shape = next_shape;
  if (!table.driver_launch) {
    table.pending = table.launch(slot.name, slot.signature, &shape, args, count);
    return;
  }
  if (!slot.handle || shape.shared > slot.shared) {
    slot.handle = table.resolve(slot.name, slot.signature, shape.shared);
    if (!slot.handle) throw std::runtime_error("kernel not available");
    slot.shared = shape.shared;
  }
  std::vector<void*> many;
  void* few[24];
  void** addresses = few;
  if (count > 24) {
    many.resize(size_t(count));
    addresses = many.data();
  }
  for (int i = 0; i < count; ++i) addresses[i] = args[i].address;
  int status = table.driver_launch(slot.handle, shape.grid[0], shape.grid[1], shape.grid[2], shape.block[0],
                                   shape.block[1], shape.block[2], unsigned(shape.shared), shape.stream, addresses, nullptr);
  if (status) table.pending = status;
}

inline cudaError_t last_error(bool clear) {
  if (dice_table.pending) {
    auto error = static_cast<cudaError_t>(dice_table.pending);
    if (clear) dice_table.pending = 0;
    return error;
  }
  return clear ? ::cudaGetLastError() : ::cudaPeekAtLastError();
}

// The limit of dynamic shared memory is raised at each launch that needs it.
template <class Kernel, class Attribute>
inline cudaError_t function_attribute(Kernel, Attribute, int = 0) {
  return cudaSuccess;
}

inline cudaError_t symbol(const char* name, void** address, size_t* size) {
  while (*name == '&' || *name == ' ' || *name == ':') ++name;
  return static_cast<cudaError_t>(dice_table.symbol(name, address, size));
}

inline cudaError_t to_symbol(const char* name, const void* source, size_t bytes, size_t offset = 0,
                             cudaMemcpyKind kind = cudaMemcpyHostToDevice, cudaStream_t stream = nullptr) {
  void* address = nullptr;
  size_t size = 0;
  cudaError_t status = symbol(name, &address, &size);
  if (status != cudaSuccess) return status;
  if (offset > size || bytes > size - offset) return cudaErrorInvalidValue;
  return ::cudaMemcpyAsync(static_cast<char*>(address) + offset, source, bytes, kind, stream);
}

inline cudaError_t from_symbol(void* target, const char* name, size_t bytes, size_t offset = 0,
                               cudaMemcpyKind kind = cudaMemcpyDeviceToHost, cudaStream_t stream = nullptr) {
  void* address = nullptr;
  size_t size = 0;
  cudaError_t status = symbol(name, &address, &size);
  if (status != cudaSuccess) return status;
  if (offset > size || bytes > size - offset) return cudaErrorInvalidValue;
  status = ::cudaMemcpyAsync(target, static_cast<char*>(address) + offset, bytes, kind, stream);
  return status == cudaSuccess && kind == cudaMemcpyDeviceToHost ? ::cudaStreamSynchronize(stream) : status;
}

}  // namespace dice

#define cudaGetLastError() ::dice::last_error(true)
#define cudaPeekAtLastError() ::dice::last_error(false)
#define cudaFuncSetAttribute(...) ::dice::function_attribute(__VA_ARGS__)
#define cudaFuncSetCacheConfig(kernel, config) ::dice::function_attribute(kernel, config)
#define cudaMemcpyToSymbol(name, ...) ::dice::to_symbol(#name, __VA_ARGS__)
#define cudaMemcpyToSymbolAsync(name, ...) ::dice::to_symbol(#name, __VA_ARGS__)
#define cudaMemcpyFromSymbol(target, name, ...) ::dice::from_symbol(target, #name, __VA_ARGS__)
#define cudaMemcpyFromSymbolAsync(target, name, ...) ::dice::from_symbol(target, #name, __VA_ARGS__)
#define cudaGetSymbolAddress(target, name) ::dice::symbol(#name, (void**)(target), nullptr)
#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __cluster_dims__
#define __cluster_dims__(...)
#undef __maxnreg__
#define __maxnreg__(...)
#undef __grid_constant__
#define __grid_constant__
