"""Tasks of the teacher's own, from the statements that people's tasks are made of.

A task is grown statement by statement and run as it grows, so that every shape is known and every statement works.
"""

from __future__ import annotations

import hashlib
import random
import re
from dataclasses import dataclass, field

import torch
import torch.nn as nn
import torch.nn.functional as F

from dice_training.cuke.traced.invented_ops import STATEMENTS, Statement
from dice_training.cuke.traced.samples import Task
from dice_training.cuke.words import NamePool, fresh_name

_WEIGHTS = [s.weight for s in STATEMENTS]
_LENGTHS = (1, 2, 3, 4, 5)
_LENGTH_WEIGHTS = (6, 45, 30, 14, 5)
_MAX_ELEMENTS = 1 << 15
_RANK_WEIGHTS = ((1, 8), (2, 47), (3, 22), (4, 23))
_SIZES = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 100, 128, 256)
_SIZE_NAMES = {
    2: (
        ("batch_size", "input_size"),
        ("batch_size", "in_features"),
        ("n", "dim"),
        ("B", "D"),
        ("rows", "hidden"),
    ),
    3: (("batch_size", "seq_len", "hidden_size"), ("batch_size", "channels", "length"), ("B", "T", "C")),
    4: (("batch_size", "channels", "height", "width"), ("N", "C", "H", "W"), ("b", "in_channels", "h", "w")),
}
_INPUT_NAMES = (
    "x",
    "x",
    "x",
    "x",
    "x",
    "input",
    "input_tensor",
    "inp",
    "a",
    "tensor",
    "x1",
    "inputs",
    "data",
)
_MORE_NAMES = ("y", "y", "other", "x2", "b", "target", "weight", "mask", "residual", "z", "t", "c")
_ATTRIBUTES = {
    "Linear": ("linear", "fc", "fc1", "proj"),
    "Conv2d": ("conv", "conv1"),
    "LayerNorm": ("norm", "layer_norm", "ln"),
    "Parameter": ("bias", "bias", "bias", "weight", "param", "scale", "tensor1", "values", "divisor"),
}
_UNUSED = (
    "in_features",
    "out_features",
    "in_channels",
    "out_channels",
    "hidden_size",
    "input_size",
    "num_classes",
)
"""Arguments that many constructors take and no statement asks for."""


class _DoesNotFit(Exception):
    """The statement cannot follow here."""


@dataclass
class _Growing:
    """A task under construction, and the tensors that its statements have made so far."""

    rng: random.Random
    shape: tuple[int, ...]
    pool: NamePool
    value: str
    space: dict[str, object] = field(default_factory=dict)
    inputs: dict[str, str] = field(default_factory=dict)
    """Name -> the expression in ``get_inputs``, with literal sizes."""
    init: list[str] = field(default_factory=list)
    forward: list[str] = field(default_factory=list)
    arguments: dict[str, str] = field(default_factory=dict)
    """Arguments of the constructor and their values."""


def invented_task(seed: int, index: int, attempt: int = 0) -> Task:
    """Task ``index`` of ``seed``."""
    digest = hashlib.blake2b(f"invented:{seed}:{index}:{attempt}".encode(), digest_size=8).digest()
    rng = random.Random(int.from_bytes(digest, "big"))
    generator = torch.random.get_rng_state()
    torch.manual_seed(rng.getrandbits(31))
    try:
        with torch.no_grad():
            return Task(f"invented-{seed}-{index}-{attempt}", _text(_grown(rng), rng))
    finally:
        torch.random.set_rng_state(generator)


def _grown(rng: random.Random) -> _Growing:
    rank = rng.choices([r for r, _ in _RANK_WEIGHTS], [w for _, w in _RANK_WEIGHTS])[0]
    while True:
        shape = tuple(rng.choice(_SIZES) for _ in range(rank))
        if 2 <= torch.Size(shape).numel() <= _MAX_ELEMENTS:
            break
    name = rng.choice(_INPUT_NAMES) if rng.random() < 0.85 else fresh_name(rng)
    g = _Growing(rng, shape, NamePool(rng, {name, "self", "torch", "nn", "F"}, fresh=0.15), name)
    g.space |= {"torch": torch, "nn": nn, "F": F, name: torch.randn(shape)}
    make = rng.choices(("torch.randn", "torch.rand"), (9, 2))[0]
    g.inputs[name] = f"{make}({', '.join(map(str, shape))})"
    g.space[name] = eval(g.inputs[name], {"torch": torch})
    wanted = rng.choices(_LENGTHS, _LENGTH_WEIGHTS)[0]
    tries = 0
    while len(g.forward) < wanted and tries < 60:
        tries += 1
        try:
            _append(g, rng.choices(STATEMENTS, _WEIGHTS)[0])
        except (
            _DoesNotFit,
            RuntimeError,
            IndexError,
            ValueError,
            TypeError,
            NotImplementedError,
            AssertionError,
            AttributeError,
            ArithmeticError,
        ):
            continue
    return g


def _append(g: _Growing, statement: Statement) -> None:
    rng, x = g.rng, g.space[g.value]
    if g.forward and "{x}" not in statement.expression:
        raise _DoesNotFit
    assert isinstance(x, torch.Tensor)
    new_inputs: dict[str, str] = {}
    constants: dict[str, str] = {}

    def more(make: str) -> str:
        name = g.pool.take(_MORE_NAMES)
        new_inputs[name] = make
        return name

    sizes = ", ".join(map(str, x.shape))
    rank = x.dim()

    def filled(found: re.Match[str]) -> str:
        what = found[1]
        if what == "x":
            return g.value
        if what == "m":
            return "{m}"
        if what in ("y", "z"):
            if x.dtype != torch.float32:
                raise _DoesNotFit
            return more(f"torch.randn({sizes})")
        if what == "row":
            return more(f"torch.randn({x.shape[-1]})")
        if what == "idx":
            return more(f"torch.randint(0, {x.shape[-1]}, ({sizes}{',' if rank == 1 else ''}))")
        if what == "pick":
            return more(f"torch.randint(0, {x.shape[0]}, ({rng.choice((2, 3, 4, 8))},))")
        if what == "few":
            dims = [x.shape[0], rng.choice((2, 3, 4, 8)), *x.shape[2:]]
            if rank > 2 and rng.random() < 0.5:
                dims[-1] = max(1, dims[-1] // 2)
            return more(f"torch.randint(0, {x.shape[1]}, ({', '.join(map(str, dims))}))")
        if what == "shape":
            return sizes
        if what == "chan":
            return ", ".join([str(x.shape[1 if rank > 1 else 0]), *["1"] * (rank - 2)])
        if what == "target":
            return more(f"torch.randint(0, {x.shape[1]}, ({x.shape[0]},))")
        if what in constants:
            return constants[what]
        constants[what] = _constant(g, what, x, rank, constants)
        return constants[what]

    expression = re.sub(r"\{(\w+)\}", filled, statement.expression)
    constructor = re.sub(r"\{(\w+)\}", filled, statement.constructor)
    space = dict(g.space)
    space |= {name: eval(make, {"torch": torch}) for name, make in new_inputs.items()}
    attribute, init = "", []
    if constructor:
        kind = constructor.partition("(")[0].removeprefix("nn.")
        attribute = g.pool.take(_ATTRIBUTES.get(kind, (kind.lower(), kind.lower(), "layer", "act", "op")))
        made = eval(constructor, space)
        space["made"] = made.eval() if isinstance(made, nn.Module) else made
        result = eval(expression.replace("{m}", "made"), space)
        init = [f"self.{attribute} = {constructor}"]
        expression = expression.replace("{m}", f"self.{attribute}")
    else:
        result = eval(expression, space)
    if (
        not isinstance(result, torch.Tensor)
        or not 1 <= result.numel() <= 4 * _MAX_ELEMENTS
        or result.dim() > 5
    ):
        raise _DoesNotFit
    if result.dtype.is_floating_point and not torch.isfinite(result).float().mean() > 0.4:
        raise _DoesNotFit
    if result.dtype in (torch.complex64, torch.float64):
        raise _DoesNotFit
    if x.dtype == torch.bool and result.dtype == torch.bool and rng.random() < 0.7:
        raise _DoesNotFit
    g.init += init
    g.inputs |= new_inputs
    g.space |= {name: space[name] for name in new_inputs}
    target = g.value
    if rng.random() < 0.12:
        target = g.pool.take(("out", "y", "h", "result", "output"))
    g.space[target] = result
    g.forward.append(f"{target} = {expression}")
    g.value = target


def _constant(g: _Growing, what: str, x: torch.Tensor, rank: int, so_far: dict[str, str]) -> str:
    """A size or number for a field, perhaps by the name of an argument of the constructor."""
    rng = g.rng
    if what in ("d", "e"):
        choices = [d for d in range(rank) if str(d) != so_far.get("d")]
        if not choices:
            raise _DoesNotFit
        d = rng.choice(choices)
        return str(d - rank if what == "d" and d == rank - 1 and rng.random() < 0.5 else d)
    if what == "last":
        return str(x.shape[-1])
    if what == "ch":
        if rank < 2:
            raise _DoesNotFit
        return str(x.shape[1])
    if what == "out":
        return str(rng.choice((1, 2, 3, 4, 5, 8, 10, 16, 20, 32, 64)))
    if what == "groups":
        if rank < 2:
            raise _DoesNotFit
        return str(rng.choice([n for n in range(1, x.shape[1] + 1) if x.shape[1] % n == 0]))
    if what in ("k", "j"):
        return str(rng.choice((1, 2, 2, 3, 4)))
    numbers = {"a": (0.1, 0.2, 0.01, 0.5, 0.3, 0.25, 1.0, 0.05), "b": (1.0, 2.0, 3.0, 1.5, 0.5, 2.5, 10.0)}
    text = str(rng.choice(numbers.get(what, (0.5, 1.0, 2.0, 0.0, -1.0, 0.1, -0.5, 3.0, 0.25, 1.5))))
    if text.endswith(".0") and rng.random() < 0.4:
        text = text[:-2]
    return text


def _text(g: _Growing, rng: random.Random) -> str:
    """The file: imports, class, sizes, ``get_inputs`` and ``get_init_inputs``."""
    forward, init, arguments = list(g.forward), list(g.init), dict[str, str]()
    if rng.random() < 0.65:
        forward, init, arguments = _with_arguments(g, rng, forward, init)
    names = list(g.inputs)
    annotated = rng.random() < 0.2
    kind = ": torch.Tensor" if annotated else ""
    functional = any("F." in line for line in [*forward, *init]) or rng.random() < 0.3
    own_nn = any("nn." in line for line in init) or rng.random() < 0.75
    base = "nn.Module" if own_nn else "torch.nn.Module"
    lines = (
        ["import torch"]
        + ["import torch.nn as nn"] * own_nn
        + ["import torch.nn.functional as F"] * functional
    )
    lines += ["", "", f"class Model({base}):"]
    old = rng.random() < 0.35
    if init or arguments or rng.random() < 0.8:
        lines.append(f"    def __init__({', '.join(['self', *arguments])}):")
        lines.append(f"        {'super(Model, self)' if old else 'super()'}.__init__()")
        lines += [f"        {line}" for line in init] + [""]
    arrow = " -> torch.Tensor" if annotated else ""
    lines.append(f"    def forward(self, {', '.join(name + kind for name in names)}){arrow}:")
    last = forward[-1].partition(" = ") if forward else None
    if last and last[2] and rng.random() < 0.25:
        lines += [f"        {line}" for line in forward[:-1]] + [f"        return {last[2]}"]
    else:
        others = sorted({line.partition(" = ")[0] for line in forward} - {g.value})
        result = f"{g.value}, {rng.choice(others)}" if others and rng.random() < 0.6 else g.value
        if result != g.value and annotated:
            lines[-1] = lines[-1].replace(arrow, "")
        lines += [f"        {line}" for line in forward] + [f"        return {result}"]
    lines += ["", ""]
    made, top = dict(g.inputs), list[str]()
    sizes = _SIZE_NAMES.get(len(g.shape))
    if sizes and rng.random() < 0.5:
        named = rng.choice(sizes)
        free = not set(named) & ({*names} | {*arguments})
        if free:
            top += [f"{name} = {size}" for name, size in zip(named, g.shape, strict=True)]
            literal = ", ".join(map(str, g.shape))
            made = {k: v.replace(f"({literal})", f"({', '.join(named)})") for k, v in made.items()}
    if arguments and not {*arguments} & {*names} and rng.random() < 0.6:
        top += [f"{name} = {value}" for name, value in arguments.items()]
        arguments = {name: name for name in arguments}
    if top:
        lines += [*top, "", ""]
    inputs = ["def get_inputs():"]
    if len(made) == 1 and rng.random() < 0.5:
        inputs.append(f"    return [{next(iter(made.values()))}]")
    elif rng.random() < 0.3:
        inputs.append(f"    return [{', '.join(made.values())}]")
    else:
        inputs += [f"    {name} = {value}" for name, value in made.items()] + [
            f"    return [{', '.join(made)}]"
        ]
    inits = ["def get_init_inputs():", f"    return [{', '.join(arguments.values())}]"]
    both = [inputs, inits] if rng.random() < 0.7 else [inits, inputs]
    return "\n".join([*lines, *both[0], "", "", *both[1]]) + "\n"


_NUMBER = re.compile(r"(?<![\w.\"])(?<!\de-)-?\d+(?:\.\d+)?(?![\w.\"])")
_PARAMETER = re.compile(r"(nn\.Parameter\(torch\.\w+\()([\d, ]+)\)")
_ARGUMENT_NAMES = {
    "dim": ("dim", "axis", "reduce_dim"),
    "int": ("n", "size", "k", "num", "features"),
    "float": ("alpha", "value", "scale", "threshold", "eps", "factor", "min_val", "offset"),
}


def _with_arguments(
    g: _Growing, rng: random.Random, forward: list[str], init: list[str]
) -> tuple[list[str], list[str], dict[str, str]]:
    """Some numbers of the statements as arguments of the constructor."""
    pool = NamePool(
        rng, set(g.space) | {"self"} | {line.split(" ")[0].removeprefix("self.") for line in init}, fresh=0.1
    )
    arguments: dict[str, str] = {}
    stored: list[str] = []

    def named(text: str, start: int, number: str) -> str:
        before = text[:start]
        what = "dim" if before.endswith("dim=") else "float" if "." in number else "int"
        if (match := re.search(r"(\w+)=$", before)) and what != "dim":
            return pool.take((match[1],))
        return pool.take(_ARGUMENT_NAMES[what])

    for k, line in enumerate(init):
        if made := _PARAMETER.search(line):
            if rng.random() < 0.6:
                name = pool.take((f"{line.split(' ')[0].removeprefix('self.')}_shape",))
                arguments[name] = f"({made[2]}{'' if ', ' in made[2] else ','})"
                init[k] = f"{line[: made.start(2)]}{name}{line[made.end(2) :]}"
            continue
        found = [m for m in _NUMBER.finditer(line) if rng.random() < 0.5]
        for m in reversed(found):
            name = named(line, m.start(), m[0])
            arguments[name] = m[0]
            line = line[: m.start()] + name + line[m.end() :]
        init[k] = line
    for k, line in enumerate(forward):
        found = [
            m
            for m in _NUMBER.finditer(line)
            if rng.random() < 0.55 and "[" not in line[max(0, m.start() - 1) : m.start()]
        ]
        for m in reversed(found[:2]):
            name = named(line, m.start(), m[0])
            arguments[name] = m[0]
            stored.append(f"self.{name} = {name}")
            line = line[: m.start()] + f"self.{name}" + line[m.end() :]
        forward[k] = line
    if rng.random() < 0.3:
        for name in rng.sample(_UNUSED, rng.choice((1, 2))):
            if name not in arguments and name not in g.space:
                arguments = {name: str(rng.choice(_SIZES)), **arguments}
                stored += [f"self.{name} = {name}"] * (rng.random() < 0.6)
    return forward, stored + init, arguments
