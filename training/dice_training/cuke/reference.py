"""Writes the PyTorch file of a specification, and the parts of it that its CUDA replacement shares."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from dice_training.cuke.spec import Operand, RowStep, Scalar, Spec, Step
from dice_training.cuke.style import IMPORTS_FUNCTIONAL, MIDDLE_NAMES, FileStyle

_SIMPLE_NAMES = {
    "gelu_tanh": "gelu",
    "layer_norm_affine": "norm",
    "layer_norm": "norm",
    "log_softmax": "log_softmax",
    "clamp": "hardtanh",
}
_PARAMETER_FILLS = (
    "torch.randn({w})",
    "torch.randn({w})",
    "torch.rand({w})",
    "torch.randn({w}) * 0.02 + 1.0",
)


@dataclass
class Reference:
    """The file in pieces: ``imports`` + ``model`` + ``rest`` (sizes and input functions), and what ModelNew needs."""

    imports: list[str]
    model: str
    rest: str
    init_args: list[str] = field(default_factory=list)
    shared_init: list[str] = field(default_factory=list)
    """Constructor lines that a replacement keeps: parameters, modules with weights, scalars."""
    forward_args: list[str] = field(default_factory=list)
    forward_types: bool = False
    call_args: dict[str, str] = field(default_factory=dict)
    """CUDA argument name -> Python expression in ``forward``, tensors first, then scalars."""
    tensors: list[str] = field(default_factory=list)
    scalars: list[str] = field(default_factory=list)

    @property
    def head(self) -> str:
        return "\n".join(self.imports) + "\n\n\n" + self.model


def number(value: float) -> str:
    return repr(int(value)) if value == int(value) and abs(value) >= 20 else repr(value)


def _wrap(expression: str) -> str:
    """Parenthesise unless it is a name or one call."""
    if expression.isidentifier():
        return expression
    depth = 0
    for i, ch in enumerate(expression):
        if ch in "([":
            depth += 1
        elif ch in ")]":
            depth -= 1
        elif depth == 0 and not (ch.isalnum() or ch in "._"):
            return f"({expression})"
        if depth == 0 and ch in ")]" and i + 1 < len(expression) and expression[i + 1] not in ".([":
            return f"({expression})"
    return expression


def _is_infix(template: str) -> bool:
    """The value stands bare beside an operator or a method dot, so it must be an atom."""
    return (
        not template.startswith(("torch.", "F."))
        or "{x}." in template
        or "({x} " in template
        or " {x})" in template
    )


class ReferenceWriter:
    def __init__(self, spec: Spec, style: FileStyle, rng: random.Random) -> None:
        self.spec, self.style, self.rng = spec, style, rng
        self.functional = False
        self.math = False
        self.lines: list[str] = []
        self.model_init: list[str] = []
        self.shared_init: list[str] = []
        self.attributes: set[str] = set()
        self.var_count = 0
        self.needs_width = any(o.origin == "param" and o.layout == "vec" for o in spec.operands)
        self.call_args: dict[str, str] = {}

    def write(self) -> Reference:
        spec, style, rng = self.spec, self.style, self.rng
        for scalar in spec.scalars:
            self.attributes.add(scalar.name or "")
        width = style.width_name
        while width in {spec.x, *(o.name for o in spec.operands), *(s.name for s in spec.scalars)}:
            width += "_"
        self.width = width
        for operand in spec.operands:
            self.call_args[operand.name] = (
                operand.name if operand.origin == "input" else f"self.{operand.name}"
            )
        self._parameters()
        value = spec.x
        for step in spec.before:
            value = self._step(step, value)
        if spec.row:
            value = self._row(spec.row, value)
        for step in spec.after:
            value = self._step(step, value)
        self.lines.append(f"return {value}")
        for scalar in spec.scalars:
            assert scalar.name
            self.call_args[scalar.name] = f"self.{scalar.name}"
        extra = not self.needs_width and rng.random() < 0.08
        init_args, init_values = self._arguments(extra)
        scalar_lines = [f"self.{s.name} = {s.name}" for s in spec.scalars]
        stored = [
            line for line in scalar_lines if any(f"self.{line.split(' ')[-1]}" in text for text in self.lines)
        ]
        unused = [f"self.{width} = {width}"] if extra else []
        inputs = [spec.x] + [o.name for o in spec.operands if o.origin == "input"]
        return Reference(
            imports=self._imports(),
            model=self._class(init_args, self.shared_init + stored + unused + self.model_init, inputs),
            rest=self._rest(init_values, inputs),
            init_args=init_args,
            shared_init=self.shared_init + scalar_lines + unused,
            forward_args=inputs,
            forward_types=style.annotate,
            call_args=self.call_args,
            tensors=[spec.x] + [o.name for o in spec.operands],
            scalars=[s.name for s in spec.scalars if s.name],
        )

    def _parameters(self) -> None:
        row = self.spec.row
        affine = row.affine if row else ()
        norm = {o.name for o in affine}
        modules = row.definition.modules if row and norm else ()
        self.norm_module = "nn.LayerNorm({D})" in modules and self.rng.random() < 0.75
        module = "nn" if self.style.nn_import else "torch.nn"
        if self.norm_module:
            name = self._attribute(self.rng.choice(("norm", "layer_norm", "ln")))
            self.shared_init.append(f"self.{name} = {module}.LayerNorm({self.width})")
            for operand, role in zip(affine, ("weight", "bias"), strict=False):
                self.call_args[operand.name] = f"self.{name}.{role}"
            self.norm_name = name
        self.prelu: dict[str, str] = {}
        for operand in self.spec.operands:
            if operand.layout == "one":
                name = self._attribute(self.rng.choice(("prelu", "act", "activation")))
                self.shared_init.append(f"self.{name} = {module}.PReLU()")
                self.call_args[operand.name] = f"self.{name}.weight"
                self.prelu[operand.name] = name
            elif operand.origin == "param" and not (self.norm_module and operand.name in norm):
                fill = self.rng.choice(_PARAMETER_FILLS)
                self.attributes.add(operand.name)
                self.shared_init.append(
                    f"self.{operand.name} = {module}.Parameter({fill.format(w=self.width)})"
                )

    def _attribute(self, name: str) -> str:
        taken = self.attributes | {o.name for o in self.spec.operands} | {self.width}
        candidates = [name] + [f"{name}{i}" for i in range(2, 9)]
        chosen = next(c for c in candidates if c not in taken)
        self.attributes.add(chosen)
        return chosen

    def _scalar(self, scalar: Scalar) -> str:
        return f"self.{scalar.name}" if scalar.name else number(scalar.value)

    def _use(self, template: str, value: str, fields: dict[str, str]) -> str:
        """Puts the value into a template; statements before its last line go into the body."""
        *before, last = template.split("\n")
        if template.count("{x}") > 1 or before:
            value = self._assign(value)
        elif _is_infix(template):
            value = _wrap(value)
        self.functional |= "F." in template
        self.math |= "math." in template
        for line in before:
            self.lines.append(line.format(x=value, **fields))
        return last.format(x=value, **fields)

    def _assign(self, value: str) -> str:
        if value.isidentifier():
            return value
        name = self.spec.x
        if self.style.fresh_names:
            pool = ("out", "h", "result", "act", "tmp", "val")
            taken = {self.spec.x, *(o.name for o in self.spec.operands)}
            name = [p for p in pool if p not in taken][min(self.var_count, 3)]
            self.var_count += 1
        self.lines.append(f"{name} = {value}" + self._comment())
        return name

    def _comment(self) -> str:
        return (
            self.rng.choice(("", "  # pointwise", "  # same shape"))
            if self.style.comments and self.rng.random() < 0.3
            else ""
        )

    def _finish(self, value: str) -> str:
        return value if self.style.one_expression else self._assign(value)

    def _step(self, step: Step, value: str) -> str:
        op = step.definition
        if op.name == "prelu":
            return self._finish(f"self.{self.prelu[step.operands[0].name]}({value})")
        fields = {k: self._scalar(s) for k, s in zip("ab", step.scalars, strict=False)}
        fields |= {k: self.call_args[o.name] for k, o in zip("yz", step.operands, strict=False)}
        if op.modules and self.style.use_modules and self.rng.random() < 0.8:
            name = self._attribute(
                self.rng.choice(
                    (_SIMPLE_NAMES.get(op.name, op.name), "act", "activation")
                    if op.name != "clamp"
                    else ("hardtanh", "clip")
                )
            )
            plain = {k: (s.name or number(s.value)) for k, s in zip("ab", step.scalars, strict=False)}
            self.model_init.append(f"self.{name} = {self.rng.choice(op.modules).format(**plain)}")
            return self._finish(f"self.{name}({value})")
        return self._finish(self._use(self.rng.choice(op.torch), value, fields))

    def _row(self, row: RowStep, value: str) -> str:
        op, spec, rng = row.definition, self.spec, self.rng
        dim = str(spec.axis) if rng.random() < 0.5 and not op.last_only else str(spec.axis - len(spec.shape))
        width = str(spec.width)
        fields = {"d": dim, "k": ", keepdim=True" if row.keepdim else "", "e": repr(row.eps), "D": width}
        if self.norm_module:
            return self._finish(f"self.{self.norm_name}({value})")
        for key, operand in zip("wc", row.affine, strict=False):
            fields[key] = self.call_args[operand.name]
        if op.modules and not op.affine and self.style.use_modules and rng.random() < 0.8:
            name = self._attribute(
                rng.choice(
                    (_SIMPLE_NAMES.get(op.name, op.name), "norm" if "norm" in op.name else "reduce_fn")
                )
            )
            self.model_init.append(f"self.{name} = {rng.choice(op.modules).format(**fields)}")
            return self._finish(f"self.{name}({value})")
        return self._finish(self._use(rng.choice(op.torch), value, fields))

    def _arguments(self, extra: bool) -> tuple[list[str], list[str]]:
        args, values = [], []
        hint = self.rng.random() < 0.35
        if self.needs_width or extra:
            args.append(f"{self.width}: int" if hint else self.width)
            values.append(self.width)
        default = self.rng.random() < 0.2
        for scalar in self.spec.scalars:
            text = f"{scalar.name}: float" if hint else str(scalar.name)
            if default:
                text += (" = " if hint else "=") + number(scalar.value)
            args.append(text)
            values.append(number(scalar.value))
        return args, values

    def _imports(self) -> list[str]:
        lines = (["import math"] if self.math else []) + ["import torch"]
        if self.style.nn_import:
            lines.append("import torch.nn as nn")
        if self.functional or self.rng.random() < 0.12:
            lines.append(IMPORTS_FUNCTIONAL)
        return lines

    def _class(self, init_args: list[str], init: list[str], inputs: list[str]) -> str:
        style = self.style
        lines = [f"class Model({style.base}):"]
        if style.docstring:
            names = [s.op.replace("_", " ") for s in self.spec.steps] + (
                [self.spec.row.op.replace("_", " ")] if self.spec.row else []
            )
            what = ", ".join(names[:3])
            lines += [f'    """{style.docstring.format(what=what, What=what.capitalize())}"""', ""]
            if "\n" in style.docstring:
                lines[-2] = lines[-2][:-3] + '\n    """'
        if init or init_args or self.rng.random() < 0.85:
            lines += [f"    def __init__({', '.join(['self', *init_args])}):", f"        {style.super_call}"]
            lines += [f"        {line}" for line in init] + [""]
        arrow = " -> torch.Tensor" if style.annotate else ""
        kind = ": torch.Tensor" if style.annotate else ""
        lines.append(f"    def forward(self, {', '.join(i + kind for i in inputs)}){arrow}:")
        return "\n".join(lines + [f"        {line}" for line in self.lines])

    def _rest(self, values: list[str], inputs: list[str]) -> str:
        spec, style, rng = self.spec, self.style, self.rng
        variables: list[str] = []
        sizes = [str(s) for s in spec.shape]
        need_width = self.width in values
        if style.sizes_as_variables or need_width:
            variables.append(f"{self.width} = {spec.width}")
            sizes[-1] = self.width
        if style.sizes_as_variables and len(sizes) > 1:
            middles = rng.choice(MIDDLE_NAMES)
            for i in range(1, len(sizes) - 1):
                sizes[i] = middles[i - 1]
            named = [f"{n} = {s}" for n, s in zip(sizes[1:-1], spec.shape[1:-1], strict=False)]
            sizes[0] = style.batch_name if style.batch_name not in sizes else "n_batch"
            variables = [f"{sizes[0]} = {spec.shape[0]}", *named, *variables]
        make = f"torch.{spec.fill}({', '.join(sizes)})"
        layouts = {o.name: o.layout for o in spec.operands}
        makers = [
            make if layouts.get(n, "full") == "full" else f"torch.{spec.fill}({sizes[-1]})" for n in inputs
        ]
        body = (
            [f"    {n} = {m}" for n, m in zip(inputs, makers, strict=False)]
            + [f"    return [{', '.join(inputs)}]"]
            if rng.random() < 0.5 and not set(inputs) & set(sizes)
            else [f"    return [{', '.join(makers)}]"]
        )
        parts = ["\n".join(variables)] if variables else []
        getters = [
            "\n".join(["def get_inputs():", *body]),
            f"def get_init_inputs():\n    return [{', '.join(values)}]"
            + ("  # no arguments" if not values and rng.random() < 0.15 else ""),
        ]
        if rng.random() < 0.1:
            getters.reverse()
        text = "\n\n\n".join(parts + getters)
        return text + ("\n" if style.trailing_newline else "")


def write_reference(spec: Spec, style: FileStyle, rng: random.Random) -> Reference:
    """The PyTorch file of a specification: ``reference.head + "\\n\\n\\n" + reference.rest`` is the whole file."""
    return ReferenceWriter(spec, style, rng).write()


__all__ = ["Operand", "Reference", "ReferenceWriter", "number", "write_reference"]
