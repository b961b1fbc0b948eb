"""From a hole to what is asked of the engine: a core to decode, and each candidate to judge."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from dice_engine.prompts import core_request
from dice_engine.source import pytorch
from dice_engine.source.context import ENOUGH, shortened
from dice_engine.source.fixture import with_fixture
from dice_engine.source.hole import Hole
from dice_engine.source.holes import apply, decode
from dice_engine.source.plain_pytorch import reference_source
from dice_engine.source.plan import Plan
from dice_engine.source.project import Project
from dice_engine.wire import Device, GenerateRequest, VerifyRequest

from dice_ls.suggestions.module_forms import called_class, calling_class

_MODULE_CLASS = re.compile(r"^class\s+(\w+)\s*\(", re.MULTILINE)


class NotCheckable(Exception):
    """The hole has a plan, yet nothing of the file can be called to compare a candidate; the message says what."""


@dataclass(frozen=True)
class Request:
    """One request for faster versions of ``hole``, which is a hole of ``text``."""

    path: str
    text: str
    hole: Hole
    candidates: int = 8
    device: Device = "auto"
    checkpoint: str | None = None
    project: Project = field(default_factory=Project)
    """What the file is compiled with, and in which source."""
    seed: int = 0

    @property
    def in_python(self) -> bool:
        return self.path.endswith((".py", ".pyi"))

    @property
    def _runs_as_module(self) -> bool:
        """A kernel in a Python string runs through the file's module, unless an annotation says how to launch it."""
        return self.in_python and (self.hole.kind != "kernel_body" or self.hole.plan.source == "inputs")

    def generate(self) -> GenerateRequest:
        decoded = decode(self.hole)
        pytorch_source = reference_source(self.text) if self.hole.kind == "load_inline_core" else None
        prefix, suffix = decoded.prefix, decoded.suffix
        if self.hole.kind in ("kernel_body", "selection"):
            # The model's context is short: in a long file it sees what the kernel uses and what stands around it.
            prefix = shortened(prefix, decoded.core)
            suffix = suffix if len(suffix) <= ENOUGH else suffix[:ENOUGH].rpartition("\n")[0]
        if self.hole.signature is not None:
            # The model knows how to write a class below a class.
            prefix += "\n\n\n" + calling_class(self.hole, "Model").rstrip("\n")
        core = core_request(self.hole.kind, prefix, decoded.core, suffix, pytorch_source)
        return GenerateRequest(
            id="",
            kind=core.kind,
            prefix=core.prefix,
            suffix=core.suffix,
            reference=core.reference,
            n=self.candidates,
            seed=self.seed,
            checkpoint=self.checkpoint,
            device=self.device,
        )

    def verify(self, core: str) -> VerifyRequest:
        """The document with ``core`` in the hole against the document as it is.

        Raises:
            NotCheckable: no class of a Python file runs the hole, or its fixture or the source around it is not there.
            LiteralError: the string around the hole cannot hold the core.
        """
        candidate, plan = apply(self.hole, core), self._plan()
        request = VerifyRequest("", self.text, candidate, plan=plan, device=self.device)
        if self._runs_as_module:
            reference, rewritten = self._classes(core)
            function = called(self.hole)
            makers = (plan.inputs_source or "") + function
            # A fixture runs where the reference does, and nowhere else.
            theirs = function if plan.fixture is not None else makers
            request = replace(request, original=self.text + makers, candidate=candidate + theirs)
            keep_state = self.hole.kind == "module" and self.hole.signature is None
            return replace(
                request, reference_class=reference, candidate_class=rewritten, keep_state=keep_state
            )
        if self.in_python:
            decoded = decode(self.hole)
            original = decoded.prefix + decoded.core + decoded.suffix
            request = replace(request, original=original, candidate=decoded.prefix + core + decoded.suffix)
        else:
            original, candidate = self._whole(self.text), self._whole(candidate)
            request = replace(request, original=original, candidate=candidate)
        return replace(request, kernel=self.hole.name)

    def _whole(self, text: str) -> str:
        try:
            return self.project.whole(text, self.path, self.hole.plan.through)
        except OSError as error:
            raise NotCheckable(str(error)) from None

    def _plan(self) -> Plan:
        plan = with_fixture(self.hole.plan, self.path)
        if not plan.runnable:
            raise NotCheckable(plan.reason or "nothing tells how to run it")
        return plan

    def check(self) -> None:
        """Raises NotCheckable now instead of after decoding."""
        self._plan()
        if not self.in_python:
            self._whole(self.text)
        if self._runs_as_module and self.hole.kind != "module":
            self._classes("")

    def _classes(self, core: str) -> tuple[str, str]:
        """The class that runs now, and the one that runs with ``core`` in place."""
        if self.hole.kind == "module":
            written = _MODULE_CLASS.findall(core)
            reference = self.hole.name if self.hole.signature is None else called_class(self.hole.name)
            return reference, "ModelNew" if "ModelNew" in written or not written else written[-1]
        classes = pytorch.module_classes(pytorch.parse(self.text.encode("utf-8", "surrogatepass")))
        inline = [module.name for module in classes if module.uses_inline]
        if not inline:
            raise NotCheckable(
                f"no nn.Module class of the file uses the extension of `{self.hole.name}`; add one that calls it"
            )
        name = "ModelNew" if "ModelNew" in inline else inline[-1]
        return name, name


def called(hole: Hole) -> str:
    """What makes a class of a plain function, to stand below the file's text; nothing for other holes."""
    if hole.signature is None:
        return ""
    made = calling_class(hole, called_class(hole.name))
    return f"\n\nimport torch\n\n\n{made}\n\ndef get_init_inputs():\n    return []\n"
