"""Inside the recorded program: counts and times torch functions and calls of the program's own modules.

Loaded by its path into the user's process; it imports torch and the standard library only. What it knows is written
to ``$DICE_RECORD_FOLDER/<pid>.json`` when the program ends.
"""

from __future__ import annotations

import atexit
import inspect
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode, resolve_name

_ROOT = os.environ.get("DICE_RECORD_ROOT") or str(Path.cwd())
_ATTRIBUTES = ("__get__", "__set__", "__delete__")
"""``x.shape``, ``loss.grad_fn``: no work of the program's."""
_MOST_EVENTS = 2000
"""Pairs of GPU events that are open at once; then the GPU is waited for."""


class _Times:
    """Calls and seconds by key; GPU work is timed by events, everything else by the clock."""

    def __init__(self) -> None:
        self.calls: dict[Any, int] = {}
        self.seconds: dict[Any, float] = {}
        self._open: list[tuple[Any, Any, Any]] = []

    def begin(self, on_gpu: bool) -> Any:
        if not on_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def end(self, key: Any, begun: Any) -> None:
        self.calls[key] = self.calls.get(key, 0) + 1
        if isinstance(begun, float):
            self.seconds[key] = self.seconds.get(key, 0.0) + time.perf_counter() - begun
            return
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        self._open.append((key, begun, event))
        if len(self._open) >= _MOST_EVENTS:
            self.settle()

    def settle(self) -> None:
        if self._open:
            torch.cuda.synchronize()
        for key, begun, ended in self._open:
            self.seconds[key] = self.seconds.get(key, 0.0) + begun.elapsed_time(ended) / 1000
        self._open.clear()


class _Functions:
    """Plain functions of the program, known by the first torch operation of each of their calls."""

    def __init__(self) -> None:
        self._first: dict[Any, int] = {}
        """By code: the earliest operation in it, as an offset into its instructions."""
        self._calls: dict[Any, int] = {}
        """By code and arguments: how many calls reached that operation."""
        self._frame: Any = None
        """The call that was seen last: a loop in it reaches its first operation again."""

    def note(self, frame: Any) -> None:
        """Called before an operation of this frame. Only the first counts: later ones may see other values."""
        code, at = frame.f_code, frame.f_lasti
        again, self._frame = frame is self._frame, frame
        if again or at > self._first.get(code, at):
            return
        owner = frame.f_globals.get(code.co_name)
        if getattr(inspect.unwrap(owner), "__code__", None) is not code if callable(owner) else True:
            return  # a method, a lambda, a function inside another
        if at < self._first.get(code, at + 1):
            self._first[code] = at
            self._calls = {key: calls for key, calls in self._calls.items() if key[0] is not code}
        names = code.co_varnames[: code.co_argcount]
        given = _described([frame.f_locals.get(name) for name in names])
        if given and any("shape" in one for one in given):
            key = (code, json.dumps(given))
            self._calls[key] = self._calls.get(key, 0) + 1

    def report(self, ops: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The functions with the seconds of the operations that stand in them."""
        found = []
        for (code, given), calls in self._calls.items():
            last = max((line for *_, line in code.co_lines() if line), default=code.co_firstlineno)
            inside = range(code.co_firstlineno, last + 1)
            seconds = sum(
                op["seconds"] for op in ops if op["file"] == code.co_filename and op["line"] in inside
            )
            entry = {"function": code.co_name, "file": code.co_filename, "line": code.co_firstlineno}
            found.append(entry | {"inputs": json.loads(given), "calls": calls, "seconds": seconds})
        return found


class Recorder(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.ops, self.modules = _Times(), _Times()
        self.functions = _Functions()
        self._begun: list[tuple[int, Any]] = []
        self._made: dict[int, Any] = {}
        """By module: what its constructor was given, where that is plain data."""
        self._classes: dict[type, bool] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        frame = _caller() if getattr(func, "__name__", "") not in _ATTRIBUTES else None
        if frame is None:
            return func(*args, **(kwargs or {}))
        file, line = frame.f_code.co_filename, frame.f_lineno
        place = (file, line, _line(file, line))
        self.functions.note(frame)
        del frame
        given = _described(args, tensors_only=True)
        if not given:
            return func(*args, **(kwargs or {}))
        begun = self.ops.begin(_on_gpu(args))
        result = func(*args, **(kwargs or {}))
        self.ops.end((_name(func), *place, json.dumps(given)), begun)
        return result

    def made(self, module: Any, args: Any, kwargs: Any) -> None:
        self._made[id(module)] = _described(args) if not kwargs else None

    def own(self, module: Any) -> bool:
        """Whether the module's class is the program's, not a library's."""
        kind = type(module)
        if kind not in self._classes:
            file = getattr(sys.modules.get(kind.__module__), "__file__", None) or ""
            self._classes[kind] = _ours(str(Path(file).absolute()))
        return self._classes[kind]

    def before(self, module: Any, args: Any) -> None:
        if self.own(module):
            self._begun.append((id(module), self.modules.begin(_on_gpu(args))))

    def after(self, module: Any, args: Any, output: Any) -> None:
        if not self.own(module):
            return
        while self._begun:  # those above have failed
            who, begun = self._begun.pop()
            if who == id(module):
                made = self._made.get(id(module))
                self.modules.end((type(module), json.dumps(_described(args)), json.dumps(made)), begun)
                return

    def report(self) -> dict[str, Any]:
        self.ops.settle()
        self.modules.settle()
        ops = [
            {"op": op, "file": file, "line": line, "text": text, "inputs": json.loads(given)}
            | {"calls": calls, "seconds": self.ops.seconds.get((op, file, line, text, given), 0.0)}
            for (op, file, line, text, given), calls in self.ops.calls.items()
        ]
        modules = []
        for key, calls in self.modules.calls.items():
            kind, given, made = key
            try:
                file, line = inspect.getsourcefile(kind) or "", inspect.getsourcelines(kind)[1]
            except (OSError, TypeError):
                continue
            modules.append(
                {
                    "class": kind.__name__,
                    "file": str(Path(file).absolute()),
                    "line": line,
                    "inputs": json.loads(given),
                }
                | {"init": json.loads(made), "calls": calls, "seconds": self.modules.seconds.get(key, 0.0)}
            )
        device = torch.cuda.get_device_name() if torch.cuda.is_initialized() else "cpu"
        return {"device": device, "ops": ops, "modules": modules, "functions": self.functions.report(ops)}


def start() -> None:
    recorder = Recorder()
    _watch_constructors(recorder)
    register_module_forward_pre_hook(recorder.before)
    register_module_forward_hook(recorder.after)
    recorder.__enter__()
    atexit.register(_write, recorder)


def _watch_constructors(recorder: Recorder) -> None:
    """Classes defined from now on tell what their constructors are given."""
    earlier = torch.nn.Module.__init_subclass__

    def init_subclass(cls: Any, **kwargs: Any) -> None:
        earlier(**kwargs)
        init = cls.__dict__.get("__init__")
        if init is None:
            return

        def remembering(self: Any, *args: Any, **named: Any) -> None:
            if type(self) is cls:
                recorder.made(self, args, named)
            init(self, *args, **named)

        remembering.__wrapped__ = init  # type: ignore[attr-defined]
        cls.__init__ = remembering

    torch.nn.Module.__init_subclass__ = classmethod(init_subclass)  # type: ignore[assignment]


def _write(recorder: Recorder) -> None:
    recorder.__exit__(None, None, None)
    folder = os.environ.get("DICE_RECORD_FOLDER")
    report = recorder.report()
    if folder and (report["ops"] or report["modules"]):
        Path(folder, f"{os.getpid()}.json").write_text(json.dumps(report), encoding="utf-8")


def _described(args: Any, tensors_only: bool = False) -> list[Any] | None:
    """Arguments as JSON: tensors by type, shape and strides, plain values as they are; None where one is neither."""
    found: list[Any] = []
    for arg in args:
        if isinstance(arg, torch.Tensor):
            dtype = str(arg.dtype).removeprefix("torch.")
            found.append({"dtype": dtype, "shape": list(arg.shape), "stride": list(arg.stride())})
        elif tensors_only:
            continue
        elif arg is None or isinstance(arg, (bool, int, float, str)):
            found.append({"value": arg})
        elif isinstance(arg, (list, tuple)) and all(isinstance(one, (bool, int, float)) for one in arg):
            found.append({"value": list(arg)})
        else:
            return None
    return found


def _on_gpu(args: Any) -> bool:
    return any(isinstance(arg, torch.Tensor) and arg.is_cuda for arg in args)


def _ours(file: str) -> bool:
    return file.startswith(_ROOT + os.sep) and "site-packages" not in file and os.sep + ".venv" not in file


def _caller() -> Any:
    """The frame of the program's own code that called; None when there is none near."""
    frame = sys._getframe(2)
    for _ in range(12):
        if frame is None or _ours(frame.f_code.co_filename):
            return frame
        frame = frame.f_back  # type: ignore[assignment]
    return None


def _line(file: str, number: int) -> str:
    import linecache

    return linecache.getline(file, number).strip()


def _name(func: Any) -> str:
    return resolve_name(func) or getattr(func, "__name__", "?")
