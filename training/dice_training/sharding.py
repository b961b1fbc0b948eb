"""FSDP2: each process keeps a part of every weight, of its gradient and of its optimizer's state. A layer's weights are
whole in a process while that layer runs, forwards or backwards, and at no other time.

Applied from outside: the network and its forward pass know nothing of it. The weights are DTensors afterwards, cut
along their first dimension, under the names that they had.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from dice_engine.model.network import SdarModel
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
    register_fsdp_forward_method,
)
from torch.distributed.tensor import DTensor, distribute_tensor

from dice_training.forward import Forward


def shard(forward: Forward, offload: bool) -> SdarModel:
    """Cut the weights of ``forward.model`` over the processes of the group, each of which must call this. Returns the
    network as it was, but without weights, for :func:`gathered` ones.

    The first process's model holds the weights, anywhere; those of the others may be without (on ``meta``). With
    ``offload`` the parts live in the memory of the host, where the optimizer works on them too. On a GPU layers get
    their weights in bf16; gradients are summed over the processes in float32.
    """
    model, device = forward.model, forward.device
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    source: dict[str, Tensor] = dict(model.named_parameters()) if dist.get_rank() == 0 else {}
    model.to("meta")
    model.tie_weights()
    hollow = copy.deepcopy(model)
    cuda = device.type == "cuda"
    mixed = (torch.bfloat16, torch.float32) if cuda else (None, None)
    options: dict[str, Any] = {
        "mesh": mesh,
        # Not the inputs: the table of the rotary embedding stays in float32.
        "mp_policy": MixedPrecisionPolicy(*mixed, cast_forward_inputs=False),
        "offload_policy": CPUOffloadPolicy() if offload and cuda else OffloadPolicy(),
    }
    layers = list(model.model.layers)
    for part in (*layers, model):  # what no layer holds, embedding, norm and head, belongs to the model
        fully_shard(part, **options)
    for part in (*layers, model):
        assert isinstance(part, FSDPModule)
        # The loss is divided by the answers of all processes already: gradients are summed, not averaged.
        part.set_force_sum_reduction_for_comms(True)
        part.set_gradient_divide_factor(1.0)
    forward.layers.runs = [_whole(layer, partial(_run, forward, layer)) for layer in layers]
    forward.loss_sum = _whole(model, forward.whole_sum)
    _fill(model, source, mesh, "cpu" if offload else device.type)
    return hollow


def _run(forward: Forward, layer: nn.Module, *inputs: Any) -> Tensor:
    return forward.layers.run(dict(layer.named_parameters()), *inputs)


def _whole(module: nn.Module, function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """``function`` with the weights of ``module`` whole while it runs, and in its backward pass."""
    module.sharded_run = function  # type: ignore[assignment]
    register_fsdp_forward_method(module, "sharded_run")
    return module.sharded_run  # type: ignore[return-value]


def _fill(model: SdarModel, source: dict[str, Tensor], mesh: DeviceMesh, place: str) -> None:
    """Give the parts of ``model``, which are without content, those of the first process's ``source``, one weight after
    the other."""
    filled: dict[str, nn.Parameter] = {}
    for name, parameter in model.named_parameters():
        assert isinstance(parameter, DTensor)
        if name in source:
            whole = source.pop(name).detach().to(mesh.device_type)
        else:
            whole = torch.empty(parameter.shape, dtype=parameter.dtype, device=mesh.device_type)
        part = distribute_tensor(whole, mesh, parameter.placements).to(place)
        filled[name] = nn.Parameter(part, requires_grad=parameter.requires_grad)
    model.load_state_dict(filled, assign=True, strict=False)
    model.tie_weights()


def cut_again(model: SdarModel) -> None:
    """After forward passes without a backward one: those leave weights whole, and what is whole goes stale when the
    parts change."""
    for part in (*model.model.layers, model):
        assert isinstance(part, FSDPModule)
        part.reshard()


def gathered(model: SdarModel, first: bool) -> dict[str, Tensor]:
    """Every weight whole, on the CPU, in the ``first`` process; the others help and get nothing."""
    weights = {}
    for name, parameter in model.named_parameters():
        assert isinstance(parameter, DTensor)
        whole = parameter.full_tensor().detach()
        if first:
            weights[name] = whole.cpu()
    return weights


@contextmanager
def filled(hollow: SdarModel, weights: dict[str, Tensor]) -> Iterator[SdarModel]:
    """``hollow`` with ``weights``, and without them afterwards."""
    hollow.load_state_dict(weights, assign=True, strict=False)
    hollow.tie_weights()
    try:
        yield hollow
    finally:
        hollow.to("meta")
        hollow.tie_weights()
