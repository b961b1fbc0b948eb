"""Writes load_inline programs: a ModelNew beside its CUDA source, alone in a file or after the Model it replaces."""

from __future__ import annotations

import random
from dataclasses import dataclass

from dice_training.cuke.core_writer import CoreWriter
from dice_training.cuke.kernel_file_writer import existing_source
from dice_training.cuke.parts import Parts, op_names
from dice_training.cuke.reference import Reference, write_reference
from dice_training.cuke.spec import Spec
from dice_training.cuke.style import CORE_STYLES, CoreStyle, FileStyle, file_style, function_name

_LOAD = "from torch.utils.cpp_extension import load_inline"


@dataclass(frozen=True)
class Binding:
    """Names by which Python reaches the CUDA source."""

    source: str
    declaration: str
    extension: str
    name: str


def _load_call(binding: Binding, function: str, rng: random.Random | None) -> str:
    """The load_inline statement; without ``rng`` the one house layout."""
    lines = [
        f'name="{binding.name}"',
        f"cpp_sources={binding.declaration}",
        f"cuda_sources={binding.source}",
        f'functions=["{function}"]',
    ]
    if rng is None:
        return f"{binding.extension} = load_inline(\n" + "".join(f"    {line},\n" for line in lines) + ")"
    if rng.random() < 0.25:
        lines[1:3] = [f"cpp_sources=[{binding.declaration}]", f"cuda_sources=[{binding.source}]"]
    if rng.random() < 0.5:
        lines.append("verbose=" + rng.choice(("False", "False", "True")))
    if rng.random() < 0.3:
        lines.append('extra_cuda_cflags=["-O3"' + rng.choice(("]", ', "-lineinfo"]', "]")))
    if rng.random() < 0.15 and "[" not in lines[1]:
        return f"{binding.extension} = load_inline({', '.join(lines)})"
    return f"{binding.extension} = load_inline(\n" + "".join(f"    {line},\n" for line in lines) + ")"


def _declaration_statement(binding: Binding, prototype: str, rng: random.Random | None) -> str:
    if rng is not None and rng.random() < 0.35:
        return f'{binding.declaration} = """\n{prototype};\n"""'
    quote = "'" if rng is not None and rng.random() < 0.15 else '"'
    return f"{binding.declaration} = {quote}{prototype};{quote}"


def _model_new(
    ref: Reference, binding: Binding, function: str, style: FileStyle, rng: random.Random | None
) -> str:
    """``class ModelNew``: the same constructor and parameters, forward calls the extension."""
    keep = rng is not None and rng.random() < 0.3
    call = f"self.{binding.extension}" if keep else binding.extension
    lines = [f"class ModelNew({style.base}):"]
    if rng is not None and rng.random() < 0.1:
        lines.append('    """The same computation in one CUDA kernel."""\n')
    inits = list(ref.shared_init) + ([f"self.{binding.extension} = {binding.extension}"] if keep else [])
    if inits or ref.init_args or (rng is not None and rng.random() < 0.6):
        lines += [
            f"    def __init__({', '.join(['self', *ref.init_args])}):",
            f"        {style.super_call.replace('(Model,', '(ModelNew,')}",
        ]
        lines += [f"        {line}" for line in inits] + [""]
    kind = ": torch.Tensor" if style.annotate else ""
    arrow = " -> torch.Tensor" if style.annotate else ""
    lines.append(f"    def forward(self, {', '.join(a + kind for a in ref.forward_args)}){arrow}:")
    args = [ref.call_args.get(n, n) for n in (*ref.tensors, *ref.scalars)]
    if rng is not None and rng.random() < 0.25:
        args[0] += ".contiguous()"
    lines.append(f"        return {call}.{function}({', '.join(args)})")
    return "\n".join(lines)


def _pick_binding(rng: random.Random, style: CoreStyle, function: str) -> Binding:
    source, declaration = rng.choice(style.sources), rng.choice(style.declarations)
    if style is CORE_STYLES[0] and rng.random() < 0.4:
        source, declaration = f"{function}_source", f"{function}_cpp_source"
    extension = rng.choice(
        (function, "ext", "module", "fused_ops", "cuda_module", "op", f"{function}_ext", "kernels", "lib")
    )
    if extension in (source, declaration):
        extension = "ext"
    name = rng.choice(
        (extension, f"{function}_ext", function, "fused_ext", "inline_ext", f"{extension}_module")
    )
    return Binding(source, declaration, extension, name)


def _statements_apart(rest: str) -> str:
    """The sizes and input functions of a file with blank lines between all of them, as a tool collects them."""
    first, *others = rest.rstrip("\n").split("\n\n\n")
    sizes = first.split("\n") if not first.startswith("def ") else [first]
    return "\n\n\n".join([*sizes, *others]) + "\n"


def load_inline_core(spec: Spec, rng: random.Random, held_out: bool = False) -> Parts:
    """A file with ModelNew and often Model too; the core is the assignment of the CUDA source string.

    The reference is the PyTorch part, or (never where ``held_out``) the CUDA source that stood there before.
    """
    style = file_style(rng)
    ref = write_reference(spec, style, rng)
    function = function_name(rng, op_names(spec))
    core_style = rng.choice(CORE_STYLES)
    binding = _pick_binding(rng, core_style, function)
    scalar = rng.choice(("float", "float", "double"))
    writer = CoreWriter(spec, core_style, function, scalar)
    quote = '"""'

    def assignment(source: str) -> str:
        return f"{binding.source} = {quote}{source}{quote.lstrip('r')}"

    text = ref.head + "\n\n\n" + ref.rest
    load = _LOAD if rng.random() < 0.9 else "import torch.utils.cpp_extension"
    imports = ["import torch", *(["import torch.nn as nn"] if style.nn_import else []), load]
    both = len(text) + len(writer.source()) < 2200 and rng.random() < 0.35
    replaces = not both and not held_out and rng.random() < 0.25
    before = existing_source(spec, rng, function, scalar) if replaces else None
    pytorch = text if before is not None else None
    if before is not None:
        quote = rng.choice(('"""', '"""', 'r"""', "'''"))
        text = assignment(before)
    elif both:
        text = ref.head + "\n\n\n" + _statements_apart(ref.rest)
    core = assignment(writer.source())
    prefix = f'"""{_title(spec, rng)}"""\n\n' if rng.random() < 0.15 else ""
    if both:
        prefix += "\n".join([*ref.imports, load]) + "\n\n\n" + ref.model + "\n\n\n"
    else:
        gap = ("\n\n", "\n\n", "\n\n\n", "\n\n# CUDA kernel\n", f"\n\n# {function}: kernel and launcher\n")
        prefix += "\n".join(imports) + rng.choice(gap)
    call = _load_call(binding, function, rng)
    if load != _LOAD:
        call = call.replace("= load_inline", "= torch.utils.cpp_extension.load_inline")
    after = [_declaration_statement(binding, writer.declaration(), rng), call]
    suffix = rng.choice(("\n\n", "\n\n", "\n")) + "\n\n".join(after) + "\n\n\n"
    suffix += _model_new(ref, binding, function, style, rng)
    suffix += "\n\n\n" + ref.rest if both or before is not None or rng.random() < 0.3 else "\n"
    return Parts(text, prefix, core, suffix, writer.kernel, pytorch)


def _title(spec: Spec, rng: random.Random) -> str:
    what = ", ".join(op_names(spec)[:3]).replace("_", " ")
    return (
        rng.choice(("{} in one kernel.", "Fused {}.", "CUDA version of {}.", "{}")).format(what).capitalize()
    )


def module(spec: Spec, rng: random.Random) -> Parts:
    """A plain PyTorch file; the core goes in right after class Model and is written in the house style."""
    style = file_style(rng)
    ref = write_reference(spec, style, rng)
    ops = [n for n in op_names(spec)][:2]
    function = "fused_" + "_".join(ops)
    binding = Binding("source", "cpp_source", "ext", f"{function}_ext")
    writer = CoreWriter(spec, CORE_STYLES[0], function)
    core = "\n\n\n" + "\n\n".join(
        [
            _LOAD,
            f'source = """{writer.source()}"""',
            _declaration_statement(binding, writer.declaration(), None),
            _load_call(binding, function, None),
            "\n" + _model_new(ref, binding, function, style, None),
        ]
    )
    suffix = "\n\n\n" + ref.rest
    return Parts(ref.head + suffix, ref.head, core, suffix, writer.kernel)
