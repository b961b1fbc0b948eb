import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

declaration = "torch::Tensor damp(torch::Tensor a, torch::Tensor g);"

device_code = """
#include <cstdio>
#include <torch/extension.h>

__global__ void damped(const float* a, const float* g, float* o, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i == 0 && n < 0) printf("negative size %d\\n", n);
    if (i < n) o[i] = a[i] / (1.0f + expf(-g[i]));
}

torch::Tensor damp(torch::Tensor a, torch::Tensor g) {
    auto o = torch::empty_like(a);
    int n = a.numel();
    damped<<<(n + 255) / 256, 256>>>(a.data_ptr<float>(), g.data_ptr<float>(), o.data_ptr<float>(), n);
    return o;
}
"""

compiled = load_inline(name="damped_ext", cpp_sources=declaration, cuda_sources=device_code, functions=["damp"])


class ModelNew(nn.Module):
    def forward(self, a, g):
        return compiled.damp(a, g)


def get_inputs():
    return [torch.randn(48, 1024, device="cuda"), torch.randn(48, 1024, device="cuda")]
