"""The state of one interpreted call, and the steps that expressions, statements and library calls share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tree_sitter import Node

from dice_engine.source import host_types as types
from dice_engine.source.host_parse import HostFunction, deduce
from dice_engine.source.host_types import CType, parse_type
from dice_engine.source.host_values import (
    VOID,
    Cell,
    Closure,
    Device,
    Dim3,
    Dtype,
    FunctionRef,
    HostError,
    Num,
    Place,
    Pointer,
    Runtime,
    Scope,
    Unsupported,
)

if TYPE_CHECKING:
    from dice_engine.source.host import HostProgram

_STEP_LIMIT = 200_000
_DEPTH_LIMIT = 60
_TENSOR_TYPES = {"Tensor", "torch::Tensor", "at::Tensor"}
_OPAQUE_TYPES = ("cuda", "at::", "c10::", "torch::", "std::string", "std::optional", "cublas", "CU", "dim3")


class RuntimeFailure(Exception):
    """Carries the runtime's own exception past the interpreter, unchanged."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class Machine:
    """Interprets one ``HostProgram.call``: counts steps, finds names, converts values, calls functions."""

    def __init__(self, program: HostProgram, runtime: Runtime) -> None:
        self.program = program
        self.runtime = runtime
        self.steps = 0
        self.depth = 0

    def step(self, node: Node) -> None:
        self.steps += 1
        if self.steps > _STEP_LIMIT:
            raise self.unsupported("the host code runs too long to be interpreted", node)

    def unsupported(self, what: str, node: Node) -> Unsupported:
        return Unsupported(f"{what}, line {node.start_point[0] + 1}")

    def evaluate(self, node: Node | None, scope: Scope) -> Any:
        if node is None:
            raise Unsupported("an expression is missing")
        return host_eval.evaluate(self, node, scope)

    # -- names and types

    def lookup(self, name: str, scope: Scope) -> Place | None:
        return scope.find(name) or scope.find(name.rsplit("::", 1)[-1])

    def resolve(self, ctype: CType, scope: Scope) -> CType:
        """Follow aliases and template parameters down to a type the machine knows, where there is one."""
        for _ in range(16):
            meaning = scope.find_type(ctype.base)
            if meaning is None or meaning == ctype.base:
                break
            inner = parse_type(meaning)
            ctype = CType(inner.base, inner.stars + ctype.stars, ctype.reference, inner.const or ctype.const)
        return ctype

    def type_of(self, text: str, scope: Scope) -> CType:
        return self.resolve(parse_type(text), scope)

    def is_type(self, name: str, scope: Scope) -> bool:
        base = self.type_of(name, scope).base
        return (
            base in types.KINDS or types.size_of(base) is not None or base in _TENSOR_TYPES or base == "dim3"
        )

    # -- values

    def world(self, method: str, *args: Any) -> Any:
        """Ask the runtime; its own exceptions leave the interpreter as they are."""
        try:
            result = getattr(self.runtime, method)(*args)
        except (Unsupported, HostError):
            raise
        except Exception as error:
            raise RuntimeFailure(error) from error
        return self.from_outside(result)

    def is_tensor(self, value: Any) -> bool:
        return value is not None and bool(self.runtime.is_tensor(value))

    def from_outside(self, value: Any) -> Any:
        """A value of the world as the interpreter sees it."""
        if isinstance(value, (bool, int, float)):
            return Num(
                value, "bool" if isinstance(value, bool) else "int64" if isinstance(value, int) else "float64"
            )
        if value is None or isinstance(value, (str, Pointer, Dtype, Device)) or self.runtime.is_tensor(value):
            return value
        if isinstance(value, tuple):
            return tuple(self.from_outside(v) for v in value)
        if isinstance(value, list):
            return [self.from_outside(v) for v in value]
        named = str(value)
        if named.startswith("torch."):
            return Dtype(named.removeprefix("torch."))
        kind, _, index = named.partition(":")
        if kind in ("cuda", "cpu"):
            return Device(kind, int(index) if index.isdigit() else 0)
        return value

    def to_outside(self, value: Any) -> Any:
        if isinstance(value, Num):
            return value.value
        if isinstance(value, (list, tuple)):
            return type(value)(self.to_outside(v) for v in value)
        if value is VOID:
            return None
        return value

    def convert(self, value: Any, ctype: CType, node: Node | None = None) -> Any:
        """What a variable of ``ctype`` (already resolved) holds when ``value`` is stored into it."""
        kind = types.KINDS.get(ctype.base) if ctype.stars == 0 else None
        if kind is not None:
            if isinstance(value, list) and len(value) <= 1:
                value = value[0] if value else Num(0, kind)
            if isinstance(value, Num):
                return types.convert(value, kind)
            if kind == "bool":
                return Num(self.truth(value), kind)
            raise Unsupported(f"{_kind_of(value)} where a {ctype} is expected{_at(node)}")
        if ctype.stars:
            return None if isinstance(value, Num) and value.value == 0 else value
        if ctype.base == "dim3":
            return as_dim3(value, node)
        if isinstance(value, list):
            if ctype.base.startswith(("std::tuple", "std::pair")):
                return tuple(value)
            if ctype.base in _TENSOR_TYPES or ctype.base.startswith(
                ("std::optional", "c10::optional", "at::optional")
            ):
                return value[0] if value else None
            return list(value)
        return copied(value)

    def truth(self, value: Any, node: Node | None = None) -> bool:
        if isinstance(value, Num):
            return bool(value.value)
        if value is None:
            return False
        if isinstance(value, (Pointer, Closure, FunctionRef)) or self.is_tensor(value):
            return True
        raise Unsupported(f"{_kind_of(value)} used as a condition{_at(node)}")

    # -- calls

    def call(
        self,
        name: str,
        args: Sequence[Any],
        explicit: tuple[str, ...] = (),
        bindings: dict[str, str] | None = None,
        places: Sequence[Place | None] = (),
        node: Node | None = None,
    ) -> Any:
        """Call a host function of the file. ``places``: the caller's variables, for reference parameters."""
        function = self._overload(name, args, node)
        if self.depth >= _DEPTH_LIMIT:
            raise Unsupported(f"calls nested deeper than {_DEPTH_LIMIT}{_at(node)}")
        scope = Scope(self.program.globals_for(self))
        self._bind_templates(function, args, explicit, bindings or {}, scope, node)
        for index, param in enumerate(function.params):
            ctype = self.resolve(CType(param.ctype, int(param.pointer), const=param.const), scope)
            place = places[index] if index < len(places) else None
            if function.references[index] and place is not None:
                scope.cells[param.name] = place
                continue
            if index < len(args):
                value = args[index]
            else:
                value = host_eval.evaluate_text(self, function.defaults[index] or "", scope)
            scope.cells[param.name] = Cell(self.convert(value, ctype, node), str(ctype))
        body = self.program.body(function)
        self.depth += 1
        try:
            result = host_exec.run_body(self, body, scope)
        finally:
            self.depth -= 1
        returned = self.type_of(function.return_type, scope)
        if returned.base == "void" or result is VOID:
            return VOID
        return result if returned.base == "auto" else self.convert(result, returned, node)

    def _overload(self, name: str, args: Sequence[Any], node: Node | None) -> HostFunction:
        fitting = [
            f
            for f in self.program.overloads(name)
            if len(args) <= len(f.params) and all(d is not None for d in f.defaults[len(args) :])
        ]
        if not fitting:
            raise Unsupported(
                f"no function {name!r} that takes {len(args)} arguments in this file{_at(node)}"
            )
        if len(fitting) == 1:
            return fitting[0]
        return max(
            fitting,
            key=lambda f: sum(_fits(p.ctype, p.pointer, a) for p, a in zip(f.params, args, strict=False)),
        )

    def _bind_templates(
        self,
        function: HostFunction,
        args: Sequence[Any],
        explicit: tuple[str, ...],
        bindings: dict[str, str],
        scope: Scope,
        node: Node | None,
    ) -> None:
        if not function.template_params:
            return
        given = {**dict(zip((p.name for p in function.template_params), explicit, strict=False)), **bindings}
        missing = [p for p in function.template_params if p.name not in given]
        if missing:
            ordered = tuple(given[p.name] for p in function.template_params if p.name in given)
            known = deduce(
                function.template_params, ordered, function.params, [type_of_value(a) for a in args]
            )
            if known is None:
                raise Unsupported(f"template arguments of {function.name!r} are not known{_at(node)}")
            given = dict(zip((p.name for p in function.template_params), known, strict=True)) | given
        for param in function.template_params:
            if param.kind == "type":
                scope.types[param.name] = str(self.type_of(given[param.name], scope.parent or scope))
            else:
                value = host_eval.evaluate_text(self, given[param.name], scope)
                scope.cells[param.name] = Cell(value)


def copied(value: Any) -> Any:
    """C++ value semantics for what Python would share."""
    if isinstance(value, Dim3):
        return Dim3(value.x, value.y, value.z)
    return list(value) if isinstance(value, list) else value


def as_dim3(value: Any, node: Node | None = None) -> Dim3:
    if isinstance(value, Dim3):
        return Dim3(value.x, value.y, value.z)
    parts = value if isinstance(value, list) else [value]
    if len(parts) == 1 and isinstance(parts[0], Dim3):
        return as_dim3(parts[0])
    if len(parts) > 3 or not all(isinstance(p, Num) for p in parts):
        raise Unsupported(f"a launch dimension that is no number{_at(node)}")
    return Dim3(*(int(types.convert(p, "uint32").value) for p in parts))


def type_of_value(value: Any) -> tuple[str, bool]:
    """``(ctype, is pointer)`` for template deduction; "" where the value says nothing."""
    if isinstance(value, Pointer):
        return value.ctype, True
    if isinstance(value, Num):
        return types.C_NAMES[value.kind], False
    return "", False


def _fits(ctype: str, pointer: bool, value: Any) -> int:
    """How well a value fits a parameter, to choose between overloads."""
    given, is_pointer = type_of_value(value)
    if pointer != is_pointer:
        return 0
    if ctype == given or types.KINDS.get(ctype, ctype) == types.KINDS.get(given, given):
        return 2
    return 1 if isinstance(value, Num) and ctype in types.KINDS else 0


def _kind_of(value: Any) -> str:
    return f"a value of kind {type(value).__name__}"


def _at(node: Node | None) -> str:
    return f", line {node.start_point[0] + 1}" if node is not None else ""


from dice_engine.source import host_eval, host_exec  # noqa: E402  (they need Machine's name first)
