"""Statements that invented tasks are made of, by family, with how often they stand in people's code.

A line is ``weight | expression`` or ``weight | constructor | expression``: with a constructor, ``self.<name>`` is made
in ``__init__`` and called in the expression as ``{m}``. Fields: ``{x}`` the value at hand; ``{y}`` ``{z}`` more inputs of
its shape; ``{row}`` an input of its last size; ``{idx}`` integers below its last size in its shape; ``{pick}`` a vector of
integers below its size along dimension 0; ``{target}`` classes; ``{a}`` a positive number, ``{b}`` a larger one, ``{s}`` any number; ``{d}`` a
dimension; ``{k}`` ``{j}`` small integers; ``{shape}`` its shape, ``{chan}`` that of a number for each channel; ``{few}`` integers for a gather along dimension 1; ``{last}`` ``{ch}`` ``{seq}`` sizes of the last, second and last but one dimension; ``{out}`` a new size;
``{groups}`` a divisor of ``{ch}``.
"""

# ruff: noqa: E501
from __future__ import annotations

from dataclasses import dataclass

_TEXT = """
# activations
6 | torch.relu({x})
4 | F.relu({x})
3 | nn.ReLU() | {m}({x})
4 | torch.sigmoid({x})
2 | nn.Sigmoid() | {m}({x})
4 | torch.tanh({x})
2 | nn.Tanh() | {m}({x})
3 | nn.LeakyReLU({a}) | {m}({x})
2 | F.leaky_relu({x}, negative_slope={a})
3 | F.softplus({x})
2 | nn.Softplus() | {m}({x})
1 | nn.Softplus(beta={b}, threshold=20) | {m}({x})
3 | F.gelu({x})
2 | nn.GELU() | {m}({x})
1 | F.gelu({x}, approximate="tanh")
2 | F.silu({x})
3 | nn.SiLU() | {m}({x})
2 | F.hardtanh({x}, min_val=-{a}, max_val={b})
2 | nn.Hardtanh() | {m}({x})
2 | nn.ReLU6() | {m}({x})
2 | F.elu({x}, alpha={a})
1 | nn.ELU() | {m}({x})
2 | F.selu({x})
1 | F.celu({x}, alpha={b})
2 | F.mish({x})
2 | F.hardswish({x})
1 | F.hardsigmoid({x})
2 | F.hardshrink({x}, lambd={a})
1 | nn.Hardshrink() | {m}({x})
1 | F.softshrink({x}, lambd={a})
1 | F.threshold({x}, {a}, {s})
1 | F.logsigmoid({x})
1 | F.tanhshrink({x})
1 | F.softsign({x})
4 | nn.PReLU() | {m}({x})
2 | nn.PReLU(num_parameters={ch}) | {m}({x})
3 | F.glu({x}, dim={d})
2 | nn.GLU(dim={d}) | {m}({x})
2 | {x} * torch.sigmoid({x})
1 | {x} * torch.tanh(F.softplus({x}))
1 | {x} / (1 + torch.abs({x}))
1 | 1 / (1 + torch.exp(-{x}))
1 | torch.max({x}, torch.zeros_like({x}))
1 | {x}.relu()
1 | {x}.sigmoid()
1 | {x}.tanh()
# unary
5 | torch.abs({x})
5 | torch.sin({x})
5 | torch.cos({x})
4 | torch.exp({x})
4 | torch.expm1({x})
3 | torch.sqrt(torch.abs({x}))
2 | torch.sqrt({x})
3 | torch.log({x})
2 | torch.log(torch.abs({x}) + {a})
3 | torch.log1p(torch.abs({x}))
2 | torch.log2({x})
1 | torch.log10({x})
3 | torch.neg({x})
3 | torch.square({x})
4 | torch.floor({x})
4 | torch.ceil({x})
4 | torch.round({x})
2 | torch.trunc({x})
3 | torch.sign({x})
3 | torch.erf({x})
3 | torch.acos({x})
1 | torch.asin({x})
2 | torch.atan({x})
2 | torch.tan({x})
2 | torch.sinc({x})
2 | torch.deg2rad({x})
1 | torch.rad2deg({x})
2 | torch.rsqrt(torch.abs({x}) + {a})
1 | torch.rsqrt({x})
1 | torch.reciprocal({x} + {b})
1 | torch.sinh({x})
1 | torch.cosh({x})
1 | torch.asinh({x})
1 | torch.exp2({x})
1 | torch.frac({x})
2 | torch.nan_to_num({x}, nan={a})
1 | torch.lgamma(torch.abs({x}) + {b})
1 | {x}.exp()
1 | {x}.abs()
1 | {x}.sqrt()
1 | {x}.pow(2)
2 | {x} ** 2
1 | -{x}
1 | 1 - {x}
2 | torch.clone({x})
1 | torch.detach({x})
1 | nn.Identity() | {m}({x})
1 | {x}.to(torch.float32)
1 | {x} + torch.full_like({x}, {s})
1 | {x} * torch.ones_like({x})
# arithmetic
5 | {x} + {s}
3 | torch.add({x}, {s})
4 | {x} * {s}
3 | torch.mul({x}, {s})
3 | torch.multiply({x}, {s})
3 | {x} - {s}
2 | torch.sub({x}, {s})
3 | torch.div({x}, {b})
2 | {x} / {b}
3 | torch.pow({x}, 2)
2 | torch.pow({x}, 3)
1 | torch.pow(torch.abs({x}), {a})
4 | torch.clamp({x}, min=-{a}, max={b})
1 | {x}.clamp(min={s})
1 | {x}.clamp(-{a}, {b})
4 | torch.clip({x}, -{a}, {b})
3 | torch.clamp_min({x}, {s})
1 | torch.clamp({x}, max={b})
4 | torch.fmod({x}, {b})
4 | torch.remainder({x}, {b})
1 | torch.div({x}, {b}, rounding_mode="floor")
4 | torch.add({x}, {y})
3 | {x} + {y}
3 | {x} * {y}
3 | torch.mul({x}, {y})
3 | torch.sub({x}, {y})
2 | {x} - {y}
3 | torch.maximum({x}, {y})
3 | torch.minimum({x}, {y})
2 | torch.div({x}, torch.abs({y}) + {a})
1 | torch.atan2({x}, {y})
1 | torch.hypot({x}, {y})
1 | torch.lerp({x}, {y}, {a})
2 | torch.addcmul({x}, {y}, {z}, value={a})
1 | torch.addcdiv({x}, {y}, torch.abs({z}) + 1.0, value={a})
1 | torch.ceil({x} / {a})
1 | torch.fmod(torch.sqrt(torch.abs({x})), {b})
2 | {x} + {row}
2 | {x} * {row}
# parameters
8 | nn.Parameter(torch.randn({chan})) | {x} + {m}
3 | nn.Parameter(torch.randn({chan})) | {x} * {m}
2 | nn.Parameter(torch.randn({chan})) | torch.maximum({x}, {m})
2 | nn.Parameter(torch.randn({last})) | {x} + {m}
1 | nn.Parameter(torch.randn({last})) | torch.mul({x}, {m})
3 | nn.Parameter(torch.randn(1)) | {x} * {m}
2 | nn.Parameter(torch.randn(1)) | {x} + {m}
1 | nn.Parameter(torch.rand(1)) | {x} / ({m} + 1.0)
2 | nn.Parameter(torch.randn({shape})) | torch.add({x}, {m})
2 | nn.Parameter(torch.randn({shape})) | torch.minimum({x}, {m})
1 | nn.Parameter(torch.randn({shape})) | torch.where({x} > {s}, {x}, {m})
2 | nn.Parameter(torch.randn({shape})) | torch.addcmul({x}, {m}, {y}, value={b})
1 | nn.Parameter(torch.randn({k})) | torch.isin(torch.round({x}), torch.round({m}))
# comparisons and logic
3 | torch.gt({x}, {s})
3 | torch.ge({x}, {s})
2 | torch.lt({x}, {s})
1 | torch.le({x}, {s})
2 | torch.gt({x}, {y})
2 | torch.eq(torch.round({x}), {k})
1 | torch.ne(torch.round({x}), 0)
2 | torch.logical_or({x} > {a}, {x} < -{a})
2 | torch.logical_and({x} > -{a}, {x} < {b})
1 | {x} * torch.logical_and({x} > -{a}, {x} < {b}).float()
2 | torch.logical_not({x} > {s})
2 | torch.logical_or({x} > {a}, {y} > {a})
1 | torch.logical_xor({x} > 0, {y} > 0)
2 | torch.isnan(torch.log({x}))
1 | torch.isinf({x} / torch.round({x}))
2 | torch.isneginf(torch.log(torch.round(torch.abs({x}))))
2 | torch.isin(torch.round({x}), torch.round({row}))
1 | torch.bitwise_xor({x} > {s}, {y} > {s})
1 | torch.bitwise_xor(torch.round({x}).to(torch.int32), {k})
1 | torch.bucketize({x}, torch.sort({row})[0])
1 | torch.where({x} > {s}, {x}, torch.full_like({x}, {a}))
3 | torch.where({x} > {s}, {x}, {x} * {a})
3 | torch.where({x} > {y}, {x}, {y})
2 | torch.where({x} > 0, {x}, torch.zeros_like({x}))
2 | {x}.masked_fill({x} < {s}, {s})
1 | torch.masked_fill({x}, {y} > 0, {s})
2 | ({x} > {s}).float()
# movement
4 | torch.tril({x})
4 | torch.triu({x}, diagonal=1)
2 | torch.tril({x}, diagonal=-1)
4 | F.pad({x}, (1, 1), mode="constant", value={s})
2 | F.pad({x}, ({k}, 0, 1, {k}), value=0.0)
2 | nn.ConstantPad1d({k}, {s}) | {m}({x})
2 | nn.ZeroPad2d({k}) | {m}({x})
1 | nn.ReflectionPad2d(1) | {m}({x})
1 | F.pad({x}, (1, 1), mode="replicate")
4 | torch.flip({x}, dims=[{d}])
4 | torch.roll({x}, shifts={k}, dims={d})
1 | torch.roll({x}, {k})
3 | torch.roll({x}, shifts=({k}, {j}), dims=({d}, {e}))
1 | torch.t(torch.cat(({x}, {y}), dim={d}))
2 | F.unfold({x}, kernel_size=3, padding=1, stride={k})
4 | torch.cat([{x}, {y}], dim={d})
2 | torch.cat(({x}, {x}), dim={d})
3 | torch.stack([{x}, {y}], dim={d})
3 | torch.repeat_interleave({x}, {k}, dim={d})
2 | torch.transpose({x}, {d}, {e})
1 | {x}.permute(0, 2, 1)
1 | {x}.permute(0, 2, 3, 1)
2 | {x}.view({x}.size(0), -1)
1 | torch.flatten({x}, 1)
1 | nn.Flatten() | {m}({x})
2 | torch.unsqueeze({x}, {d})
1 | {x}[:, 0]
1 | {x}[:, 1:]
1 | torch.chunk({x}, 2, dim={d})[0]
2 | torch.split({x}, {k}, dim={d})[0]
2 | torch.diag({x})
1 | torch.diagonal({x}, dim1=-2, dim2=-1)
1 | torch.rot90({x}, 1, [{d}, {e}])
1 | {x}.repeat(1, {k})
2 | nn.PixelShuffle(2) | {m}({x})
1 | F.pixel_unshuffle({x}, 2)
1 | torch.diag_embed({x})
1 | {x}.reshape({x}.size(0), -1)
1 | torch.reshape({x}, (-1,))
2 | {x}.t()
1 | torch.unbind({x}, dim={d})[0]
1 | torch.select({x}, {d}, 0)
1 | torch.narrow({x}, {d}, 0, {k})
1 | {x}.unfold({d}, 2, 1)
2 | nn.Unfold(kernel_size=2, stride=2) | {m}({x})
# gathers
3 | torch.gather({x}, -1, {idx})
2 | torch.gather({x}, 1, {few})
3 | torch.index_select({x}, 0, {pick})
1 | {x}[{pick}]
2 | F.one_hot({idx}, {last})
# reductions
3 | torch.sum({x}, dim={d})
1 | {x}.sum(dim={d})
1 | {x}.mean(dim={d}, keepdim=True)
1 | {x}.max(dim={d})[0]
1 | {x}.argmax(dim={d})
2 | torch.sum({x} * {y}, dim={d})
1 | torch.sum({x} ** 2, dim={d})
1 | torch.mean(torch.abs({x} - {y}), dim={d})
1 | {x}.var(dim={d}, unbiased=False)
1 | {x}.sum(dim=({d}, {e}))
1 | torch.sum({x})
4 | torch.mean({x}, dim={d})
2 | torch.mean({x}, dim={d}, keepdim=True)
1 | torch.mean({x})
1 | {x}.mean(dim=(2, 3))
2 | torch.max({x}, dim={d})[0]
2 | torch.max({x}, dim={d}).values
2 | torch.min({x}, dim={d})[0]
3 | torch.amax({x}, dim={d})
1 | torch.amin({x}, dim={d}, keepdim=True)
2 | torch.prod({x}, dim={d})
4 | torch.argmax({x}, dim={d})
2 | torch.argmin({x}, dim={d})
2 | torch.all({x} > {s}, dim={d})
2 | torch.any({x} > {b}, dim={d})
2 | torch.count_nonzero({x} > {s}, dim={d})
2 | torch.std({x}, dim={d})
1 | torch.nansum({x}, dim={d})
1 | torch.var({x}, dim={d}, unbiased=False)
2 | torch.norm({x}, dim={d})
1 | torch.norm({x}, p=1, dim={d})
3 | F.normalize({x}, p=2, dim={d})
1 | F.normalize({x}, p=1, dim={d})
2 | torch.logsumexp({x}, dim={d})
2 | torch.dist({x}, {y})
4 | F.cosine_similarity({x}, {y}, dim={d})
1 | nn.CosineSimilarity(dim={d}) | {m}({x}, {y})
1 | {x} - {x}.mean(dim={d}, keepdim=True)
1 | {x} / {x}.norm(dim={d}, keepdim=True)
1 | {x} / torch.mean(torch.abs({x}), dim={d}, keepdim=True)
1 | {x} / torch.sum({x} ** 2, dim={d}, keepdim=True)
1 | {x} / torch.sqrt(torch.mean({x} ** 2, dim={d}, keepdim=True) + 1e-5)
1 | ({x} - {x}.mean(dim={d}, keepdim=True)) / ({x}.std(dim={d}, keepdim=True) + {a})
1 | torch.exp({x} - torch.max({x}, dim={d}, keepdim=True)[0])
1 | F.pairwise_distance({x}, {y})
# softmax and norms
5 | F.softmax({x}, dim={d})
3 | torch.softmax({x}, dim={d})
2 | nn.Softmax(dim={d}) | {m}({x})
3 | F.log_softmax({x}, dim={d})
2 | nn.LogSoftmax(dim={d}) | {m}({x})
5 | nn.LayerNorm({last}) | {m}({x})
2 | F.layer_norm({x}, ({last},))
2 | nn.RMSNorm({last}) | {m}({x})
3 | nn.BatchNorm1d({ch}) | {m}({x})
3 | nn.BatchNorm2d({ch}) | {m}({x})
3 | nn.GroupNorm({groups}, {ch}) | {m}({x})
2 | nn.InstanceNorm2d({ch}) | {m}({x})
1 | nn.InstanceNorm1d({ch}) | {m}({x})
# losses
2 | F.mse_loss({x}, {y})
2 | nn.MSELoss() | {m}({x}, {y})
1 | nn.L1Loss() | {m}({x}, {y})
1 | torch.mean(({x} - {y}) ** 2)
1 | torch.mean(torch.clamp({b} - {x} * {y}, min=0))
2 | F.smooth_l1_loss({x}, {y})
1 | F.huber_loss({x}, {y}, delta={a})
2 | F.kl_div(F.log_softmax({x}, dim=-1), F.softmax({y}, dim=-1), reduction="batchmean")
2 | nn.BCEWithLogitsLoss() | {m}({x}, torch.sigmoid({y}))
1 | F.binary_cross_entropy(torch.sigmoid({x}), torch.sigmoid({y}))
2 | F.cross_entropy({x}, {target})
1 | F.nll_loss(F.log_softmax({x}, dim=1), {target})
# scans and orders
4 | torch.cumsum({x}, dim={d})
1 | torch.cumsum(torch.flip({x}, dims=[{d}]), dim={d})
1 | torch.cumsum({x} * {y}, dim={d})
1 | torch.cumprod({x}, dim={d})
1 | torch.cumprod({x}, dim={d}) * {x}
1 | torch.cummax({x}, dim={d})[0]
3 | torch.sort({x}, dim={d})[0]
1 | torch.sort({x}, dim={d}, descending=True)[0]
2 | torch.argsort({x}, dim={d})
2 | torch.argsort({x}, dim={d}, descending=True)
3 | torch.topk({x}, {k}, dim={d})[0]
1 | torch.topk({x}, {k}, dim={d}, largest=False)[1]
3 | torch.median({x}, dim={d})[0]
1 | torch.kthvalue({x}, {k}, dim={d})[0]
# products
9 | nn.Linear({last}, {out}) | {m}({x})
2 | nn.Linear({last}, {out}, bias=False) | {m}({x})
2 | torch.matmul({x}, {x}.transpose(-2, -1))
1 | torch.bmm({x}, {y}.transpose(1, 2))
1 | torch.mm({x}, {y}.t())
1 | torch.einsum("bij,bkj->bik", {x}, {y})
1 | torch.einsum("ij,kj->ik", {x}, {y})
1 | torch.einsum("bi,bi->b", {x}, {y})
1 | torch.bmm({x}, {x}.transpose(1, 2))
1 | F.scaled_dot_product_attention({x}, {y}, {z})
1 | torch.outer({row}, {row})
# windows
3 | nn.Conv1d({ch}, {out}, kernel_size=3, padding=1) | {m}({x})
5 | nn.Conv2d({ch}, {out}, kernel_size=3, padding=1) | {m}({x})
2 | nn.Conv2d({ch}, {out}, 1) | {m}({x})
1 | nn.Conv2d({ch}, {ch}, kernel_size=3, stride=2, groups={ch}) | {m}({x})
3 | nn.ConvTranspose2d({ch}, {out}, kernel_size=2, stride=2) | {m}({x})
1 | nn.ConvTranspose1d({ch}, {out}, 3) | {m}({x})
2 | nn.ConvTranspose2d({ch}, {out}, kernel_size=3, stride=2, padding=1, output_padding=1) | {m}({x})
1 | nn.Conv1d({ch}, {out}, {k}) | {m}({x})
3 | nn.AvgPool1d({k}) | {m}({x})
2 | nn.AvgPool1d(3, stride=2) | {m}({x})
1 | nn.AvgPool1d(3, stride={k}, padding=1) | {m}({x})
1 | nn.MaxPool1d(3, stride={k}) | {m}({x})
2 | nn.AvgPool2d(2) | {m}({x})
2 | nn.MaxPool2d(2) | {m}({x})
3 | nn.MaxPool2d(3, stride=2, padding=1) | {m}({x})
1 | nn.MaxPool2d(3, stride={k}) | {m}({x})
1 | nn.AvgPool2d(3, stride={k}, padding=1) | {m}({x})
1 | F.max_pool1d({x}, 2)
1 | F.avg_pool2d({x}, 2)
2 | nn.AdaptiveAvgPool2d((1, 1)) | {m}({x})
1 | nn.AdaptiveAvgPool2d(2) | {m}({x})
1 | nn.AdaptiveAvgPool1d({k}) | {m}({x})
2 | nn.Upsample(scale_factor=2, mode="nearest") | {m}({x})
2 | nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False) | {m}({x})
2 | F.interpolate({x}, scale_factor=2, mode="bilinear", align_corners=True)
1 | F.interpolate({x}, scale_factor=2)
1 | F.max_pool3d({x}, 2)
1 | nn.AvgPool3d(2) | {m}({x})
"""


@dataclass(frozen=True)
class Statement:
    family: str
    weight: float
    constructor: str
    expression: str


def _read(text: str) -> tuple[Statement, ...]:
    found, family = [], ""
    for line in text.strip().splitlines():
        if line.startswith("#"):
            family = line[2:]
            continue
        weight, *rest = line.split(" | ")
        found.append(Statement(family, float(weight), rest[0] if len(rest) == 2 else "", rest[-1]))
    return tuple(found)


STATEMENTS = _read(_TEXT)
