"""One document while its holes are being found: kernels, sources in Python strings, classes and functions."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import PurePath

from dice_engine.source import load_inline, module_plans, pytorch
from dice_engine.source.annotation import AnnotationError, AnnotationErrors
from dice_engine.source.annotation_parse import parse_annotation
from dice_engine.source.annotation_text import DiceLine, dice_lines
from dice_engine.source.cuda import KernelSpan, comment_spans, find_kernels
from dice_engine.source.hole import Hole, HoleKind
from dice_engine.source.lines import LineMap, dominant_newline, to_bytes, to_text
from dice_engine.source.module_plans import told_by_project
from dice_engine.source.plan import Plan
from dice_engine.source.plan_units import Units
from dice_engine.source.plans import kernel_plan
from dice_engine.source.project import Project
from dice_engine.source.python_string import StringLiteral

CUDA_SUFFIXES = frozenset({".cu", ".cuh"})
PYTHON_SUFFIXES = frozenset({".py", ".pyi"})

RANK: dict[HoleKind, int] = {"selection": 0, "kernel_body": 1, "load_inline_core": 2, "module": 3}
_NO_INPUTS = "the file has no get_inputs(): say what to run it with"


_MOST_BYTES = 2 << 20
"""A file of tiny kernels takes 5 ms for each of them, any other 100 bytes of memory for each of its own."""


class UnsupportedFile(ValueError):
    """The file is neither CUDA nor Python, or it is too large."""


def _string_plan(inputs: Plan, called: bool, cuda: str, kernel: str) -> Plan:
    """The plan of a kernel in a Python string: the file's own inputs where a class runs it, else its host function."""
    if inputs.runnable and called:
        return inputs
    plan = kernel_plan(cuda, kernel)
    return plan if plan.runnable else inputs


def _with_words(text: str, kernel: KernelSpan, words: str) -> Plan:
    """The plan of a kernel as if the project's words stood above it."""
    data = to_bytes(text)
    told = to_text(data[: kernel.start]) + f"/* @dice {words} */ " + to_text(data[kernel.start :])
    return told_by_project(kernel_plan(told, kernel.name))


class DocumentHoles:
    """One document while its holes are being found."""

    def __init__(self, text: str, path: str, project: Project | None = None) -> None:
        self.text = text
        self.path, self.project = path, project
        self.data = to_bytes(text)
        if len(self.data) > _MOST_BYTES:
            size, most = len(self.data) / (1 << 20), _MOST_BYTES >> 20
            raise UnsupportedFile(f"too large: {size:.1f} MiB, files of at most {most} MiB are read")
        self.lines = LineMap(text)
        self.suffix = PurePath(path).suffix.lower()
        self.newline = dominant_newline(text)
        self.errors: list[AnnotationError] = []
        self.comments: set[tuple[int, int]] = set()
        """Document ranges of the comments that stand above a kernel or a module."""
        self.inline_texts: list[StringLiteral] = []

    def holes(self) -> list[Hole]:
        if self.suffix in CUDA_SUFFIXES:
            found = self._kernels(self.text, Units(self.text, self.path, self.project).plan)
        elif self.suffix in PYTHON_SUFFIXES:
            found = self._python()
        else:
            raise UnsupportedFile("neither a CUDA file (.cu, .cuh) nor a Python file (.py)")
        return sorted(found, key=lambda hole: (hole.start_byte, RANK[hole.kind]))

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
                    message = "this @dice line stands directly above no kernel, nn.Module class or function"
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
        chosen = plan(kernel.name) if literal is None else kernel_plan(text, kernel.name)
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
        called = any(module.uses_inline for module in pytorch.module_classes(file))
        found: list[Hole] = []
        for source in load_inline.inline_sources(file):
            core = (source.start, source.end)
            plan = inputs if source.reason is None else Plan.none(source.reason)
            found.append(self._hole("load_inline_core", source.name, core, core, source.reason, plan))
            if source.literal is not None:
                self.inline_texts.append(source.literal)
                found += self._kernels(
                    source.literal.value,
                    partial(_string_plan, inputs, called, source.literal.value),
                    source.literal,
                )
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
        """The classes and plain functions that something tells how to run."""
        classes = pytorch.module_classes(file)
        has_init = "get_init_inputs" in functions
        found = []
        for one in [*classes, *pytorch.plain_functions(file)]:
            self.comments.update(one.comments)
            if one.uses_inline or one.name in module_plans.MAKERS:
                continue
            words = self._words(one)
            seen = self.project.recorded.plan(self.path, one, has_init) if self.project else None
            if words.lines:
                plan = words.plan(one)
                self.errors += [] if words.by_project else words.errors
            elif seen is not None:
                plan = seen
            elif has_inputs and isinstance(one, pytorch.ModuleClass):
                plan = module_plans.of_file(one, classes)
            else:
                continue
            reason = module_plans.replaced_by(one, classes, self.lines)
            if reason is not None:
                plan = Plan.none(reason)
            hole = self._hole(
                "module", one.name, (one.insert, one.insert), (one.start, one.end), reason, plan
            )
            found.append(
                replace(hole, signature=one.signature) if isinstance(one, pytorch.PlainFunction) else hole
            )
        return found

    def _words(self, one: pytorch.Definition) -> module_plans.Words:
        """What stands in the annotation above a class or function, else in the project's file."""
        lines = [line for span in one.comments for line in self._dice_lines(*span)]
        words = self._words_of_project("module", one.name) if not lines else None
        if words is None:
            return module_plans.Words(lines, by_project=False)
        return module_plans.Words([DiceLine(words, 0, 0)], by_project=True)

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
