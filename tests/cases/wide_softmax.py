import torch
from torch import nn

ROWS, WIDTH = 64, 131072


class Model(nn.Module):
    """Softmax over so wide an axis that every output is tiny."""

    def __init__(self, axis: int = -1):
        super().__init__()
        self.axis = axis

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        powers = (x - x.amax(dim=self.axis, keepdim=True)).exp()
        return powers / powers.sum(dim=self.axis, keepdim=True)


def get_init_inputs():
    return [1]


def get_inputs():
    return [torch.rand(ROWS, WIDTH)]
