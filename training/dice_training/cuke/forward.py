"""Writes the statements of ``forward``: one computation in any of the ways people write it in PyTorch."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from dice_training.cuke.numbers_text import number, spelled
from dice_training.cuke.spec import Operand, RowStep, Scalar, Spec, Step
from dice_training.cuke.style import FileStyle
from dice_training.cuke.words import NamePool, fresh_name

_SIMPLE_NAMES = {
    "gelu_tanh": "gelu",
    "layer_norm_affine": "norm",
    "layer_norm": "norm",
    "log_softmax": "log_softmax",
    "clamp": "hardtanh",
}
_AUGMENTED = {
    "mul_scalar": ("{x} *= {a}", "{x}.mul_({a})"),
    "add_scalar": ("{x} += {a}", "{x}.add_({a})"),
    "sub_scalar": ("{x} -= {a}", "{x}.sub_({a})"),
    "div_scalar": ("{x} /= {a}", "{x}.div_({a})"),
    "mul": ("{x} *= {y}", "{x}.mul_({y})"),
    "add": ("{x} += {y}", "{x}.add_({y})"),
    "sub": ("{x} -= {y}", "{x}.sub_({y})"),
    "relu": ("{x} = F.relu({x}, inplace=True)", "{x}.relu_()"),
    "tanh": ("{x}.tanh_()",),
    "sigmoid": ("{x}.sigmoid_()",),
    "exp": ("{x}.exp_()",),
    "abs": ("{x}.abs_()",),
    "square": ("{x} *= {x}", "{x} **= 2"),
    "clamp": ("{x}.clamp_({a}, {b})",),
    "silu": ("{x} = F.silu({x}, inplace=True)",),
}
_REMARKS = ("pointwise", "same shape", "activation", "shape: same as the input", "TODO: fuse", "in fp32")


def wrap(expression: str) -> str:
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
    return not template.startswith(("torch.", "F.")) or bool(
        re.search(r"\{x\}[.[]|\(\{x\} | \{x\}\)|-\{x\}", template)
    )


class ForwardWriter:
    """Writes into ``lines``, and ``init`` lines of modules without weights into ``model_init``.

    ``calls``: the Python expression of each operand; ``attributes``: names in use on ``self``.
    """

    def __init__(
        self,
        spec: Spec,
        style: FileStyle,
        rng: random.Random,
        pool: NamePool,
        calls: dict[str, str],
        width: str,
    ) -> None:
        self.spec, self.style, self.rng, self.pool = spec, style, rng, pool
        self.calls, self.width = calls, width
        self.lines: list[str] = []
        self.model_init: list[str] = []
        self.constants: list[str] = []
        self.functions: list[list[str]] = []
        self.methods: list[list[str]] = []
        self.fixed: set[str] = set()
        """Scalars that are constants of the module, not arguments of its constructor."""
        self.modules: dict[str, str] = {}
        """Attribute of the module that holds an operand: PReLU, LayerNorm."""
        self.main = spec.x
        self.owned = False
        """The current value is a tensor of our own, which may be written in place."""
        self.alone = False
        """Inside a helper, which knows no ``self``."""

    def write(self) -> None:
        value = self._chain(self.spec.before, self.spec.x)
        if self.spec.row:
            value = self._row(self.spec.row, value)
        value = self._chain(self.spec.after, value)
        self.lines.append(f"return {value}")

    def _chain(self, steps: Sequence[Step], value: str) -> str:
        rng, k = self.rng, 0
        while k < len(steps):
            if self.style.helpers and not self.alone and rng.random() < 0.5:
                count = self._helper_length(steps[k:])
                if count:
                    value = self._helper(steps[k : k + count], value)
                    k += count
                    continue
            if rng.random() < self.style.use_modules * 0.5 and not self.alone:
                count = sum(1 for _ in self._plain_modules(steps[k:]))
                if count > 1:
                    value = self._sequential(steps[k : k + count], value)
                    k += count
                    continue
            value = self._step(steps[k], value)
            k += 1
        return value

    # -- pieces of files

    def _helper_length(self, steps: Sequence[Step]) -> int:
        for count, step in enumerate(steps):
            if step.operands or any(s.name for s in step.scalars):
                return count
        return min(len(steps), 2)

    def _helper(self, steps: Sequence[Step], value: str) -> str:
        """Writes ``steps`` into a function or method of their own."""
        method = self.style.helpers == "method"
        name = self.pool.take(
            ("_act", "act_fn", "activation_fn", "transform", "_inner", "squash", "pre", "mix_in")
        )
        saved = self.lines, self.main, self.owned, self.alone
        argument = "t" if self.spec.x != "t" else "z"
        self.lines, self.main, self.owned, self.alone = [], argument, False, True
        inner = argument
        for step in steps:
            inner = self._step(step, inner)
        body = [*self.lines, f"return {inner}"]
        self.lines, self.main, self.owned, self.alone = saved
        hint = ": torch.Tensor" if self.style.annotate else ""
        head = f"def {name}({'self, ' if method else ''}{argument}{hint}):"
        (self.methods if method else self.functions).append([head, *(f"    {line}" for line in body)])
        return self._finish(f"{'self.' if method else ''}{name}({value})")

    def _plain_modules(self, steps: Sequence[Step]) -> list[str]:
        made = []
        for step in steps:
            if not step.definition.modules or any(s.name for s in step.scalars):
                break
            fields = {k: self._value(s, "(") for k, s in zip("ab", step.scalars, strict=False)}
            made.append(self.rng.choice(step.definition.modules).format(**fields))
        return made

    def _sequential(self, steps: Sequence[Step], value: str) -> str:
        modules = self._plain_modules(steps)
        name = self.pool.take(("act", "net", "layers", "activations", "post", "seq"))
        if self.rng.random() < 0.5:
            self.model_init.append(f"self.{name} = nn.Sequential({', '.join(modules)})")
        else:
            self.model_init.append(f"self.{name} = nn.Sequential(")
            self.model_init += [f"    {module}," for module in modules] + [")"]
        return self._finish(f"self.{name}({value})")

    # -- values

    def _value(self, scalar: Scalar, before: str = " ") -> str:
        """A scalar as it stands after the character ``before``."""
        if scalar.name:
            return self.calls.get(scalar.name, f"self.{scalar.name}")
        if scalar.text:
            return scalar.text[0] if before in "(=," else f"({scalar.text[0]})"
        if not self.alone and self.rng.random() < 0.07:
            name = self.pool.take(("SCALE", "ALPHA", "OFFSET", "EPS", "LIMIT", "SHIFT", "K")).upper()
            if f"{name} = " not in "\n".join(self.constants) and name not in (
                "F",
                "N",
                "B",
                "M",
                "D",
                "C",
                "H",
            ):
                self.constants.append(f"{name} = {spelled(scalar.value, self.rng)}")
                return name
        return spelled(scalar.value, self.rng)

    def _fields(self, step: Step, template: str) -> dict[str, str]:
        fields = {}
        for key, scalar in zip("ab", step.scalars, strict=False):
            places = re.findall(r"(.?.)\{" + key + r"\}(.?)", template)
            inside = all(
                (left[-1:] in "(=" or left == ", ") and right in ")," for left, right in places
            ) and bool(places)
            fields[key] = self._value(scalar, "(" if inside else " ")
        return fields | {k: self.calls[o.name] for k, o in zip("yz", step.operands, strict=False)}

    def _use(self, template: str, value: str, fields: dict[str, str]) -> str:
        """Puts the value into a template; statements before its last line go into the body."""
        *before, last = template.split("\n")
        if template.count("{x}") > 1 or before:
            value = self._assign(value)
        elif _is_infix(template):
            value = wrap(value)
        for line in before:
            self.lines.append(line.format(x=value, **fields))
        return last.format(x=value, **fields)

    def _assign(self, value: str) -> str:
        if value.isidentifier():
            return value
        name = self.main
        if not self.alone:
            if self.style.locals == "many":
                self.main = name = self.pool.take(
                    ("out", "h", "result", "act", "tmp", "val", "z", "hidden", "u")
                )
            elif self.style.locals == "one" and name == self.spec.x:
                self.main = name = self.pool.take(("out", "h", "result", "y", "res", "output"))
        self.owned = True
        remark = ""
        if self.rng.random() < self.style.comments * 0.5:
            remark = f"  # {self.rng.choice(_REMARKS)}"
        elif self.rng.random() < self.style.comments * 0.3:
            self.lines.append(f"# {self.rng.choice(_REMARKS)}")
        self.lines.append(f"{name} = {value}{remark}")
        return name

    def _finish(self, value: str) -> str:
        return self._assign(value) if self.rng.random() < self.style.split else value

    # -- operators

    def _step(self, step: Step, value: str) -> str:
        op, rng = step.definition, self.rng
        if op.name == "prelu":
            return self._finish(f"self.{self.modules[step.operands[0].name]}({value})")
        inplace = _AUGMENTED.get(op.name, ())
        if inplace and rng.random() < self.style.inplace and (self.owned or not value.isidentifier()):
            template = rng.choice(inplace)
            value = self._assign(value)
            if self.owned:
                self.lines.append(template.format(x=value, **self._fields(step, template)))
                return value
        if op.modules and rng.random() < self.style.use_modules and not self.alone:
            plain = {}
            for key, scalar in zip("ab", step.scalars, strict=False):
                plain[key] = self._made_with(scalar)
            name = self._attribute(
                op.name, ("hardtanh", "clip") if op.name == "clamp" else ("act", "activation")
            )
            self.model_init.append(f"self.{name} = {rng.choice(op.modules).format(**plain)}")
            return self._finish(f"self.{name}({value})")
        template = rng.choice(op.torch)
        return self._finish(self._use(template, value, self._fields(step, template)))

    def _made_with(self, scalar: Scalar) -> str:
        """A scalar in the constructor."""
        if scalar.name:
            return f"self.{scalar.name}" if scalar.name in self.fixed else scalar.name
        return self._value(scalar, "(")

    def _attribute(self, op: str, usual: tuple[str, ...]) -> str:
        simple = _SIMPLE_NAMES.get(op, op)
        return self.pool.take((simple, *usual))

    def _row(self, row: RowStep, value: str) -> str:
        op, spec, rng = row.definition, self.spec, self.rng
        dim = str(spec.axis) if rng.random() < 0.5 and not op.last_only else str(spec.axis - len(spec.shape))
        eps = spelled(row.eps, rng) if row.eps is not None else ""
        width = self.width if self.width in self.calls.values() else str(spec.width)
        fields = {"d": dim, "k": ", keepdim=True" if row.keepdim else "", "e": eps, "D": width, "E": ""}
        if row.eps is not None and row.eps != 1e-5:
            fields["E"] = f", eps={eps}"
        if row.affine and row.affine[0].name in self.modules:
            return self._finish(f"self.{self.modules[row.affine[0].name]}({value})")
        for key, operand in zip("wc", row.affine, strict=False):
            fields[key] = self.calls[operand.name]
        if op.modules and not op.affine and rng.random() < self.style.use_modules:
            name = self._attribute(op.name, ("norm" if "norm" in op.name else "reduce_fn",))
            self.model_init.append(f"self.{name} = {rng.choice(op.modules).format(**fields)}")
            return self._finish(f"self.{name}({value})")
        template = rng.choice(op.torch)
        for name in ("mean", "var", "std", "rms", "variance"):  # locals of the longer spellings
            if f"{name} = " in template:
                other = fresh_name(rng, self.pool.used) if rng.random() < 0.4 else name
                if other == name and name in self.pool.used:
                    other = fresh_name(rng, self.pool.used)
                self.pool.used.add(other)
                template = re.sub(rf"(?<![\w.]){name}(?![\w(])", other, template)
        return self._finish(self._use(template, value, fields))


__all__ = ["ForwardWriter", "Operand", "number", "wrap"]
