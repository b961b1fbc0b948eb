"""A gated RMS norm, and a first CUDA version of it that still does its math in double precision."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.cpp_extension import load_inline


class Model(nn.Module):
    def __init__(self, dim, scale):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(dim))
        self.scale = scale

    def forward(self, x):
        x = x * self.scale
        x = F.silu(x)
        return x * torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + 1e-6) * self.weight


cuda_source = """
#include <torch/extension.h>
#include <cuda_runtime.h>

__global__ void gated_rms_norm_kernel(const float* x, const float* weight, float* y, double scale, int dim) {
    __shared__ double sums[256];
    const float* row = x + (size_t)blockIdx.x * dim;
    double acc = 0.0;
    for (int d = threadIdx.x; d < dim; d += blockDim.x) {
        double v = row[d] * scale;
        v = v / (1.0 + exp(-v));
        acc += v * v;
    }
    sums[threadIdx.x] = acc;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s >>= 1) {
        if (threadIdx.x < s) sums[threadIdx.x] += sums[threadIdx.x + s];
        __syncthreads();
    }
    double rms = sqrt(sums[0] / dim + 1e-6);
    for (int d = threadIdx.x; d < dim; d += blockDim.x) {
        double v = row[d] * scale;
        v = v / (1.0 + exp(-v));
        y[(size_t)blockIdx.x * dim + d] = v / rms * weight[d];
    }
}

torch::Tensor gated_rms_norm(torch::Tensor x, torch::Tensor weight, double scale) {
    auto y = torch::empty_like(x);
    int dim = x.size(-1);
    int rows = x.numel() / dim;
    gated_rms_norm_kernel<<<rows, 256>>>(x.data_ptr<float>(), weight.data_ptr<float>(), y.data_ptr<float>(), scale, dim);
    return y;
}
"""

cpp_source = "torch::Tensor gated_rms_norm(torch::Tensor x, torch::Tensor weight, double scale);"

gated = load_inline(
    name="gated_rms_norm_ext",
    cpp_sources=cpp_source,
    cuda_sources=cuda_source,
    functions=["gated_rms_norm"],
)


class ModelNew(nn.Module):
    def __init__(self, dim, scale):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(dim))
        self.scale = scale

    def forward(self, x):
        return gated.gated_rms_norm(x, self.weight, self.scale)


batch_size = 256
dim = 1024


def get_init_inputs():
    return [dim, 0.5]


def get_inputs():
    return [torch.randn(batch_size, dim)]
