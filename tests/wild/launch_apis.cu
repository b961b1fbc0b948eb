#include <cuda_runtime.h>
#include <cooperative_groups.h>
namespace cg = cooperative_groups;

struct Params { int n; float alpha; };

__global__ void by_struct(const float* x, float* y, Params p) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < p.n) y[i] = p.alpha * x[i];
}

static __global__ void __launch_bounds__(256, 2) gather(const float* __restrict__ src, const int* __restrict__ index, float* dst, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) dst[i] = src[index[i]];
}

extern "C" __global__ void saxpy_c(float a, const float* x, float* y, size_t n) {
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
    y[i] += a * x[i];
}

[[maybe_unused]] __global__ void coop(float* x, int n) {
  auto g = cg::this_grid();
  for (int i = g.thread_rank(); i < n; i += g.size()) x[i] += 1.f;
  g.sync();
}

cudaError_t launch_struct(const float* x, float* y, int n, float alpha) {
  Params p{n, alpha};
  by_struct<<<(n + 127) / 128, 128>>>(x, y, p);
  return cudaGetLastError();
}

void launch_gather(const float* src, const int* index, float* dst, int n) { gather<<<(n + 255) / 256, 256>>>(src, index, dst, n); }

void launch_saxpy(float a, const float* x, float* y, size_t n) {
  void* args[] = {&a, &x, &y, &n};
  cudaLaunchKernel((void*)saxpy_c, dim3(120), dim3(256), args, 0, nullptr);
}

void launch_ex(float a, const float* x, float* y, size_t n, cudaStream_t s) {
  cudaLaunchConfig_t cfg = {};
  cfg.gridDim = dim3((unsigned)((n + 255) / 256));
  cfg.blockDim = dim3(256);
  cfg.stream = s;
  cudaLaunchKernelEx(&cfg, saxpy_c, a, x, y, n);
}
