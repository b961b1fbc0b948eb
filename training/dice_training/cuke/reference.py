"""Writes the PyTorch file of a specification, and the parts of it that its CUDA replacement shares."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field

from dice_training.cuke.forward import ForwardWriter
from dice_training.cuke.inputs_text import write_getters, write_sizes
from dice_training.cuke.numbers_text import COMPUTED, spelled
from dice_training.cuke.spec import Operand, Scalar, Spec
from dice_training.cuke.style import FileStyle
from dice_training.cuke.words import NamePool

_FILLS = ("torch.randn({w})",) * 4 + (
    "torch.rand({w})",
    "torch.randn({w}) * 0.02 + 1.0",
    "torch.randn(({w},))",
)
_ONES = {"mul", "maximum", "minimum", "div_safe", "gate"}
_ZEROS = {"add", "sub", "rsub", "add_scaled"}
_UNUSED = (
    "self.eps = 1e-5",
    "self.training_steps = 0",
    'self.name = "op"',
    "self.verbose = False",
    "self.p = 0.1",
)


@dataclass
class Reference:
    """The file in pieces, and what ModelNew needs. Statements at the top level are apart from each other."""

    title: str
    imports: list[str]
    before: list[str]
    """Statements between the imports and the class: constants, helper functions, sizes."""
    model: str
    after: list[str]
    class_name: str
    init_args: list[str] = field(default_factory=list)
    shared_init: list[str] = field(default_factory=list)
    """Constructor lines that a replacement keeps: parameters, modules with weights, scalars."""
    forward_args: list[str] = field(default_factory=list)
    call_args: dict[str, str] = field(default_factory=dict)
    """CUDA argument name -> Python expression in ``forward``, tensors first, then scalars."""
    tensors: list[str] = field(default_factory=list)
    scalars: list[str] = field(default_factory=list)
    newline: bool = True
    gap: str = "\n\n\n"
    """What stands between statements at the top level."""

    @property
    def head(self) -> str:
        """The file up to the end of the class."""
        title = self.title + ("\n\n" if self.title.endswith('"""') else "\n") if self.title else ""
        return title + self.gap.join(["\n".join(self.imports), *_grouped(self.before), self.model])

    @property
    def rest(self) -> str:
        """The file after the class, without the blank lines between."""
        return self.gap.join(_grouped(self.after)) + ("\n" if self.newline else "")

    @property
    def tail(self) -> str:
        """All that follows the class."""
        if not self.after:
            return "\n" if self.newline else ""
        return self.gap + self.rest

    @property
    def text(self) -> str:
        return self.head + self.tail

    @property
    def apart(self) -> str:
        """The whole file with blank lines between all statements, as a tool collects them."""
        return "\n\n\n".join(["\n".join(self.imports), *self.before, self.model, *self.after]) + "\n"


def _grouped(statements: list[str]) -> list[str]:
    """Assignments that follow each other stand in one paragraph."""
    result: list[str] = []
    for statement in statements:
        short = not statement.startswith(("def ", "if "))
        if short and result and not result[-1].startswith(("def ", "if ")):
            result[-1] += "\n" + statement
        else:
            result.append(statement)
    return result


class ReferenceWriter:
    def __init__(self, spec: Spec, style: FileStyle, rng: random.Random) -> None:
        self.spec, self.style, self.rng = spec, style, rng
        taken = {spec.x, *(o.name for o in spec.operands), *(str(s.name) for s in spec.scalars)}
        self.pool = NamePool(rng, taken | {style.class_name})
        self.width = self.pool.take((style.width_name, style.width_name + "_size", "dim_size"))
        self.pool.used.add(style.batch_name)
        # Only vectors of the module itself need their length when it is made.
        self.needs_width = any(o.origin == "param" and o.layout == "vec" for o in spec.operands)
        self.extra = not self.needs_width and rng.random() < 0.06
        self.calls: dict[str, str] = {}
        self.fixed: set[str] = set()
        self.init: list[tuple[str, bool, bool]] = []
        """Constructor lines: text, whether Model has it, whether its replacement has it."""

    def write(self) -> Reference:
        spec, style, rng = self.spec, self.style, self.rng
        for operand in spec.operands:
            self.calls[operand.name] = operand.name if operand.origin == "input" else f"self.{operand.name}"
        writer = ForwardWriter(spec, style, rng, self.pool, self.calls, self.width)
        self._parameters(writer)
        args, values = self._arguments()
        writer.fixed = self.fixed
        writer.write()
        used = "\n".join([*writer.lines, *(line for m in writer.methods for line in m)])
        self._scalars(used)
        if self.extra:
            self.init.append((f"self.{self.width} = {self.width}", True, True))
        if rng.random() < 0.04:
            self.init.append((rng.choice(_UNUSED), True, True))
        if rng.random() < 0.2:
            rng.shuffle(self.init)
        inputs = [spec.x] + [o.name for o in spec.operands if o.origin == "input"]
        sizes = write_sizes(spec, style, rng, self.pool, self.width, self.needs_width or self.extra)
        getters = write_getters(spec, style, rng, sizes, inputs, values)
        model = self._class(args, writer, inputs)
        functions = ["\n".join(lines) for lines in writer.functions]
        before = [*writer.constants, *functions] if rng.random() < 0.8 else [*functions, *writer.constants]
        before += sizes.statements if style.sizes_first else []
        after = ([] if style.sizes_first else sizes.statements) + getters
        if style.sizes_first and rng.random() < 0.3:
            before, after = before + getters, []
        if style.main_guard:
            made = f"{style.class_name}(*get_init_inputs())"
            after.append(f'if __name__ == "__main__":\n    print({made}(*get_inputs()).shape)')
        text = "\n".join([*before, model])
        return Reference(
            title=self._title(),
            imports=self._imports(text),
            before=[self._aliased(part) for part in before],
            model=self._aliased(model),
            after=after,
            class_name=style.class_name,
            init_args=args,
            shared_init=[line for line, _, kept in self.init if kept],
            forward_args=inputs,
            call_args=self.calls,
            tensors=[spec.x] + [o.name for o in spec.operands],
            scalars=[s.name for s in spec.scalars if s.name],
            newline=style.trailing_newline,
            gap="\n\n\n" if rng.random() < 0.88 else "\n\n",
        )

    def _parameters(self, writer: ForwardWriter) -> None:
        row, rng = self.spec.row, self.rng
        affine = row.affine if row else ()
        module = "nn" if self.style.nn_import else "torch.nn"
        norm: set[str] = set()
        if row and "nn.LayerNorm({D}{E})" in row.definition.modules and affine and rng.random() < 0.75:
            name = self.pool.take(("norm", "layer_norm", "ln", "norm1"))
            eps = "" if row.eps is None or row.eps == 1e-5 else f", eps={spelled(row.eps, rng)}"
            self.init.append((f"self.{name} = {module}.LayerNorm({self.width}{eps})", True, True))
            for operand, role in zip(affine, ("weight", "bias"), strict=False):
                self.calls[operand.name] = f"self.{name}.{role}"
                writer.modules[operand.name] = name
                norm.add(operand.name)
        roles = {o.name: step.op for step in self.spec.steps for o in step.operands}
        roles |= {o.name: role for o, role in zip(affine, ("mul", "add"), strict=False)}
        for operand in self.spec.operands:
            if operand.layout == "one":
                name = self.pool.take(("prelu", "act", "activation"))
                self.init.append((f"self.{name} = {module}.PReLU()", True, True))
                self.calls[operand.name] = f"self.{name}.weight"
                writer.modules[operand.name] = name
            elif operand.origin == "param" and operand.name not in norm:
                fill = self._fill(operand, roles.get(operand.name, ""))
                self.init.append((f"self.{operand.name} = {module}.Parameter({fill})", True, True))

    def _fill(self, operand: Operand, op: str) -> str:
        rng = self.rng
        many = sum(o.name == operand.name for s in self.spec.steps for o in s.operands) > 1
        alone = len(self.spec.steps) + bool(self.spec.row) == 1
        if not many and not alone and rng.random() < 0.3:
            if op in _ONES:
                return f"torch.ones({self.width})"
            if op in _ZEROS:
                return f"torch.zeros({self.width})"
        return rng.choice(_FILLS).format(w=self.width)

    def _arguments(self) -> tuple[list[str], list[str]]:
        """Parameters of the constructor with their hints and defaults, and the values given to it."""
        rng, args, values = self.rng, [], []
        if self.needs_width or self.extra:
            args.append(f"{self.width}: int" if self.style.hint else self.width)
            values.append(self.width)
        default = rng.random() < 0.25
        omitted = default and rng.random() < 0.5
        for scalar in self.spec.scalars:
            assert scalar.name
            if rng.random() < 0.25:  # a constant of the module
                self.fixed.add(scalar.name)
                continue
            text = f"{scalar.name}: float" if self.style.hint else scalar.name
            if default:
                text += (" = " if self.style.hint else "=") + spelled(scalar.value, rng)
            args.append(text)
            if not omitted:
                values.append(spelled(scalar.value, rng))
        return args, values

    def _scalars(self, used: str) -> None:
        """``self.scale = scale`` for each scalar; Model may need it only while it is made."""
        for scalar in self.spec.scalars:
            assert scalar.name
            self.calls[scalar.name] = f"self.{scalar.name}"
            mentioned = bool(re.search(rf"self\.{scalar.name}\b", used))
            if scalar.name in self.fixed:
                self.init.insert(0, (f"self.{scalar.name} = {self._constant(scalar)}", True, True))
            else:
                self.init.append((f"self.{scalar.name} = {scalar.name}", mentioned, True))

    def _constant(self, scalar: Scalar) -> str:
        """A constant of the module, which may be computed when it is made."""
        computed = COMPUTED.get(scalar.value, ())
        if computed and self.rng.random() < 0.3:
            return self.rng.choice(computed)
        return spelled(scalar.value, self.rng)

    def _aliased(self, text: str) -> str:
        if self.style.dense:
            text = text.replace(" ** ", "**")
        if self.style.functional == "F":
            return text
        return re.sub(r"(?<![\w.])F\.", self.style.functional + ".", text)

    def _imports(self, text: str) -> list[str]:
        lines = ["import torch"]
        if self.style.nn_import:
            lines.append(self.rng.choice(("import torch.nn as nn",) * 6 + ("from torch import nn",)))
        needed = re.search(r"(?<![\w.])F\.", text) or self.rng.random() < 0.12
        if needed and self.style.functional_import:
            lines.append(self.style.functional_import)
        if re.search(r"(?<![\w.])math\.", text):
            lines.insert(0, "import math")
        return lines

    def _title(self) -> str:
        return self.style.title.format(
            what=self._what(), What=self._what().capitalize(), n=self.rng.randrange(1, 99)
        )

    def _what(self) -> str:
        names = [s.op.replace("_", " ") for s in self.spec.steps]
        names += [self.spec.row.op.replace("_", " ")] if self.spec.row else []
        return ", ".join(names[:3])

    def _class(self, init_args: list[str], writer: ForwardWriter, inputs: list[str]) -> str:
        style, rng = self.style, self.rng
        lines = [f"class {style.class_name}({style.base}):"]
        what = self._what()
        fields = {"what": what, "What": what.capitalize(), "x": self.spec.x, "n": rng.randrange(1, 9)}
        if style.docstring:
            lines += [f'    """{style.docstring.format(**fields)}"""', ""]
            if "\n" in style.docstring and not style.docstring.endswith(" "):
                lines[-2] = lines[-2][:-3] + '\n    """'
        init = [line for line, kept, _ in self.init if kept] + writer.model_init
        if init or init_args or rng.random() < 0.85:
            lines += [f"    def __init__({', '.join(['self', *init_args])}):", f"        {style.super_call}"]
            lines += [f"        {line}" for line in init] + [""]
        methods = [[*(f"    {line}" for line in method), ""] for method in writer.methods]
        first = rng.random() < 0.7
        if first:
            lines += [line for method in methods for line in method]
        arrow = " -> torch.Tensor" if style.annotate else ""
        kind = ": torch.Tensor" if style.annotate else ""
        lines.append(f"    def forward(self, {', '.join(i + kind for i in inputs)}){arrow}:")
        if style.forward_doc:
            lines.append(f'        """{style.forward_doc.format(**fields)}"""')
            if "\n" in style.forward_doc:
                lines[-1] = lines[-1][:-3] + '\n        """'
        lines += [f"        {line}" for line in writer.lines]
        if not first:
            lines += [line for method in methods for line in ["", *method[:-1]]]
        return "\n".join(lines)


def write_reference(spec: Spec, style: FileStyle, rng: random.Random) -> Reference:
    """The PyTorch file of a specification: ``reference.text`` is the whole."""
    return ReferenceWriter(spec, style, rng).write()
