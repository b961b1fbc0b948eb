#include <cuda_runtime.h>
#include <type_traits>

constexpr int kBlock = 128;
constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }

template <typename T, int Unroll = 4, typename = std::enable_if_t<std::is_floating_point<T>::value>>
__global__ void __launch_bounds__(kBlock) axpy_unrolled(T alpha, const T* __restrict__ x, T* __restrict__ y, int n) {
  int base = (blockIdx.x * blockDim.x + threadIdx.x) * Unroll;
#pragma unroll
  for (int u = 0; u < Unroll; ++u) {
    int i = base + u;
    if (i < n) y[i] = alpha * x[i] + y[i];
  }
}

template <bool kRelu>
__global__ void bias_act(const float* x, const float* bias, float* out, int rows, int cols) {
  const int c = blockIdx.x * blockDim.x + threadIdx.x;
  const int r = blockIdx.y;
  if (c < cols && r < rows) {
    float v = x[r * cols + c] + bias[c];
    if constexpr (kRelu) v = v > 0.f ? v : 0.f;
    out[r * cols + c] = v;
  }
}

void axpy_f32(float alpha, const float* x, float* y, int n, cudaStream_t stream) {
  axpy_unrolled<float><<<ceil_div(n, kBlock * 4), kBlock, 0, stream>>>(alpha, x, y, n);
}

void bias_relu(const float* x, const float* bias, float* out, int rows, int cols) {
  const dim3 block(64);
  const dim3 grid(ceil_div(cols, 64), rows);
  bias_act<true><<<grid, block>>>(x, bias, out, rows, cols);
}
