"""Arguments that a function of the user's makes: ``fixture=tests/x.py:make_inputs``.

The file is found from the annotated file's folder upward, as far as the project goes. It is only read here; the text
that calls its function is run where references are run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dice_engine.source.plan import Plan

_ENDS = (".git", "dice.toml", "pyproject.toml")
"""What the topmost folder of a project has."""
_MOST_BYTES = 1 << 20


def with_fixture(plan: Plan, path: str) -> Plan:
    """The plan of the file at ``path`` with the text that makes its arguments; a ``no_plan`` when that is not there.

    A plan without a fixture stays as it is.
    """
    if plan.fixture is None or plan.inputs_source is not None:
        return plan
    name, _, function = plan.fixture.rpartition(":")
    file = _find(name, Path(path).absolute())
    if file is None:
        return Plan.none(
            f"the fixture {name} is not there: it is looked for beside {Path(path).name} and above it"
        )
    try:
        if file.stat().st_size > _MOST_BYTES:
            return Plan.none(f"the fixture {name} is larger than {_MOST_BYTES >> 20} MiB")
        text = file.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        return Plan.none(f"the fixture {name} cannot be read: {error}")
    names = [
        param.name
        for param in plan.params
        if not param.ctype.endswith(("Stream_t", "CUDAStream", "CUstream"))
    ]
    return replace(plan, inputs_source=_makers(text, str(file), function, names, plan.init))


def _find(name: str, path: Path) -> Path | None:
    if Path(name).is_absolute() or ".." in Path(name).parts:
        return None
    for folder in path.parents:
        if (folder / name).is_file():
            return folder / name
        if any((folder / end).exists() for end in _ENDS):
            return None
    return None


def _makers(text: str, file: str, function: str, names: Sequence[str], init: Sequence[str]) -> str:
    return _TEXT.format(
        text=text,
        file=file,
        folder=str(Path(file).parent),
        function=function,
        names=list(names),
        init=", ".join(init),
    )


_TEXT = '''

def _dice_fixture(made={{}}):
    """The module of the fixture, run once."""
    if not made:
        import sys
        import types

        module = types.ModuleType("dice_fixture")
        module.__file__ = {file!r}
        sys.path.insert(0, {folder!r})
        exec(compile({text!r}, {file!r}, "exec"), module.__dict__)
        made["module"] = module
    return made["module"]


def get_inputs():
    names = {names!r}
    given = _dice_fixture().{function}()
    if isinstance(given, dict):
        unknown = [name for name in given if names and name not in names]
        missing = [name for name in names if name not in given]
        if unknown or missing:
            raise ValueError(f"{function} must give {{names}}; missing: {{missing}}, unknown: {{unknown}}")
        given = [given[name] for name in names or given]
    return list(given) if isinstance(given, (list, tuple)) else [given]


def get_init_inputs():
    return [{init}]
'''
