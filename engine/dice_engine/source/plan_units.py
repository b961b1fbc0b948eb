"""Plans that need more than one file: a header's constants, or the source that launches a header's kernel."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from dice_engine.source.cuda import find_kernels
from dice_engine.source.includes import Unit, sources_below, text_of, unit
from dice_engine.source.plan import Plan
from dice_engine.source.plans import kernel_plan
from dice_engine.source.project import Project

_INCLUDES = re.compile(r"^[ \t]*#[ \t]*include\b", re.MULTILINE)
_MOST_SOURCES = 8
"""Sources that include one header and are asked for a plan."""
_MOST_INDIRECT = 64
"""Sources that are read through for a header that they do not name themselves."""


class Units:
    """The texts in which a document of a project is compiled: with its headers, or for a header what includes it.

    Only files below the project's folder (without one, below the document's) are read.
    """

    def __init__(self, text: str, path: str, project: Project | None) -> None:
        self._text, self._path, self._project = text, path, project

    def plan(self, kernel: str) -> Plan:
        """The plan that the document alone gives; where that is none or a guess, what a wider text gives."""
        alone = kernel_plan(self._text, kernel)
        if alone.runnable and alone.source != "convention":
            return alone
        best = alone
        for one in self._units:
            if sum(span.name == kernel for span in find_kernels(one.text)) != 1:
                continue
            through = one.path if one.path != self._path else None
            plan = replace(one.placed(kernel_plan(one.text, kernel), self._path), through=through)
            if plan.runnable and plan.source != "convention":
                return plan
            if plan.runnable and not best.runnable:
                best = plan
        return best

    @cached_property
    def _units(self) -> list[Unit]:
        if self._project is None or not Path(self._path).is_absolute():
            return []
        return [*self._own(self._project), *self._including(self._project)]

    def _own(self, project: Project) -> Iterator[Unit]:
        build = project.build_of(self._path)
        whole = unit(self._text, self._path, build.folders, build.definitions, self._within)
        if whole.files or build.definitions:
            yield whole

    def _including(self, project: Project) -> Iterator[Unit]:
        """The project's sources that include the document, those that name it first."""
        if Path(self._path).suffix != ".cuh":
            return
        header = str(Path(self._path).resolve())
        name = Path(header).name
        texts = {file: text for file in sources_below(self._within) if (text := text_of(file)) is not None}
        direct = [file for file, text in texts.items() if name in text]
        others = [file for file, text in texts.items() if name not in text and _INCLUDES.search(text)]
        found = 0
        for source in [*direct, *others[:_MOST_INDIRECT]]:
            text = texts[source]
            build = project.build_of(source)
            whole = unit(text, source, build.folders, build.definitions, self._within, {header: self._text})
            if header in whole.files:
                yield whole
                found += 1
                if found == _MOST_SOURCES:
                    return

    @cached_property
    def _within(self) -> Path:
        root = self._project.root if self._project is not None else None
        return root or Path(self._path).parent
