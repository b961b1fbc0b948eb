"""Rules that are checked inside the runner: what the candidate's code did to the process it shares with its class."""

from __future__ import annotations

import builtins
import contextlib
import sys
import threading
import time
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils import cpp_extension

_WATCHED: tuple[Any, ...] = (
    torch,
    torch.Tensor,
    F,
    torch.nn,
    torch.nn.Module,
    torch.cuda,
    torch.cuda.Event,
    torch.random,
    torch.testing,
    torch.autograd,
    cpp_extension,
    time,
    builtins,
)


REFERENCE_USED = "the candidate used the reference's class "
"""How the message of a disarmed method begins."""


@dataclass
class Identities:
    """Which objects the names of torch, time and builtins meant at one moment."""

    objects: dict[str, Any]

    @staticmethod
    def take() -> Identities:
        return Identities(dict(_names()))

    def changed(self) -> list[str]:
        """Names that mean another object now, that are gone, or that hide a class's inherited one."""
        now = dict(_names())
        changed = [
            name
            for name, value in self.objects.items()
            if now.get(name) is not value and not _wrapped_by_torch(now.get(name), value)
        ]
        return sorted(changed + [name for name in now if name not in self.objects and _inherited(name)])


def _inherited(name: str) -> bool:
    """Whether ``Tensor.allclose`` and the like hide what a base class of a watched class has."""
    prefix, _, attribute = name.rpartition(".")
    classes = [owner for owner in _WATCHED if isinstance(owner, type) and owner.__name__ == prefix]
    return any(hasattr(base, attribute) for owner in classes for base in owner.__mro__[1:])


class ThreadWatch:
    """Counts the threads that are started in this process from now on."""

    def __init__(self) -> None:
        self.count = 0
        start = threading.Thread.start

        def counted(thread: threading.Thread) -> None:
            self.count += "torch._inductor" not in sys.modules  # torch's own compiler starts some
            start(thread)

        setattr(threading.Thread, "start", counted)  # noqa: B010


def _wrapped_by_torch(now: Any, before: Any) -> bool:
    """Whether torch's compiler, when it was imported, put its own wrapper around a function (``manual_seed``)."""
    code = getattr(now, "__code__", None)
    folder = str(Path(torch.__file__).parent / "_")
    return (
        isinstance(now, types.FunctionType)
        and getattr(now, "__wrapped__", None) is before
        and code is not None
        and code.co_filename.startswith((folder + "dynamo", folder + "compile"))
    )


def _names() -> Iterator[tuple[str, Any]]:
    for owner in _WATCHED:
        prefix = getattr(owner, "__name__", str(owner))
        for name, value in list(vars(owner).items()):
            if callable(value) or isinstance(value, property | classmethod | staticmethod):
                yield f"{prefix}.{name}", value


def left_running() -> str | None:
    """Threads and processes that code under test has started and not ended, in words."""
    if any(name.startswith("torch._inductor") for name in sys.modules):
        return None  # torch's own compiler keeps workers
    others = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    if others:
        return f"thread {others[0]}"
    children: list[str] = []
    with contextlib.suppress(OSError):
        for task in Path("/proc/self/task").iterdir():
            children += (task / "children").read_text().split()
    return f"{len(children)} process{'es' if len(children) > 1 else ''}" if children else None


@dataclass
class Disarmed:
    """The reference's class inside the candidate's text, after its methods were made to raise."""

    name: str
    original: type
    functions: set[int]

    def relation(self, candidate: Any, model: torch.nn.Module | None) -> str | None:
        """How ``candidate`` (a class) still hangs on the reference's class, in words."""
        if not isinstance(candidate, type):
            return None
        if candidate is self.original or self.original in candidate.__mro__:
            return f"{candidate.__name__} derives from {self.name}"
        if model is not None and any(type(part) is self.original for part in model.modules()):
            return f"{candidate.__name__} holds an instance of {self.name}"
        for part in candidate.__mro__:
            for name, value in vars(part).items():
                if isinstance(value, types.FunctionType) and id(value) in self.functions:
                    return f"{candidate.__name__}.{name} is {self.name}'s own method"
        return None


def disarm(namespace: dict[str, Any], name: str) -> Disarmed | None:
    """Make every method that class ``name`` defines raise ReferenceUsed, also for whoever holds the function."""
    original = namespace.get(name)
    if not isinstance(original, type):
        return None
    functions: set[int] = set()
    for value in vars(original).values():
        function = value.__func__ if isinstance(value, staticmethod | classmethod) else value
        if isinstance(function, types.FunctionType):
            functions.add(id(function))
            function.__code__ = _tripwire(function, name)
    return Disarmed(name, original, functions)


def _tripwire(function: types.FunctionType, name: str) -> types.CodeType:
    """Code that raises, with the free variables that ``function`` has (Python demands that they agree)."""
    free = function.__code__.co_freevars
    lines = ["def maker():"]
    lines += [f"  {variable} = None" for variable in free]
    lines += ["  def tripwire(*_, **__):"]
    lines += [f"    {variable}" for variable in free]
    lines += [f"    raise RuntimeError({REFERENCE_USED + name!r})", "  return tripwire"]
    scope: dict[str, Any] = {}
    exec(compile("\n".join(lines), "<reference>", "exec"), scope)
    return scope["maker"]().__code__
