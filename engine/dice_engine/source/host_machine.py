"""The state of one interpreted call, and the steps that expressions, statements and library calls share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from dice_engine.source import host_types as types
from dice_engine.source.host_convert import as_dim3, at_line, copied, fits, kind_of, text_of, type_of_value
from dice_engine.source.host_parse import HostFunction
from dice_engine.source.host_signature import deduce, explicit_bindings
from dice_engine.source.host_tree import Node, expression_tree
from dice_engine.source.host_types import CType, parse_type
from dice_engine.source.host_values import (
    VOID,
    Cell,
    Closure,
    Device,
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


class Semantics(NamedTuple):
    """How expressions and function bodies are run; given to the machine because they need it themselves."""

    evaluate: Callable[[Machine, Node, Scope], Any]
    run_body: Callable[[Machine, Node, Scope], Any]


class Machine:
    """Interprets one ``HostProgram.call``: counts steps, finds names, converts values, calls functions."""

    def __init__(self, program: HostProgram, runtime: Runtime, semantics: Semantics) -> None:
        self.program = program
        self.runtime = runtime
        self.semantics = semantics
        self.steps = 0
        self.depth = 0
        self._globals: Scope | None = None

    def step(self, node: Node) -> None:
        self.steps += 1
        if self.steps > _STEP_LIMIT:
            raise self.unsupported("the host code runs too long to be interpreted", node)

    def unsupported(self, what: str, node: Node) -> Unsupported:
        return Unsupported(f"{what}, line {node.line}")

    def evaluate(self, node: Node | None, scope: Scope) -> Any:
        if node is None:
            raise Unsupported("an expression is missing")
        return self.semantics.evaluate(self, node, scope)

    def evaluate_text(self, text: str, scope: Scope) -> Any:
        """Evaluate an expression given as text (default arguments, template arguments)."""
        value = expression_tree(text)
        if value is None:
            raise Unsupported(f"expression {text!r}")
        return self.evaluate(value, scope)

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
            raise Unsupported(f"{kind_of(value)} where a {ctype} is expected{at_line(node)}")
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
        raise Unsupported(f"{kind_of(value)} used as a condition{at_line(node)}")

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
        if self._globals is None:
            self._globals = self.program.globals_for(self)
        scope = Scope(self._globals)
        self._bind_templates(function, args, explicit, bindings or {}, scope, node)
        for index, param in enumerate(function.params):
            ctype = self.resolve(CType(param.ctype, int(param.pointer), const=param.const), scope)
            place = places[index] if index < len(places) else None
            if function.references[index] and place is not None:
                scope.cells[param.name] = place
                continue
            value = (
                args[index]
                if index < len(args)
                else self.evaluate_text(function.defaults[index] or "", scope)
            )
            scope.cells[param.name] = Cell(self.convert(value, ctype, node), str(ctype))
        body = self.program.body(function)
        result = self._run(body, scope, node)
        returned = self.type_of(function.return_type, scope)
        if returned.base == "void" or result is VOID:
            return VOID
        return result if returned.base == "auto" else self.convert(result, returned, node)

    def _run(self, body: Node, scope: Scope, node: Node | None) -> Any:
        if self.depth >= _DEPTH_LIMIT:
            raise Unsupported(f"calls nested deeper than {_DEPTH_LIMIT}{at_line(node)}")
        self.depth += 1
        try:
            return self.semantics.run_body(self, body, scope)
        finally:
            self.depth -= 1

    def run_closure(self, closure: Closure, args: list[Any], node: Node) -> Any:
        """Call a lambda. Its captures see the enclosing variables themselves."""
        inner = closure.scope.inner()
        declarator = closure.node.field("declarator")
        parameters = declarator.field("parameters") if declarator is not None else None
        declared = parameters.named_children if parameters is not None else []
        if len(declared) != len(args):
            raise self.unsupported(f"lambda of {len(declared)} parameters called with {len(args)}", node)
        for parameter, value in zip(declared, args, strict=True):
            target = parameter.field("declarator")
            stars = 0
            while target is not None and target.type != "identifier":
                stars += target.type == "pointer_declarator"
                target = target.field("declarator") or next(iter(target.named_children), None)
            ctype = parse_type(text_of(parameter.field("type")))
            resolved = self.resolve(CType(ctype.base, ctype.stars + stars), inner)
            stored = value if resolved.base == "auto" else self.convert(value, resolved, node)
            inner.cells[text_of(target)] = Cell(stored, "" if resolved.base == "auto" else str(resolved))
        body = closure.node.field("body")
        if body is None:
            raise self.unsupported("lambda without a body", node)
        return self._run(body, inner, node)

    def _overload(self, name: str, args: Sequence[Any], node: Node | None) -> HostFunction:
        fitting = [
            f
            for f in self.program.overloads(name)
            if len(args) <= len(f.params) and all(d is not None for d in f.defaults[len(args) :])
        ]
        if not self.program.overloads(name):
            raise Unsupported(f"no complete function {name!r} in this file{at_line(node)}")
        if not fitting:
            raise Unsupported(f"no {name!r} in this file takes {len(args)} arguments{at_line(node)}")
        if len(fitting) == 1:
            return fitting[0]
        return max(
            fitting,
            key=lambda f: sum(fits(p.ctype, p.pointer, a) for p, a in zip(f.params, args, strict=False)),
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
        given = {**explicit_bindings(function.template_params, explicit), **bindings}
        values = deduce(function.template_params, given, function.params, [type_of_value(a) for a in args])
        if values is None:
            raise Unsupported(f"template arguments of {function.name!r} are not known{at_line(node)}")
        given = dict(zip((p.name for p in function.template_params), values, strict=True))
        for param in function.template_params:
            if param.kind == "type":
                scope.types[param.name] = str(self.type_of(given[param.name], scope.parent or scope))
            else:
                value = self.evaluate_text(given[param.name], scope)
                scope.cells[param.name] = Cell(value)
