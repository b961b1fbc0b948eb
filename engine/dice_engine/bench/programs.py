"""Two small programs that the benches use where no file is named."""

ROWS = """#include <cuda_runtime.h>
#include <math.h>

__global__ void silu_kernel(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    float v = x[i];
    y[i] = v / (1.0 + exp(-v));
  }
}

__global__ void row_sum_kernel(const float* x, float* sums, int rows, int cols) {
  __shared__ float part[256];
  float total = 0.0f;
  for (int c = threadIdx.x; c < cols; c += blockDim.x) total += x[blockIdx.x * cols + c];
  part[threadIdx.x] = total;
  __syncthreads();
  for (int half = blockDim.x / 2; half > 0; half >>= 1) {
    if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) sums[blockIdx.x] = part[0];
}

void silu(const float* x, float* y, int n, cudaStream_t stream) {
  silu_kernel<<<(n + 255) / 256, 256, 0, stream>>>(x, y, n);
}

void row_sum(const float* x, float* sums, int rows, int cols, cudaStream_t stream) {
  row_sum_kernel<<<rows, 256, 0, stream>>>(x, sums, rows, cols);
}
"""

RELU = '''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)


source = """
#include <torch/extension.h>

__global__ void relu_kernel(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = fmaxf(x[i], 0.0f);
}

torch::Tensor relu(torch::Tensor x) {
  auto y = torch::empty_like(x);
  int n = x.numel();
  relu_kernel<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
  return y;
}
"""
ext = load_inline(
    name="relu_ext", cpp_sources="torch::Tensor relu(torch::Tensor x);", cuda_sources=source, functions=["relu"]
)


class ModelNew(nn.Module):
    def forward(self, x):
        return ext.relu(x)


def get_inputs():
    return [torch.randn(64, 1024)]


def get_init_inputs():
    return []
'''
