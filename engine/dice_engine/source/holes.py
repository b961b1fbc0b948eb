"""The holes of a document: what the engine may write, where, and how it can be run.

``find_holes`` reads a ``.cu``/``.cuh`` or ``.py`` text; ``decode`` gives what the engine reads of a hole and ``apply``
the document with another core. Nothing outside the core ever changes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import PurePath

from dice_engine.source import load_inline, pytorch
from dice_engine.source.annotation import AnnotationError, AnnotationErrors
from dice_engine.source.annotation_parse import parse_annotation
from dice_engine.source.annotation_text import DiceLine, dice_lines
from dice_engine.source.cuda import KernelSpan, comment_spans, find_kernels
from dice_engine.source.hole import DecodedHole, Hole, HoleKind
from dice_engine.source.lines import LineMap, dominant_newline, to_bytes, to_text
from dice_engine.source.plan import Plan
from dice_engine.source.plans import kernel_plan
from dice_engine.source.project import FILE as PROJECT_FILE
from dice_engine.source.project import Project
from dice_engine.source.python_string import StringLiteral, check_content, decode_content, encode_content

CUDA_SUFFIXES = frozenset({".cu", ".cuh"})
PYTHON_SUFFIXES = frozenset({".py", ".pyi"})

_RANK: dict[HoleKind, int] = {"selection": 0, "kernel_body": 1, "load_inline_core": 2, "module": 3}
_NO_INPUTS = "the file has no get_inputs(): say what to run it with"


class UnsupportedFile(ValueError):
    """The file is neither CUDA nor Python."""


def find_holes(text: str, path: str, project: Project | None = None) -> list[Hole]:
    """All holes of a document, in order, those that cannot be edited included (with their reason).

    ``project`` may annotate what has no annotation of its own.

    Raises:
        UnsupportedFile: by the suffix of ``path``.
    """
    return _Document(text, path, project).holes()


def find_annotation_errors(text: str, path: str) -> list[AnnotationError]:
    """Every fault of the ``@dice`` lines of a document, lines that stand above nothing included."""
    if "@dice" not in text:
        return []
    document = _Document(text, path)
    document.holes()
    document.find_stray_lines()
    return sorted(document.errors, key=lambda error: (error.line, error.column))


def hole_at(holes: list[Hole], offset: int) -> Hole | None:
    """The hole that a cursor at byte ``offset`` means: editable before not, kernel before source before module."""
    around = [hole for hole in holes if hole.anchor[0] <= offset <= hole.anchor[1]]
    return min(
        around,
        key=lambda hole: (not hole.editable, _RANK[hole.kind], hole.anchor[1] - hole.anchor[0]),
        default=None,
    )


def decode(hole: Hole) -> DecodedHole:
    """What the engine reads: inside a Python string the CUDA text that Python sees, else the document's own text."""
    if hole.string_content is None:
        return DecodedHole(*(part.replace("\r\n", "\n") for part in (hole.prefix, hole.core, hole.suffix)))
    before, after = _around_core(hole)
    return DecodedHole(*(decode_content(part, hole.string_prefix) for part in (before, hole.core, after)))


def edit(hole: Hole, core: str) -> str:
    """The document text for a core that the engine wrote: escaped for a surrounding string, newlines as around it.

    Raises:
        LiteralError: if the surrounding literal cannot hold the core.
    """
    core = core.replace("\r\n", "\n")
    if hole.string_content is None:
        return core.replace("\n", hole.newline)
    encoded = encode_content(core, hole.string_prefix, hole.newline)
    before, after = _around_core(hole)
    decoded = decode(hole)
    check_content(before + encoded + after, hole.string_prefix, decoded.prefix + core + decoded.suffix)
    return encoded


def apply(hole: Hole, core: str) -> str:
    """The whole document with ``core`` (as the engine wrote it) in the hole.

    Raises:
        LiteralError: if the surrounding literal cannot hold the core.
    """
    return hole.prefix + edit(hole, core) + hole.suffix


def _around_core(hole: Hole) -> tuple[str, str]:
    """The literal's content before and after the core, as it stands in the document."""
    assert hole.string_content is not None
    start, end = hole.string_content
    before = to_text(to_bytes(hole.prefix)[start:])
    after = to_text(to_bytes(hole.suffix)[: end - hole.end_byte])
    return before, after


def _with_words(text: str, kernel: KernelSpan, words: str) -> Plan:
    """The plan of a kernel as if the project's words stood above it."""
    data = to_bytes(text)
    told = to_text(data[: kernel.start]) + f"/* @dice {words} */ " + to_text(data[kernel.start :])
    return _told_by_project(kernel_plan(told, kernel.name))


def _told_by_project(plan: Plan) -> Plan:
    origin = {
        part: PROJECT_FILE if said.startswith("annotation") else said for part, said in plan.origin.items()
    }
    reason = plan.reason
    if reason is not None and reason.startswith("annotation:"):
        reason = f"{PROJECT_FILE}: " + re.sub(r"^annotation: (?:line \d+, column \d+: )?", "", reason)
    return replace(plan, origin=origin, reason=reason)


class _Document:
    """One document while its holes are being found."""

    def __init__(self, text: str, path: str, project: Project | None = None) -> None:
        self.text = text
        self.path, self.project = path, project
        self.data = to_bytes(text)
        self.lines = LineMap(text)
        self.suffix = PurePath(path).suffix.lower()
        self.newline = dominant_newline(text)
        self.errors: list[AnnotationError] = []
        self.comments: set[tuple[int, int]] = set()
        """Document ranges of the comments that stand above a kernel or a module."""
        self.inline_texts: list[StringLiteral] = []

    def holes(self) -> list[Hole]:
        if self.suffix in CUDA_SUFFIXES:
            found = self._kernels(self.text, lambda name: kernel_plan(self.text, name))
        elif self.suffix in PYTHON_SUFFIXES:
            found = self._python()
        else:
            raise UnsupportedFile("neither a CUDA file (.cu, .cuh) nor a Python file (.py)")
        return sorted(found, key=lambda hole: (hole.start_byte, _RANK[hole.kind]))

    def find_stray_lines(self) -> None:
        if self.suffix in CUDA_SUFFIXES:
            spans = comment_spans(self.text)
        else:
            spans = [m.span() for m in re.finditer(rb"^[ \t]*#[^\r\n]*", self.data, re.MULTILINE)]
            for literal in self.inline_texts:
                inside = comment_spans(literal.value)
                spans += [(literal.document_start(a), literal.document_end(b)) for a, b in inside]
        for span in spans:
            for line in self._dice_lines(*span) if span not in self.comments else []:
                if not any(self._overlaps(span, known) for known in self.comments):
                    message = "this @dice line stands directly above no kernel and no nn.Module class"
                    end = line.column + len(line.text.rstrip())
                    self.errors.append(
                        AnnotationError(line.line, line.column, max(end, line.column + 1), message)
                    )

    @staticmethod
    def _overlaps(a: tuple[int, int], b: tuple[int, int]) -> bool:
        return a[0] < b[1] and b[0] < a[1]

    def _kernels(
        self, cuda: str, plan: Callable[[str], Plan], literal: StringLiteral | None = None
    ) -> list[Hole]:
        kernels = find_kernels(cuda)
        named: dict[str, list[KernelSpan]] = {}
        for kernel in kernels:
            named.setdefault(kernel.name, []).append(kernel)
        return [self._kernel(kernel, named[kernel.name], plan, literal) for kernel in kernels]

    def _kernel(
        self,
        kernel: KernelSpan,
        twins: list[KernelSpan],
        plan: Callable[[str], Plan],
        literal: StringLiteral | None,
    ) -> Hole:
        start, end, anchor = kernel.body_start, kernel.body_end, (kernel.start, kernel.end)
        comments = list(kernel.comments)
        if literal is not None:
            start, end = literal.document_start(start), literal.document_end(end)
            anchor = (literal.document_start(anchor[0]), literal.document_end(anchor[1]))
            comments = [(literal.document_start(a), literal.document_end(b)) for a, b in comments]
        self.comments.update(comments)
        if kernel.reason is not None:
            chosen = Plan.none(kernel.reason)
        else:
            chosen = self._kernel_plan(kernel, twins, comments, plan, literal)
        return self._hole("kernel_body", kernel.name, (start, end), anchor, kernel.reason, chosen, literal)

    def _kernel_plan(
        self,
        kernel: KernelSpan,
        twins: list[KernelSpan],
        comments: list[tuple[int, int]],
        plan: Callable[[str], Plan],
        literal: StringLiteral | None,
    ) -> Plan:
        if len(twins) > 1:
            where = "in branches of an #if" if kernel.conditional else "in this file"
            return Plan.none(
                f"{len(twins)} kernels are named {kernel.name} {where}: which one runs is not known"
            )
        text = self.text if literal is None else literal.value
        if not any(b"@dice" in self.data[start:end] for start, end in comments):
            words = self._words_of_project("kernel", kernel.name)
            return plan(kernel.name) if words is None else _with_words(text, kernel, words)
        chosen = kernel_plan(text, kernel.name)
        self._check_annotation(kernel, comments, chosen)
        return chosen

    def _words_of_project(self, kind: str, name: str) -> str | None:
        return self.project.annotation(kind, name, self.path) if self.project is not None else None

    def _check_annotation(self, kernel: KernelSpan, comments: list[tuple[int, int]], plan: Plan) -> None:
        """Keep the faults of an annotation; ``plan`` is what came of it."""
        lines = [line for span in comments for line in self._dice_lines(*span)]
        try:
            parse_annotation(lines).to_plan(kernel.params, kernel.name, kernel.template_params, plan)
        except AnnotationErrors as error:
            self.errors += error.errors

    def _python(self) -> list[Hole]:
        file = pytorch.parse(self.data)
        functions = file.functions()
        has_inputs = "get_inputs" in functions
        inputs = (
            Plan("inputs", origin={"inputs": "get_inputs in this file"})
            if has_inputs
            else Plan.none(_NO_INPUTS)
        )
        found: list[Hole] = []
        for source in load_inline.inline_sources(file):
            core = (source.start, source.end)
            plan = inputs if source.reason is None else Plan.none(source.reason)
            found.append(self._hole("load_inline_core", source.name, core, core, source.reason, plan))
            if source.literal is not None:
                self.inline_texts.append(source.literal)
                found += self._kernels(source.literal.value, lambda _name: inputs, source.literal)
            elif source.strings:
                found += self._declined_kernels(source)
        return found + self._modules(file, has_inputs, functions)

    def _declined_kernels(self, source: load_inline.InlineSource) -> list[Hole]:
        """The kernels in strings without a fixed text: shown, with the reason, and not editable."""
        blank = bytearray(re.sub(rb"[^\r\n]", b" ", self.data))
        for start, end in source.strings:
            blank[start:end] = self.data[start:end]
        text = to_text(bytes(blank))
        reason = source.reason or "the CUDA source has no fixed text"
        return [
            self._hole(
                "kernel_body",
                kernel.name,
                (kernel.body_start, kernel.body_end),
                (kernel.start, kernel.end),
                reason,
                Plan.none(reason),
            )
            for kernel in find_kernels(text)
        ]

    def _modules(self, file: pytorch.PythonFile, has_inputs: bool, functions: set[str]) -> list[Hole]:
        classes = pytorch.module_classes(file)
        named_model = any(module.name == "Model" for module in classes)
        found = []
        for module in classes:
            self.comments.update(module.comments)
            lines = [line for span in module.comments for line in self._dice_lines(*span)]
            words = self._words_of_project("module", module.name) if not lines else None
            if words is not None:
                lines = [DiceLine(words, 0, 0)]
            has_init = "get_init_inputs" in functions
            seen = self.project.recorded.plan(self.path, module.name, has_init) if self.project else None
            if module.uses_inline or not (lines or has_inputs or seen):
                continue
            if lines:
                try:
                    plan = parse_annotation(lines, "module").module_plan(module.inputs)
                except AnnotationErrors as error:
                    self.errors += error.errors if words is None else []
                    where = "the annotation" if words is None else f"the annotation in {PROJECT_FILE}"
                    plan = Plan.none(f"{where} has a fault: {error.errors[0].message}")
                if words is not None:
                    plan = _told_by_project(plan)
            elif seen is not None:
                plan = seen
            elif module.used_by is not None or (named_model and module.name != "Model"):
                owner = "Model" if named_model else module.used_by
                plan = Plan.none(f"get_inputs() makes the inputs of {owner}, not of {module.name}")
            else:
                plan = Plan("inputs", origin={"inputs": "get_inputs in this file"})
            rewritten = next((o for o in classes if o.name == "ModelNew" and o.start > module.start), None)
            reason = None
            if rewritten is not None:
                # What is inserted here defines ModelNew too: the later class would be judged and run in its place.
                line = self.lines.position(rewritten.start)[0] + 1
                reason = f"ModelNew on line {line} would replace what is written here; rewrite that one"
                plan = Plan.none(reason)
            at = (module.insert, module.insert)
            found.append(self._hole("module", module.name, at, (module.start, module.end), reason, plan))
        return found

    def _dice_lines(self, start: int, end: int) -> list[DiceLine]:
        if b"@dice" not in self.data[start:end]:
            return []
        return dice_lines(self.data[start:end].decode("utf-8", "replace"), *self.lines.position(start))

    def _hole(
        self,
        kind: HoleKind,
        name: str,
        core: tuple[int, int],
        anchor: tuple[int, int],
        reason: str | None,
        plan: Plan,
        literal: StringLiteral | None = None,
    ) -> Hole:
        start, end = core
        body = to_text(self.data[start:end])
        return Hole(
            kind=kind,
            name=name,
            data=self.data,
            start_byte=start,
            end_byte=end,
            anchor=anchor,
            editable=reason is None,
            reason=reason,
            plan=plan,
            newline=dominant_newline(body) if "\n" in body else self.newline,
            string_prefix=literal.opening if literal else "",
            string_content=(literal.content_start, literal.content_end) if literal else None,
        )
