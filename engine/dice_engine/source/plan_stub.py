"""A ready-filled ``@dice`` annotation for a kernel that has no plan: a start that the user corrects."""

from __future__ import annotations

import re

from dice_engine.source import host_types as types
from dice_engine.source.host import HostProgram, KernelDecl
from dice_engine.source.plan import Param

_LINE = 100


def stub(text: str, kernel_name: str) -> str:
    """Comment lines to put above the kernel, without a final newline.

    Everything that the signature tells is filled in; extents are the product of the sizes until somebody knows better.
    Raises KeyError when the file has no such kernel.
    """
    kernel = HostProgram(text).kernels[kernel_name]
    template = {p.name: p.default or ("float" if p.kind == "type" else "4") for p in kernel.template_params}
    sizes = [
        p.name for p in kernel.params if not p.pointer and _kind(p, template) not in ("float", "bool", "")
    ]
    if not sizes:
        sizes = ["n"]
    two = len(sizes) > 1 and _uses_y(text, kernel)
    launch = (
        f"grid=({sizes[0]}+31)/32,({sizes[1]}+7)/8 block=32,8"
        if two
        else f"grid=({sizes[0]}+255)/256 block=256"
    )
    lines = [launch, *_buffers(kernel, sizes)]
    lines.append(f"sizes({_sizes(sizes)})")
    fills = [
        f"{p.name}=int[0,{sizes[0]})"
        for p in kernel.params
        if p.pointer and p.const and _is_index(p, template)
    ]
    if fills:
        lines.append(f"fill({'; '.join(fills)})")
    if template:
        lines.append(f"tmpl({', '.join(f'{name}={value}' for name, value in template.items())})")
    return "\n".join(f"// @dice {line}" for line in lines)


def _kind(param: Param, template: dict[str, str]) -> str:
    kind = types.KINDS.get(template.get(param.ctype, param.ctype), "")
    return "float" if kind and types.is_float(kind) else kind


def _is_index(param: Param, template: dict[str, str]) -> bool:
    return _kind(param, template) in ("int32", "uint32", "int64", "uint64")


def _uses_y(text: str, kernel: KernelDecl) -> bool:
    rest = "\n".join(text.splitlines()[max(0, kernel.line - 1) :])
    body = rest.split("__global__", 2)
    own = "__global__".join(body[:2]) if rest.lstrip().startswith("__global__") else body[0]
    return bool(re.search(r"\b(?:threadIdx|blockIdx)\s*\.\s*y\b", own))


def _buffers(kernel: KernelDecl, sizes: list[str]) -> list[str]:
    extent = "*".join(sizes)
    inputs = [f"{p.name}[{extent}]" for p in kernel.params if p.pointer and p.const]
    others = [f"{p.name}[{extent}]" for p in kernel.params if p.pointer and not p.const]
    parts = [f"{role}({', '.join(names)})" for role, names in (("in", inputs), ("inout", others)) if names]
    joined = " ".join(parts)
    return [joined] if len(joined) <= _LINE else parts


def _sizes(names: list[str]) -> str:
    small, large = (5, 17, 3, 2), (1031, 517, 9, 5)
    sets = []
    for values in (large, small):
        sets.append(", ".join(f"{name}={values[i] if i < 4 else 2}" for i, name in enumerate(names)))
    return "; ".join(sets)
