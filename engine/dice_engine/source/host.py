"""The host side of a CUDA source, interpreted instead of compiled.

``HostProgram(source).call("run", args, runtime)`` runs a wrapper or a torch function of the file: its arithmetic here,
its tensors and launches through the ``Runtime``. Code beyond the usual constructs raises ``Unsupported`` (compile it
instead); launches issued before that moment have happened, so start again from fresh inputs.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Hashable
from typing import Any

from dice_engine.source.host_declare import declare_global
from dice_engine.source.host_eval import evaluate
from dice_engine.source.host_exec import ControlFlow, run_body
from dice_engine.source.host_machine import Machine, RuntimeFailure, Semantics
from dice_engine.source.host_parse import HostFunction, KernelDecl, TemplateParam, declarations
from dice_engine.source.host_tree import Node, parse_tree
from dice_engine.source.host_values import (
    Device,
    Dtype,
    HostError,
    LaunchCall,
    Pointer,
    Runtime,
    Scope,
    Unsupported,
)

__all__ = [
    "Device",
    "Dtype",
    "HostError",
    "HostFunction",
    "HostProgram",
    "KernelDecl",
    "LaunchCall",
    "Pointer",
    "Runtime",
    "TemplateParam",
    "Unsupported",
]

_WORD = re.compile(r"[A-Za-z_]\w*")


class HostProgram:
    """Kernels and host functions of one source text. Building it never fails; calling may."""

    def __init__(self, source: str) -> None:
        self._declared = declarations(source)
        self.kernels: dict[str, KernelDecl] = self._declared.kernels
        self.functions: dict[str, HostFunction] = {
            name: found[0] for name, found in self._declared.functions.items()
        }
        self._bodies: dict[int, Node] = {}
        self._constants: Scope | None = None
        self._globals: tuple[list[str], str] | None = None
        self._launchers: dict[str, list[HostFunction]] = {}
        for name in self.functions:
            for function in self.overloads(name):
                for kernel in function.launches:
                    self._launchers.setdefault(kernel, []).append(function)

    def overloads(self, name: str) -> list[HostFunction]:
        return self._declared.functions.get(name, [])

    def launchers(self, kernel: str) -> list[HostFunction]:
        """The functions that may reach a launch of ``kernel``, in order of their first declaration."""
        return self._launchers.get(kernel, [])

    def reads(self, function: HostFunction) -> tuple[Hashable, ...]:
        """Everything of the file that a call of ``function`` may depend on: equal values, equal behaviour."""
        everywhere, digest = self._reads_of_globals()
        texts = [function.body, *everywhere, *filter(None, function.defaults)]
        reached: dict[str, None] = {function.name: None}
        while texts:
            for name in _WORD.findall(texts.pop()):
                if name not in reached and (name in self.functions or name in self.kernels):
                    reached[name] = None
                    for other in self.overloads(name):
                        texts += [other.body, *filter(None, other.defaults)]
        parts = [part for name in reached for part in (*self.overloads(name), self.kernels.get(name))]
        return (function, digest, *parts)

    def _reads_of_globals(self) -> tuple[list[str], str]:
        """The functions and kernels that the file's globals name, and a digest of the globals."""
        if self._globals is None:
            text = "\0".join(f"{line} {text}" for line, text in self._declared.globals)
            names = [n for n in {*_WORD.findall(text)} if n in self.functions or n in self.kernels]
            self._globals = (sorted(names), hashlib.sha256(text.encode(errors="replace")).hexdigest())
        return self._globals

    def call(
        self, function: str, args: list[Any], runtime: Runtime, bindings: dict[str, str] | None = None
    ) -> Any:
        """Run ``function`` with plain arguments (int, float, bool, str, None, tensors, ``Pointer``, lists).

        ``bindings`` gives template arguments by name. Returns plain Python: a tensor, number, list or tuple of those,
        or None. Raises ``Unsupported``, ``HostError``, or whatever the runtime itself raised.
        """
        machine = Machine(self, runtime, Semantics(evaluate, run_body))
        try:
            return machine.to_outside(
                machine.call(function, [machine.from_outside(a) for a in args], bindings=bindings)
            )
        except RuntimeFailure as failure:
            raise failure.error from None
        except (Unsupported, HostError):
            raise
        except RecursionError:
            raise Unsupported(f"host code of {function!r} is nested too deeply") from None
        except ControlFlow:
            raise Unsupported(f"break or continue outside a loop in {function!r}") from None

    def body(self, function: HostFunction) -> Node:
        """The parsed body of a function of this file; ``Unsupported`` when the grammar finds an error in it."""
        key = id(function)
        if key not in self._bodies:
            root = parse_tree(_with_head(function.body))
            definition = root.named_children[0] if root.named_children else None
            body = definition.field("body") if definition is not None else None
            if root.has_error or body is None or len(root.named_children) != 1:
                raise Unsupported(f"syntax not understood in {function.name!r} (line {function.line})")
            self._bodies[key] = body
        return self._bodies[key]

    def globals_for(self, machine: Machine) -> Scope:
        """The file's constants, enums and aliases: one scope a call, kept when nothing in it can change."""
        if self._constants is not None:
            return self._constants
        scope = Scope()
        for line, text in self._declared.globals:
            declare_global(machine, line, text, scope)
        if all(_constant(text) for _, text in self._declared.globals):
            self._constants = scope
        return scope


def _constant(declaration: str) -> bool:
    words = set(declaration.split("=")[0].split())
    return bool(words & {"const", "constexpr", "using", "typedef", "enum", "struct", "class", "template"})


def _with_head(body: str) -> str:
    """Make a body a function of its own without moving its lines."""
    lines = len(body) - len(body.lstrip("\n"))
    return "\n" * lines + "void body() " + body[lines:]
