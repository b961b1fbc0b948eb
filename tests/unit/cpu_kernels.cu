// Kernels as people write them, for tests/unit/test_cpu_backend.py.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <math_constants.h>
#include <torch/extension.h>

#include <vector>

namespace cg = cooperative_groups;

#define CHECK_INPUT(x) TORCH_CHECK(x.is_cuda(), #x " must be a CUDA tensor")
#define CEIL_DIV(a, b) (((a) + (b)-1) / (b))
#define HD __host__ __device__ __forceinline__
#define FULL_MASK 0xffffffff

__constant__ float taps[3] = {0.25f, 0.5f, 0.25f};

HD float clampf(float x, float low, float high) { return fminf(fmaxf(x, low), high); }

__global__ void add(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}

__global__ void saxpy_stride(int n, float a, const float* x, float* y) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) y[i] = a * x[i] + y[i];
}

constexpr int TILE = 32;
__global__ void transpose_tile(const float* in, float* out, int width, int height) {
  __shared__ float tile[TILE][TILE + 1];
  int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
#pragma unroll
  for (int j = 0; j < TILE; j += 8)
    if (x < width && y + j < height) tile[threadIdx.y + j][threadIdx.x] = in[(y + j) * width + x];
  __syncthreads();
  x = blockIdx.y * TILE + threadIdx.x;
  y = blockIdx.x * TILE + threadIdx.y;
  for (int j = 0; j < TILE; j += 8)
    if (x < height && y + j < width) out[(y + j) * height + x] = tile[threadIdx.x][threadIdx.y + j];
}

template <typename scalar_t, int BLOCK>
__global__ void __launch_bounds__(BLOCK) tree_sum(const scalar_t* x, scalar_t* out, int n) {
  __shared__ scalar_t part[BLOCK];
  scalar_t sum = 0;
  for (int i = blockIdx.x * BLOCK + threadIdx.x; i < n; i += BLOCK * gridDim.x) sum += x[i];
  part[threadIdx.x] = sum;
  __syncthreads();
  for (int s = BLOCK / 2; s > 0; s >>= 1) {
    if (threadIdx.x < s) part[threadIdx.x] += part[threadIdx.x + s];
    __syncthreads();
  }
  if (threadIdx.x == 0) out[blockIdx.x] = part[0];
}

__inline__ __device__ float warpReduceSum(float v) {
  for (int offset = warpSize / 2; offset > 0; offset /= 2) v += __shfl_down_sync(FULL_MASK, v, offset);
  return v;
}

__inline__ __device__ float blockReduceSum(float v) {
  static __shared__ alignas(16) float shared[32];
  int lane = threadIdx.x % warpSize, wid = threadIdx.x / warpSize;
  v = warpReduceSum(v);
  if (lane == 0) shared[wid] = v;
  __syncthreads();
  v = (threadIdx.x < blockDim.x / warpSize) ? shared[lane] : 0.0f;
  if (wid == 0) v = warpReduceSum(v);
  return v;
}

__global__ void warp_sum(const float* x, float* out, int cols) {
  float sum = 0.0f;
  for (int c = threadIdx.x; c < cols; c += blockDim.x) sum += __ldg(&x[blockIdx.x * cols + c]);
  sum = blockReduceSum(sum);
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

__global__ void softmax_rows(const float* x, float* out, int cols) {
  extern __shared__ float sdata[];
  int tid = threadIdx.x, row = blockIdx.x;
  float best = -CUDART_INF_F;
  for (int c = tid; c < cols; c += blockDim.x) best = fmaxf(best, x[row * cols + c]);
  sdata[tid] = best;
  __syncthreads();
  for (int s = blockDim.x / 2; s > 0; s >>= 1) {
    if (tid < s) sdata[tid] = fmaxf(sdata[tid], sdata[tid + s]);
    __syncthreads();
  }
  best = sdata[0];
  __syncthreads();
  float sum = 0.0f;
  for (int c = tid; c < cols; c += blockDim.x) sum += __expf(x[row * cols + c] - best);
  sdata[tid] = sum;
  __syncthreads();
  for (int s = blockDim.x / 2; s > 0; s >>= 1) {
    if (tid < s) sdata[tid] += sdata[tid + s];
    __syncthreads();
  }
  float total = sdata[0];
  for (int c = tid; c < cols; c += blockDim.x) out[row * cols + c] = __expf(x[row * cols + c] - best) / total;
}

__global__ void layernorm_rows(const float* x, const float* gamma, const float* beta, float* y, int n, float eps) {
  __shared__ float mean_s, rstd_s;
  const float* row = x + (size_t)blockIdx.x * n;
  float s = 0.f, s2 = 0.f;
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    float v = row[i];
    s += v;
    s2 += v * v;
  }
  s = blockReduceSum(s);
  __syncthreads();
  s2 = blockReduceSum(s2);
  if (threadIdx.x == 0) {
    mean_s = s / n;
    rstd_s = rsqrtf(s2 / n - mean_s * mean_s + eps);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x)
    y[(size_t)blockIdx.x * n + i] = (row[i] - mean_s) * rstd_s * gamma[i] + beta[i];
}

__global__ void block_scan(const int* in, int* out, int n) {
  extern __shared__ int temp[];
  int tid = threadIdx.x, pout = 0, pin = 1;
  temp[tid] = in[tid];
  __syncthreads();
  for (int offset = 1; offset < n; offset *= 2) {
    pout = 1 - pout;
    pin = 1 - pout;
    temp[pout * n + tid] = tid >= offset ? temp[pin * n + tid] + temp[pin * n + tid - offset] : temp[pin * n + tid];
    __syncthreads();
  }
  out[tid] = temp[pout * n + tid];
}

__global__ void histogram(const int* x, int* bins, int n) {
  __shared__ int local[32];
  if (threadIdx.x < 32) local[threadIdx.x] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&local[x[i]], 1);
  __syncthreads();
  if (threadIdx.x < 32) atomicAdd(&bins[threadIdx.x], local[threadIdx.x]);
}

__global__ void scale_float4(const float* x, float* out, float s, int n4) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n4) {
    float4 v = reinterpret_cast<const float4*>(x)[i];
    v.x *= s, v.y *= s, v.z *= s, v.w *= s;
    reinterpret_cast<float4*>(out)[i] = make_float4(v.x, v.y, v.z, v.w);
  }
}

__global__ void half_axpy(const half* x, const __half* y, __half* out, __half a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = __hadd(__hmul(a, x[i]), y[i]);
}

__global__ void half2_mul(const half2* x, const half2* y, half2* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = __hmul2(x[i], y[i]);
}

__global__ void bf16_round(const float* x, __nv_bfloat16* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = __float2bfloat16(x[i]);
}

template <int T>
__global__ void matmul_tiled(const float* A, const float* B, float* C, int M, int N, int K) {
  __shared__ float As[T][T], Bs[T][T];
  int row = blockIdx.y * T + threadIdx.y, col = blockIdx.x * T + threadIdx.x;
  float acc = 0.0f;
  for (int t = 0; t < (K + T - 1) / T; ++t) {
    As[threadIdx.y][threadIdx.x] = (row < M && t * T + threadIdx.x < K) ? A[row * K + t * T + threadIdx.x] : 0.0f;
    Bs[threadIdx.y][threadIdx.x] = (col < N && t * T + threadIdx.y < K) ? B[(t * T + threadIdx.y) * N + col] : 0.0f;
    __syncthreads();
#pragma unroll
    for (int k = 0; k < T; ++k) acc += As[threadIdx.y][k] * Bs[k][threadIdx.x];
    __syncthreads();
  }
  if (row < M && col < N) C[row * N + col] = acc;
}

__global__ void cg_block_sum(const float* x, float* out) {
  cg::thread_block block = cg::this_thread_block();
  cg::thread_block_tile<32> warp = cg::tiled_partition<32>(block);
  __shared__ float sums[32];
  float v = cg::reduce(warp, x[blockIdx.x * block.size() + block.thread_rank()], cg::plus<float>());
  if (warp.thread_rank() == 0) sums[warp.meta_group_rank()] = v;
  block.sync();
  if (warp.meta_group_rank() == 0) {
    v = warp.thread_rank() < warp.meta_group_size() ? sums[warp.thread_rank()] : 0.0f;
    for (int i = warp.size() / 2; i > 0; i /= 2) v += warp.shfl_down(v, i);
    if (warp.thread_rank() == 0) out[blockIdx.x] = v;
  }
}

__global__ void cg_tile_max(const float* x, float* out) {
  auto tile = cg::tiled_partition<8>(cg::this_thread_block());
  float v = x[threadIdx.x];
  for (int i = tile.size() / 2; i > 0; i /= 2) v = fmaxf(v, tile.shfl_xor(v, i));
  if (tile.thread_rank() == 0) out[threadIdx.x / 8] = v;
}

__global__ void stencil3(const float* x, float* out, int n) {
  extern __shared__ __align__(16) unsigned char raw[];
  float* s = reinterpret_cast<float*>(raw);
  int g = blockIdx.x * blockDim.x + threadIdx.x, l = threadIdx.x + 1;
  s[l] = g < n ? x[g] : 0.0f;
  if (threadIdx.x == 0) s[0] = g > 0 ? x[g - 1] : 0.0f;
  if (threadIdx.x == blockDim.x - 1) s[l + 1] = g + 1 < n ? x[g + 1] : 0.0f;
  __syncthreads();
  if (g < n) out[g] = s[l - 1] + s[l] + s[l + 1];
}

__global__ void votes(const int* x, unsigned* out) {
  int v = x[threadIdx.x];
  unsigned* mine = out + threadIdx.x * 5;
  mine[0] = __ballot_sync(FULL_MASK, v > 1);
  mine[1] = __any_sync(FULL_MASK, v > 2);
  mine[2] = __all_sync(FULL_MASK, v >= 0);
  mine[3] = __match_any_sync(FULL_MASK, v);
  mine[4] = __reduce_add_sync(FULL_MASK, v);
}

__global__ void coalesced_counter(const int* x, int* out, int* count) {
  if (x[threadIdx.x]) {
    unsigned active = __activemask();
    auto group = cg::coalesced_threads();
    if (group.thread_rank() == 0) atomicAdd(count, group.size());
    out[threadIdx.x] = 100 + __popc(active);
  }
}

__global__ void counts(const int* x, int* out) {
  int v = x[threadIdx.x];
  int total = __syncthreads_count(v), any = __syncthreads_or(v), all = __syncthreads_and(v);
  if (threadIdx.x == 7) out[0] = total, out[1] = any, out[2] = all;
}

__global__ void partial_shuffle(const int* x, int* out) {
  int lane = threadIdx.x, v = x[lane];
  if (lane < 16)
    out[lane] = __shfl_xor_sync(0x0000ffff, v, 1);
  else
    out[lane] = 100 + __shfl_sync(0xffff0000, v, lane + 1, 16);
  out[32 + lane] = __shfl_sync(FULL_MASK, v, 3, 8);
  out[64 + lane] = __shfl_up_sync(FULL_MASK, v, 2, 8);
}

__global__ void bits(long long* out) {
  out[0] = __popc(0xff);
  out[1] = __ffs(16);
  out[2] = __ffs(0);
  out[3] = __clz(0xff);
  out[4] = __clz(0);
  out[5] = __clzll(1LL << 27);
  out[6] = __brev(1);
  out[7] = __float2int_rd(3.7f);
  out[8] = __float2int_rn(2.5f);
  out[9] = __float2int_rz(-2.7f);
  out[10] = __float2int_rn(1e20f);
  out[11] = __float2int_rn(nanf(""));
  out[12] = __float_as_int(1.0f);
  out[13] = (long long)__int_as_float(0x3f800000);
  out[14] = __mul24(2, 3);
  out[15] = __dp4a(0x01020304, 0x05060708, 0);
  out[16] = __byte_perm(0x01020304, 0x05060708, 0x7654);
  out[17] = __funnelshift_l(0xA0000000u, 0x12345678u, 4);
  out[18] = __umulhi(0xffffffffu, 0xffffffffu);
  out[19] = max(min(11, 20), -3);
}

__global__ void fast_math(const float* x, float* out) {
  float v = x[threadIdx.x];
  float* o = out + threadIdx.x;
  o[0 * 64] = __expf(v);
  o[1 * 64] = __logf(v);
  o[2 * 64] = __fdividef(v, 3.0f);
  o[3 * 64] = __frcp_rn(v);
  o[4 * 64] = rsqrtf(v);
  o[5 * 64] = __fsqrt_rn(v);
  o[6 * 64] = __saturatef(v);
  o[7 * 64] = __powf(v, 1.5f);
  o[8 * 64] = max(clampf(v, 0.0f, 1e9f), 0.5f);
}

namespace ops {
__global__ void negate(const float* x, float* out, int n) {
  int i = threadIdx.x;
  if (i >= n) return;
  out[i] = -x[i];
}
}  // namespace ops

__global__ void volume(int* cells, int w, int h, int d) {
  int x = blockIdx.x * blockDim.x + threadIdx.x;
  int y = blockIdx.y * blockDim.y + threadIdx.y;
  int z = blockIdx.z * blockDim.z + threadIdx.z;
  if (x < w && y < h && z < d) cells[(z * h + y) * w + x] = (z * h + y) * w + x;
}

__global__ void mixed_scalars(double* out, bool flag, int i, int64_t wide, unsigned long long huge, float f, size_t z,
                              unsigned char c, double d) {
  out[0] = flag, out[1] = i, out[2] = wide, out[3] = huge, out[4] = f, out[5] = z, out[6] = c, out[7] = d;
}

__device__ float at_or_zero(const float* x, int i, int n) { return i >= 0 && i < n ? x[i] : 0.0f; }

__global__ void conv_constant(const float* x, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float sum = 0.0f;
  for (int k = 0; k < 3; ++k) sum += taps[k] * at_or_zero(x, i + k - 1, n);
  out[i] = sum;
}

__global__ void atomic_extremes(const int* x, int* out, unsigned long long* wide, double* real, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  atomicAdd(&out[0], x[i]);
  atomicMin(&out[1], x[i]);
  atomicMax(&out[2], x[i]);
  atomicOr(&out[3], x[i]);
  atomicXor(&out[4], x[i]);
  atomicAdd(wide, 1ULL << 33);
  atomicAdd(real, (double)x[i]);
}

__device__ static float atomicMaxFloat(float* address, float value) {
  int* as_int = (int*)address;
  int old = *as_int, assumed;
  do {
    assumed = old;
    old = atomicCAS(as_int, assumed, __float_as_int(fmaxf(value, __int_as_float(assumed))));
  } while (assumed != old);
  return __int_as_float(old);
}

__global__ void atomic_float_max(const float* x, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicMaxFloat(out, x[i]);
}

__global__ void early_exit(const float* x, float* out, int n) {
  __shared__ float s[128];
  if (threadIdx.x >= n) return;
  s[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  if (threadIdx.x == 0) {
    float sum = 0.0f;
    for (int i = 0; i < n; ++i) sum += s[i];
    *out = sum;
  }
}

extern __shared__ char dynamic_bytes[];
__global__ void two_tiles(float* out) {
  float* a = (float*)dynamic_bytes;
  float* b = a + blockDim.x;
  a[threadIdx.x] = 2.0f * threadIdx.x;
  b[threadIdx.x] = threadIdx.x;
  __syncthreads();
  out[threadIdx.x] = a[blockDim.x - 1 - threadIdx.x] + b[blockDim.x - 1 - threadIdx.x];
}

struct Square {
  __device__ __forceinline__ float operator()(float x) const { return x * x; }
};

template <typename F>
__global__ void functor_map(const float* x, float* out, int n) {
  F f;
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = f(x[i]);
}

template <typename T>
void launch_add(const T* a, const T* b, T* c, int n, cudaStream_t stream) {
  add<<<CEIL_DIV(n, 256), 256, 0, stream>>>(a, b, c, n);
}
template void launch_add<float>(const float*, const float*, float*, int, cudaStream_t);

std::vector<torch::Tensor> forward(torch::Tensor a, torch::Tensor b) {
  CHECK_INPUT(a);
  auto c = torch::empty_like(a);
  const auto stream = at::cuda::getCurrentCUDAStream();
  launch_add<float>(a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), a.numel(), stream);
  return {c};
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward, "element-wise sum"); }
