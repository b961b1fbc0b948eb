"""``inputs(...)`` and ``init(...)`` of a module's annotation: a closed list of calls, turned into Python text."""

from __future__ import annotations

import ast

from dice_engine.source.annotation_text import AnnotationText, Item, Span, suggestion

_MAKERS = ("randn", "rand", "randint", "randperm", "zeros", "ones", "full", "arange", "tensor")
_DTYPES = (
    "float32",
    "float16",
    "bfloat16",
    "float64",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint8",
    "bool",
    "float",
    "half",
    "double",
    "long",
    "int",
)
_CONSTANTS = (int, float, bool, str, type(None))
_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Div, ast.LShift, ast.Pow)


class _Refused(ValueError):
    pass


def input_makers(
    text: AnnotationText, item: Item, tensors: bool, symbols: bool = False
) -> tuple[tuple[str | None, str], ...]:
    """The arguments of ``inputs`` (``tensors``: makers allowed) or ``init`` as (name or None, Python expression).

    ``symbols``: names of sizes may stand for numbers.
    """
    found: list[tuple[str | None, str]] = []
    for part in text.split(item.value, ","):
        name, value = _named(text, part)
        try:
            node = ast.parse(value.text, mode="eval").body
            found.append((name, _source(node, tensors, symbols)))
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            reason = str(error) if isinstance(error, _Refused) else f"`{value.text}` cannot be read"
            text.error(value, reason)
    return tuple(found)


def _named(text: AnnotationText, part: Span) -> tuple[str | None, Span]:
    head, sign, _ = part.text.partition("=")
    if sign and head.strip().isidentifier():
        return head.strip(), text.span(part.start + len(head) + 1, part.end)
    return None, part


def symbols_of(source: str) -> set[str]:
    """The size symbols in an expression of ``input_makers``."""
    return {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)} - {"torch"}


def _source(node: ast.expr, tensors: bool, symbols: bool) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, _CONSTANTS):
        return repr(node.value)
    if symbols and isinstance(node, ast.Name) and node.id != "torch":
        return node.id
    if isinstance(node, ast.Tuple | ast.List):
        items = [_source(item, False, symbols) for item in node.elts]
        if isinstance(node, ast.List):
            return f"[{', '.join(items)}]"
        return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return f"-{_source(node.operand, False, symbols)}"
    if isinstance(node, ast.BinOp) and isinstance(node.op, _ARITHMETIC):
        sides = node.left, node.right
        known = (ast.Constant, ast.BinOp, ast.UnaryOp, *((ast.Name,) if symbols else ()))
        if all(isinstance(side, known) for side in sides):
            left, right = (_source(side, False, symbols) for side in sides)
            return f"({left} {_OPERATORS[type(node.op)]} {right})"
    if tensors and isinstance(node, ast.Call):
        return _maker(node, symbols)
    known = f"Known makers: {', '.join(_MAKERS)}." if tensors else "Numbers, strings, lists and None are."
    raise _Refused(f"`{ast.unparse(node)}` is not allowed here. {known}")


_OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.FloorDiv: "//",
    ast.Div: "/",
    ast.LShift: "<<",
    ast.Pow: "**",
}


def _maker(node: ast.Call, symbols: bool) -> str:
    called = ast.unparse(node.func).removeprefix("torch.")
    if called not in _MAKERS:
        hint = suggestion(called, _MAKERS)
        raise _Refused(f"unknown input maker `{called}`.{hint} Known makers: {', '.join(_MAKERS)}.")
    arguments = [_source(argument, False, symbols) for argument in node.args]
    for keyword in node.keywords:
        if keyword.arg == "dtype":
            name = ast.unparse(keyword.value).removeprefix("torch.")
            if name not in _DTYPES:
                hint = suggestion(name, _DTYPES)
                raise _Refused(f"unknown dtype `{name}`.{hint} Known: {', '.join(_DTYPES)}.")
            arguments.append(f"dtype=torch.{name}")
        elif keyword.arg in ("low", "high", "size"):
            arguments.append(f"{keyword.arg}={_source(keyword.value, False, symbols)}")
        else:
            raise _Refused(f"`{called}` takes dtype, low, high and size by name, not `{keyword.arg}`")
    return f"torch.{called}({', '.join(arguments)})"
