#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
namespace cg = cooperative_groups;

struct Affine {
  float factor;
  short shift;
};

static __constant__ float coefficients[4];
__device__ int arrivals;

__global__ void grid_mean(const float* x, float* part, float* y, int n) {
  cg::grid_group grid = cg::this_grid();
  __shared__ float tile[64];
  extern __shared__ float kept[];
  float sum = 0.0f;
  for (int i = grid.thread_rank(); i < n; i += grid.size()) sum += x[i];
  tile[threadIdx.x] = sum;
  kept[threadIdx.x] = blockIdx.x * 100 + threadIdx.x;
  __syncthreads();
  for (int k = 32; k; k >>= 1) {
    if (threadIdx.x < k) tile[threadIdx.x] += tile[threadIdx.x + k];
    __syncthreads();
  }
  if (threadIdx.x == 0) part[blockIdx.x] = tile[0];
  grid.sync();
  float total = 0.0f;
  for (int b = 0; b < gridDim.x; ++b) total += part[b];
  grid.sync();
  bool whole = kept[threadIdx.x] == blockIdx.x * 100 + threadIdx.x;
  for (int i = grid.thread_rank(); i < n; i += grid.size()) y[i] = whole ? x[i] - total / n : -1.0f;
  grid.sync();
  if (threadIdx.x == 0) part[blockIdx.x] = tile[0];
}

__global__ void leaves_early(float* y) {
  if (blockIdx.x == 1) return;
  cg::this_grid().sync();
  y[blockIdx.x] = 1.0f;
}

__global__ void by_value(const float* x, float* y, Affine how, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * how.factor + how.shift;
}

__global__ void weighted(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * coefficients[i % 4];
  if (threadIdx.x == 0) atomicAdd(&arrivals, 1);
}

__global__ void wide_shared(float* y) {
  extern __shared__ float room[];
  room[threadIdx.x] = 1.0f;
  y[threadIdx.x] = room[threadIdx.x];
}

__global__ void unwritten(float* y) {
  __shared__ float room[32];
  if (threadIdx.x < 16) room[threadIdx.x] = 2.0f;
  __syncthreads();
  y[threadIdx.x] = room[threadIdx.x];
}

__global__ void wide_atomics(float* f, unsigned short* s, __half2* h, long long* l) {
  atomicAdd(reinterpret_cast<float2*>(f), make_float2(1.0f, 2.0f));
  atomicAdd(reinterpret_cast<float4*>(f + 4), make_float4(1.0f, 2.0f, 3.0f, 4.0f));
  atomicCAS(s, (unsigned short)threadIdx.x, (unsigned short)(threadIdx.x + 1));
  atomicAdd(h, __floats2half2_rn(1.0f, 0.5f));
  atomicMax(l, (long long)threadIdx.x << 40);
}

__global__ void groups(const int* x, int* y) {
  auto block = cg::this_thread_block();
  auto warp = cg::tiled_partition<32>(block);
  cg::thread_group any = threadIdx.x < 32 ? cg::thread_group(warp) : cg::thread_group(block);
  int own = x[threadIdx.x];
  y[threadIdx.x] = cg::exclusive_scan(warp, own, cg::greater<int>());
  y[64 + threadIdx.x] = cg::reduce(cg::labeled_partition(warp, own % 3), own, cg::plus<int>());
  int same;
  y[128 + threadIdx.x] = warp.match_all(own / 1000, same) ? same : -1;
  y[192 + threadIdx.x] = any.size();
}

__global__ void directed(const float* x, __half* y, __nv_bfloat16* z, int n) {
  int i = threadIdx.x;
  y[i] = __float2half_rz(x[i]), y[n + i] = __float2half_rd(x[i]), y[2 * n + i] = __float2half_ru(x[i]);
  z[i] = __float2bfloat16_rz(x[i]), z[n + i] = __float2bfloat16_rd(x[i]), z[2 * n + i] = __float2bfloat16_ru(x[i]);
}

__global__ void odd_words(unsigned* y, const unsigned* x) {
  y[0] = __funnelshift_lc(x[0], x[1], 40), y[1] = __funnelshift_rc(x[0], x[1], 40);
  y[2] = __uhadd(x[0], x[1]), y[3] = __urhadd(x[0], x[1]), y[4] = __dp2a_lo(x[0], x[1], 5), y[5] = __dp2a_hi(x[0], x[1], 5);
}

__global__ void aggregated(const int* x, int* bins, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  for (int b = 0; b < 8; ++b)
    if (i < n && x[i] == b) {
      auto here = cg::coalesced_threads();
      if (here.thread_rank() == 0) atomicAdd(bins + b, (int)here.size());
    }
  if (i < n) {
    unsigned all = __activemask();
    if ((threadIdx.x & 31) == __ffs(all) - 1) atomicAdd(bins + 8, __popc(all));
  }
}
