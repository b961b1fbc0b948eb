"""Interpreted host code at the speed of compiled code: noted once, replayed for every timed call.

The interpreter needs up to a millisecond for what compiled host code does in microseconds; a clock would blame the
candidate for it. A host function that only looks at shapes, types and numbers does the same for every call with the
same of those, so its allocations and launches are noted and done again with the new tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from dice_engine.source.host_values import LaunchCall, Pointer
from dice_engine.verify.torch_runtime import TorchRuntime, address, plain_argument

_METADATA = frozenset(
    """
    size sizes stride strides numel dim ndimension is_contiguous scalar_type dtype device is_cuda get_device itemsize
    element_size nbytes defined data_ptr mutable_data_ptr const_data_ptr layout requires_grad is_sparse storage_offset
    is_floating_point is_complex is_signed
    """.split()  # noqa: SIM905
)


@dataclass(frozen=True)
class _Slot:
    index: int


class Recording:
    """A ``Runtime`` that passes everything on to ``inner`` and notes what must be done again.

    ``broken`` when what the host function does depends on more than shapes, types and numbers.
    """

    def __init__(self, inner: TorchRuntime, tensors: list[torch.Tensor]):
        self.inner = inner
        self._held: list[torch.Tensor] = []
        self._slots: dict[int, int] = {}
        self._steps: list[Callable[[list[Any]], None]] = []
        self.broken = False
        for tensor in tensors:
            self._give_slot(tensor)

    def is_tensor(self, value: Any) -> bool:
        return self.inner.is_tensor(value)

    def tensor_method(self, tensor: torch.Tensor, name: str, args: list[Any], template: str | None) -> Any:
        result = self.inner.tensor_method(tensor, name, args, template)
        if name not in _METADATA:
            inner, what = self.inner, [self._template(tensor), self._template(args)]
            self._note(
                result,
                lambda env: inner.tensor_method(_fill(what[0], env), name, _fill(what[1], env), template),
            )
        return result

    def torch_function(self, name: str, args: list[Any], kwargs_options: dict[str, Any]) -> Any:
        result = self.inner.torch_function(name, args, kwargs_options)
        if name != "cuda.device_property":
            inner, what = self.inner, self._template(args)
            self._note(result, lambda env: inner.torch_function(name, _fill(what, env), kwargs_options))
        return result

    def launch(self, call: LaunchCall) -> None:
        self.inner.launch(call)
        values = [plain_argument(argument) for argument in call.args]
        pointers = [
            (index, self._slot(argument.base).index, address(argument) - argument.base.data_ptr())
            for index, argument in enumerate(call.args)
            if isinstance(argument, Pointer) and argument.base is not None
        ]
        module: Any = self.inner.module
        shape = (call.kernel, call.template_args, call.grid, call.block, call.shared)
        prepared = module.prepare(*shape, values) if hasattr(module, "prepare") else None
        launches = self.inner.launches

        def again(env: list[Any]) -> None:
            launches.count += 1
            for index, slot, offset in pointers:
                values[index] = env[slot].data_ptr() + offset
                if prepared is not None:
                    prepared.point(index, values[index])
            if prepared is not None:
                prepared()
            else:
                module.launch(*shape, values)

        self._steps.append(again)

    def finish(self, result: Any) -> Callable[[list[torch.Tensor]], Any]:
        """The function that does it all again with other tensors of the same kinds."""
        steps, wanted = tuple(self._steps), self._template(result)

        def replay(tensors: list[torch.Tensor]) -> Any:
            env: list[Any] = list(tensors)
            for step in steps:
                step(env)
            return _fill(wanted, env)

        return replay

    def _note(self, result: Any, action: Callable[[list[Any]], Any]) -> None:
        produced = list(result) if isinstance(result, list | tuple) else [result]
        if any(not (item is None or isinstance(item, torch.Tensor)) for item in produced):
            self.broken = True
        for item in produced:
            if isinstance(item, torch.Tensor):
                self._give_slot(item)

        def again(env: list[Any]) -> None:
            value = action(env)
            env.extend(value if isinstance(value, list | tuple) else [] if value is None else [value])

        self._steps.append(again)

    def _give_slot(self, tensor: torch.Tensor) -> None:
        self._slots[id(tensor)] = len(self._held)
        self._held.append(tensor)

    def _slot(self, tensor: torch.Tensor) -> _Slot:
        if id(tensor) not in self._slots:
            self.broken = True
        return _Slot(self._slots.get(id(tensor), 0))

    def _template(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self._slot(value)
        if isinstance(value, Pointer):
            return (
                Pointer(self._slot(value.base), value.offset, value.ctype)
                if value.base is not None
                else value
            )
        if isinstance(value, list | tuple):
            return type(value)(self._template(item) for item in value)
        return value


def _fill(value: Any, env: list[Any]) -> Any:
    if isinstance(value, _Slot):
        return env[value.index]
    if isinstance(value, Pointer) and isinstance(value.base, _Slot):
        return Pointer(env[value.base.index], value.offset, value.ctype)
    if isinstance(value, list | tuple):
        return type(value)(_fill(item, env) for item in value)
    return value


def signature(args: list[Any]) -> tuple[Any, ...]:
    """What a replay may depend on: kinds of tensors, and all other arguments as they are."""
    return tuple(
        (arg.shape, arg.stride(), arg.dtype, arg.data_ptr() % 16, arg.requires_grad)
        if isinstance(arg, torch.Tensor)
        else repr(arg)
        for arg in args
    )


class Replays:
    """Noted calls of one extension's functions, by function and signature."""

    def __init__(self, call: Callable[[str, list[Any], Any], Any], runtime: TorchRuntime):
        self._call = call
        self._runtime = runtime
        self._known: dict[tuple[Any, ...], Callable[[list[torch.Tensor]], Any] | None] = {}

    def __call__(self, function: str, args: list[Any]) -> Any:
        """The function's result; from the second call with a signature on by replay."""
        key = (function, *signature(args))
        tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
        if key in self._known:
            replay = self._known[key]
            return replay(tensors) if replay is not None else self._call(function, args, self._runtime)
        self._known[key] = None
        if any(isinstance(arg, list | tuple | dict) for arg in args):
            return self._call(function, args, self._runtime)
        recording = Recording(self._runtime, tensors)
        result = self._call(function, args, recording)
        if not recording.broken:
            self._known[key] = recording.finish(result)
        return result
