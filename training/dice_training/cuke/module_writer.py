"""Writes load_inline programs: a ModelNew beside its CUDA source, alone in a file or after the Model it replaces."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from dice_training.cuke.core_writer import CoreWriter
from dice_training.cuke.kernel_files import existing_source, kernel_in_string
from dice_training.cuke.parts import Parts, op_names
from dice_training.cuke.reference import Reference, write_reference
from dice_training.cuke.spec import Spec, with_names
from dice_training.cuke.style import FileStyle, file_style, function_name
from dice_training.cuke.words import NamePool

_LOAD = "from torch.utils.cpp_extension import load_inline"


@dataclass(frozen=True)
class Binding:
    """Names by which Python reaches the CUDA source."""

    source: str
    declaration: str
    extension: str
    name: str


def load_call(binding: Binding, functions: Sequence[str], rng: random.Random | None) -> str:
    """The load_inline statement; without ``rng`` the one house layout."""
    names = ", ".join(f'"{function}"' for function in functions)
    lines = [
        f'name="{binding.name}"',
        f"cpp_sources={binding.declaration}",
        f"cuda_sources={binding.source}",
        f"functions=[{names}]",
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


def declaration_statement(binding: Binding, prototype: str, rng: random.Random | None) -> str:
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
            f"        {style.super_call.replace(f'({style.class_name},', '(ModelNew,')}",
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


def pick_binding(rng: random.Random, function: str, taken: set[str]) -> Binding:
    pool = NamePool(rng, taken | {"x", "cpp_sources", "cuda_sources", "functions", "name"})
    extension = function
    if function in taken or rng.random() < 0.75:
        extension = pool.take(
            ("ext", "module", "fused_ops", "cuda_module", "op", f"{function}_ext", "kernels", "lib")
        )
    pool.used |= {extension}
    source = pool.take(
        ("source", "cuda_source", "cuda_src", "cuda_code", "kernel_source", f"{function}_source", "src")
    )
    declaration = pool.take(("cpp_source", "cpp_src", "decl", "header", f"{function}_cpp_source", "cpp_decl"))
    pool.used -= {extension}
    name = pool.take(
        (extension, f"{function}_ext", function, "fused_ext", "inline_ext", f"{extension}_module")
    )
    return Binding(source, declaration, extension, name)


def _names_of(spec: Spec, ref: Reference) -> set[str]:
    names = {spec.x, *(o.name for o in spec.operands), *(str(s.name) for s in spec.scalars)}
    return names | {ref.class_name, "ModelNew", *(line.split(" = ")[0] for line in (*ref.before, *ref.after))}


def _after(
    ref: Reference,
    binding: Binding,
    function: str,
    prototype: str,
    style: FileStyle,
    rng: random.Random,
    load: str,
) -> str:
    """Everything between the source string and the end of ModelNew."""
    call = load_call(binding, [function], rng)
    if load != _LOAD:
        call = call.replace("= load_inline", "= torch.utils.cpp_extension.load_inline")
    after = [declaration_statement(binding, prototype, rng), call]
    return "\n\n".join(after) + "\n\n\n" + _model_new(ref, binding, function, style, rng)


def load_inline_core(spec: Spec, rng: random.Random, held_out: bool = False) -> Parts:
    """A file with ModelNew and often Model too; the core is the assignment of the CUDA source string.

    The reference is the PyTorch part, or (never where ``held_out``) the CUDA source that stood there before.
    """
    both = rng.random() < 0.45
    style = file_style(rng, plain=both)
    ref = write_reference(spec, style, rng)
    taken = _names_of(spec, ref)
    function = function_name(rng, op_names(spec), taken)
    binding = pick_binding(rng, function, taken)
    scalar = rng.choice(("float", "float", "double"))
    declared = _declared(spec, rng)
    writer = CoreWriter(declared, function, scalar)
    quote = '"""'

    def assignment(source: str) -> str:
        return f"{binding.source} = {quote}{source}{quote.lstrip('r')}"

    text = ref.text
    both = both and len(text) + len(writer.source()) < 2600
    load = _LOAD if rng.random() < 0.9 else "import torch.utils.cpp_extension"
    replaces = not both and not held_out and rng.random() < 0.3
    before = existing_source(declared, rng, function, scalar) if replaces else None
    pytorch = text if before is not None else None
    if before is not None:
        quote = rng.choice(('"""', '"""', 'r"""', "'''"))
        text = assignment(before)
    elif both:
        text = ref.apart
    core = assignment(writer.source())
    prefix = f'"""{_title(spec, rng)}"""\n\n' if rng.random() < 0.15 else ""
    if both:
        imports = [*ref.imports, load]
        if rng.random() < 0.15:
            imports = [load, *ref.imports] if load == _LOAD else imports
        prefix += "\n".join(imports) + ref.head.removeprefix("\n".join(ref.imports)) + "\n\n\n"
    else:
        nn = [line for line in ref.imports if line.endswith(("as nn", "import nn"))]
        gap = ("\n\n", "\n\n", "\n\n\n", "\n\n# CUDA kernel\n", f"\n\n# {function}: kernel and launcher\n")
        prefix += "\n".join(["import torch", *nn, load]) + rng.choice(gap)
    suffix = rng.choice(("\n\n", "\n\n", "\n")) + _after(
        ref, binding, function, writer.declaration(), style, rng, load
    )
    with_rest = not both and not style.sizes_first and (before is not None or rng.random() < 0.3)
    suffix += ref.tail if both or with_rest else "\n"
    return Parts(text, prefix, core, suffix, writer.kernel, pytorch, class_name=ref.class_name)


def _declared(spec: Spec, rng: random.Random) -> Spec:
    """The computation under the names that the C++ declaration uses, which may be its own."""
    pool = NamePool(rng, fresh=0.6)
    named = [spec.x, *(o.name for o in spec.operands), *(str(s.name) for s in spec.scalars)]
    if rng.random() < 0.75:
        return spec
    usual = ("x", "input", "self_t", "other", "weight", "bias", "p", "q", "s", "alpha", "beta", "lhs", "rhs")
    return with_names(spec, {name: pool.take((name, *usual)) for name in named})


def _title(spec: Spec, rng: random.Random) -> str:
    what = ", ".join(op_names(spec)[:3]).replace("_", " ")
    titles = (
        "{} in one kernel.",
        "Fused {}.",
        "CUDA version of {}.",
        "{}",
        "First CUDA version, still slow.",
    )
    return rng.choice(titles).format(what).capitalize()


def kernel_in_module(spec: Spec, rng: random.Random) -> Parts | None:
    """The body of a kernel that stands in the source string of a file, with the file around it."""
    style = file_style(rng, plain=True)
    ref = write_reference(spec, style, rng)
    taken = _names_of(spec, ref)
    function = function_name(rng, op_names(spec), taken)
    binding = pick_binding(rng, function, taken)
    scalar = rng.choice(("float", "float", "double"))
    declared = _declared(spec, rng)
    parts = kernel_in_string(declared, rng, function, scalar)
    if parts is None:
        return None
    prototype = CoreWriter(declared, function, scalar).declaration()
    before = "\n".join([*ref.imports, _LOAD]) + f'\n\n{binding.source} = r"""'
    after = '"""\n\n' + _after(ref, binding, function, prototype, style, rng, _LOAD) + "\n"
    pytorch = ref.text
    return Parts(
        **{**vars(parts), "pytorch": pytorch, "around": (before, after), "class_name": ref.class_name}
    )


def _readable(ref: Reference) -> dict[str, str]:
    """C names that the class shows: weights inside a module of its own are called by their role there."""
    names = {name: name for name in (*ref.tensors, *ref.scalars)}
    inside = {
        name: ref.call_args[name].split(".")[1:]
        for name in ref.tensors
        if ref.call_args.get(name, "").count(".") == 2
    }
    taken = set(names) - set(inside)
    for name, (owner, role) in inside.items():
        names[name] = role if role not in taken else f"{owner}_{role}"
        taken.add(names[name])
    return names


def module(spec: Spec, rng: random.Random) -> Parts:
    """A plain PyTorch file; the core goes in right after the class and is written in the house style."""
    style = file_style(rng)
    ref = write_reference(spec, style, rng)
    function = "fused_forward"
    binding = Binding("source", "cpp_source", "ext", f"{function}_ext")
    writer = CoreWriter(with_names(spec, _readable(ref)), function)
    core = "\n\n\n" + "\n\n".join(
        [
            _LOAD,
            f'source = """{writer.source()}"""',
            declaration_statement(binding, writer.declaration(), None),
            load_call(binding, [function], None),
            "\n" + _model_new(ref, binding, function, style, None),
        ]
    )
    suffix = ref.tail
    return Parts(ref.head + suffix, ref.head, core, suffix, writer.kernel, class_name=ref.class_name)
