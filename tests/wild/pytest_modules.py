# ruff: noqa
"""A module under test, pytest style."""
import math

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.cpp_extension import load_inline

CPP = "torch::Tensor swish(torch::Tensor x);"
SRC = r'''
#include <torch/extension.h>
__global__ void swish_kernel(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] / (1.0f + expf(-x[i]));  // a \n that stays
}
torch::Tensor swish(torch::Tensor x) {
    auto y = torch::empty_like(x);
    swish_kernel<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    return y;
}
'''


class Attention(nn.Module):
    def __init__(self, dim: int, heads: int = 4) -> None:
        super().__init__()
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.heads = heads

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, d // self.heads).unbind(2)
        s = torch.einsum("bthd,bshd->bhts", q, k) / math.sqrt(d // self.heads)
        if mask is not None:
            s = s.masked_fill(mask, float("-inf"))
        return self.proj(torch.einsum("bhts,bshd->bthd", F.softmax(s, -1), v).reshape(b, t, d))


# @dice inputs(x=randn(4, 32, 64)) init(64)
class Gate(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return torch.sigmoid(self.linear(x)) * x


# @dice inputs(x=randn(64, 1024), g=randn(1024))
def rms_norm(x: torch.Tensor, g: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * g


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(2, 3, 64)


def test_attention(x: torch.Tensor) -> None:
    assert Attention(64)(x).shape == x.shape


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_swish(x):
    ext = load_inline("swish_ext", [CPP], [SRC], functions=["swish"])
    assert torch.allclose(ext.swish(x.cuda()), F.silu(x.cuda()))
