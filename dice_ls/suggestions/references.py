"""What a kernel or module is compared with when its author asks for a check."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from dice_engine.source import pytorch
from dice_engine.source.cuda import KernelSpan, find_kernels
from dice_engine.source.fixture import with_fixture
from dice_engine.source.hole import Hole
from dice_engine.source.holes import decode, find_holes
from dice_engine.source.lines import to_bytes, to_text
from dice_engine.source.project import Project
from dice_engine.wire import Device, VerifyRequest

from dice_ls.suggestions.module_forms import called_class, calling_class
from dice_ls.suggestions.requests import NotCheckable, called

_NAMES = ("{}_reference", "{}_ref", "reference_{}", "ref_{}", "{}_naive", "naive_{}")
_GIT_LIMIT_S = 5


@dataclass(frozen=True)
class Check:
    """One comparison: ``reference`` says in words what the code is compared with."""

    reference: str
    request: VerifyRequest


async def check_of(text: str, path: str, opened: str, hole: Hole, device: Device, project: Project) -> Check:
    """Against a reference in the file, else the committed version, else what the file was when it was opened.

    Raises NotCheckable when there is nothing else to compare with, or no way to run it.
    """
    hole = replace(hole, plan=with_fixture(hole.plan, path))
    if not hole.plan.runnable:
        raise NotCheckable(hole.plan.reason or "nothing tells how to run it")
    if hole.kind == "module" or hole.string_content is not None or hole.kind == "load_inline_core":
        return _of_module(text, hole, device)
    beside = _beside(hole)
    if beside is not None:
        return _kernel(beside[1], text, path, hole, beside[0], device, project)
    committed = await _committed(path)
    for earlier, words in (
        (committed, "its committed version"),
        (opened, "what it was when the file was opened"),
    ):
        if earlier is not None:
            original = await asyncio.to_thread(_with_body_of, text, hole, earlier, path)
            if original is not None:
                return _kernel(original, text, path, hole, words, device, project)
    raise NotCheckable(
        f"there is no other version of it: name one `{hole.name}_reference`, commit the file, or edit the kernel"
    )


def _kernel(
    original: str, text: str, path: str, hole: Hole, words: str, device: Device, project: Project
) -> Check:
    try:
        texts = [project.whole(one, path, hole.plan.through) for one in (original, text)]
    except OSError as error:
        raise NotCheckable(str(error)) from None
    return Check(words, VerifyRequest("", *texts, kernel=hole.name, plan=hole.plan, device=device))


def _beside(hole: Hole) -> tuple[str, str] | None:
    """Another kernel of the file that is by its name the reference, and the source with its body in the hole."""
    decoded = decode(hole)
    text = decoded.prefix + decoded.core + decoded.suffix
    kernels = {kernel.name: kernel for kernel in find_kernels(text) if kernel.editable}
    own = kernels.get(hole.name)
    for pattern in _NAMES:
        other = kernels.get(pattern.format(hole.name))
        if own is not None and other is not None and _same_parameters(own, other):
            body = to_text(to_bytes(text)[other.body_start : other.body_end])
            line = text.encode("utf-8", "surrogatepass")[: other.start].count(b"\n") + 1
            return f"`{other.name}` on line {line}", decoded.prefix + body + decoded.suffix
    return None


def _same_parameters(one: KernelSpan, other: KernelSpan) -> bool:
    return [(p.name, p.ctype, p.pointer) for p in one.params] == [
        (p.name, p.ctype, p.pointer) for p in other.params
    ]


def _with_body_of(text: str, hole: Hole, earlier: str, path: str) -> str | None:
    """``text`` with the kernel's body as it is in ``earlier``; None where that is the same or not there."""
    if earlier == text:
        return None
    then = [one for one in find_holes(earlier, path) if one.kind == "kernel_body" and one.name == hole.name]
    if len(then) != 1 or not then[0].editable or then[0].core.split() == hole.core.split():
        return None
    return hole.prefix + then[0].core + hole.suffix


async def _committed(path: str) -> str | None:
    """The file's text in the last commit, by git's plumbing: nothing that the repository configures is run."""
    file = Path(path)
    with suppress(OSError, asyncio.TimeoutError, UnicodeDecodeError):
        if not await asyncio.to_thread(file.is_file):
            return None
        process = await asyncio.create_subprocess_exec(
            *("git", "-c", "core.fsmonitor=", "cat-file", "blob", f"HEAD:./{file.name}"),
            cwd=file.parent,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        output, _ = await asyncio.wait_for(process.communicate(), _GIT_LIMIT_S)
        return output.decode("utf-8") if process.returncode == 0 else None
    return None


def _of_module(text: str, hole: Hole, device: Device) -> Check:
    """The class that the file gives as the reference against the one that is being written."""
    if hole.signature is not None:
        return _of_function(text, hole, device)
    classes = {one.name: one for one in pytorch.module_classes(pytorch.parse(to_bytes(text)))}
    inline = [name for name, one in classes.items() if one.uses_inline]
    if hole.kind == "module":
        pairs = [(f"{hole.name}Reference", hole.name), (hole.name, "ModelNew")]
    else:
        written = ["ModelNew"] if "ModelNew" in inline else inline[-1:]
        plain = [name for name, one in classes.items() if not one.uses_inline]
        ordered = sorted(plain, key=lambda name: (not name.endswith("Reference"), name != "Model"))
        pairs = [(reference, one) for one in written for reference in ordered]
    pair = next(((a, b) for a, b in pairs if a in classes and b in classes), None)
    if pair is None:
        raise NotCheckable("the file has no second nn.Module class to compare with")
    source = text + (hole.plan.inputs_source or "")
    request = VerifyRequest("", source, source, plan=hole.plan, device=device)
    return Check(f"the class {pair[0]}", replace(request, reference_class=pair[0], candidate_class=pair[1]))


def _of_function(text: str, hole: Hole, device: Device) -> Check:
    """A function against the one that is by its name its reference."""
    known = {one.name for one in pytorch.plain_functions(pytorch.parse(to_bytes(text)))}
    other = next((name for pattern in _NAMES if (name := pattern.format(hole.name)) in known), None)
    if other is None:
        raise NotCheckable(f"there is no other version of it: name one `{hole.name}_reference`")
    source = text + (hole.plan.inputs_source or "") + called(hole)
    source += "\n\n" + calling_class(hole, called_class(other), other)
    request = VerifyRequest("", source, source, plan=hole.plan, device=device)
    classes = {"reference_class": called_class(other), "candidate_class": called_class(hole.name)}
    return Check(f"the function {other}", replace(request, **classes))
