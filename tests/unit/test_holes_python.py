"""Holes of PyTorch files: CUDA strings in every form, load_inline calls, nn.Module classes."""

from __future__ import annotations

import ast
import textwrap

import pytest
from dice_engine.source.hole import Hole
from dice_engine.source.holes import apply, decode, edit, find_holes, hole_at
from dice_engine.source.python_string import LiteralError
from hypothesis import given, settings
from hypothesis import strategies as st

HEAD = "from torch.utils.cpp_extension import load_inline\n"
CUDA = (
    '__global__ void k(float* q, int n) {\n  if (n < 0) printf("%d\\n", n);\n  q[0] = 1;\n}\nvoid run() { }\n'
)
CALL = 'ext = load_inline(name="my_ext", cpp_sources="", cuda_sources=src, functions=["run"])\n'
INPUTS = "def get_inputs():\n    return []\n"

LITERALS = {
    "triple": '"""' + CUDA.replace("\\", "\\\\") + '"""',
    "triple single": "'''" + CUDA.replace("\\", "\\\\") + "'''",
    "raw": 'r"""' + CUDA + '"""',
    "one line": '"' + CUDA.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"',
    "one line single": "'" + CUDA.replace("\\", "\\\\").replace("\n", "\\n") + "'",
    "continued": '"""\\\n' + CUDA.replace("\\", "\\\\").replace("{\n", "{\\\n\\n") + '"""',
    "escaped braces": '"""' + CUDA.replace("\\", "\\\\").replace("{", "\\x7b").replace("}", "\\175") + '"""',
    "unicode": 'u"""// é 🚀 \\u00e9 \\N{BULLET}\n' + CUDA.replace("\\", "\\\\") + '"""',
}


def holes_of(text: str) -> list[Hole]:
    found = find_holes(text, "a.py")
    for hole in found:
        assert hole.prefix + hole.core + hole.suffix == text
        assert text.encode()[: hole.start_byte] == hole.prefix.encode()
        assert hole.anchor[0] <= hole.start_byte <= hole.end_byte
    return found


def kinds(text: str) -> list[tuple[str, str, bool]]:
    return [(hole.kind, hole.name, hole.editable) for hole in holes_of(text)]


def value_of(text: str, name: str = "src") -> str:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return ast.literal_eval(node.value)
    raise AssertionError(name)


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("form", sorted(LITERALS))
def test_every_form_of_literal(form: str, newline: str) -> None:
    text = ("# é 🚀\n" + HEAD + f"src = {LITERALS[form]}\n" + CALL).replace("\n", newline)
    core, kernel = holes_of(text)
    assert (core.kind, core.name, core.editable) == ("load_inline_core", "my_ext", True)
    assert core.core == f"src = {LITERALS[form]}".replace("\n", newline)
    assert (kernel.kind, kernel.name, kernel.editable) == ("kernel_body", "k", True)
    decoded = decode(kernel)
    whole = value_of(text)
    assert decoded.prefix + decoded.core + decoded.suffix == whole
    assert decoded.core == '\n  if (n < 0) printf("%d\\n", n);\n  q[0] = 1;\n'
    assert decoded.prefix.endswith("void k(float* q, int n) {")
    assert decoded.suffix.startswith("}\nvoid run")
    for new in (decoded.core, " s = \"\\\\ \\t\"; /* ''' é 🚀 */ ", ""):
        changed = apply(kernel, new)
        assert value_of(changed) == decoded.prefix + new + decoded.suffix
        assert changed.startswith(kernel.prefix)
        assert changed.endswith(kernel.suffix)
        if form != "one line" and form != "one line single" and new:
            assert changed.count("\n") == changed.count(newline)


texts = st.text(st.one_of(st.sampled_from("\"'\\\n{}u0xN"), st.characters(codec="utf-8")), max_size=30)


@settings(deadline=None)
@given(st.sampled_from(sorted(LITERALS)), texts, st.booleans())
def test_any_core_reads_back_or_is_refused(form: str, core: str, crlf: bool) -> None:
    text = HEAD + f"src = {LITERALS[form]}\n" + CALL
    text = text.replace("\n", "\r\n") if crlf else text
    kernel = next(hole for hole in find_holes(text, "a.py") if hole.kind == "kernel_body")
    decoded = decode(kernel)
    try:
        changed = apply(kernel, core)
    except LiteralError as error:
        assert form == "raw", str(error)
        return
    assert value_of(changed) == decoded.prefix + core.replace("\r\n", "\n") + decoded.suffix
    assert changed.startswith(kernel.prefix)
    assert changed.endswith(kernel.suffix)


def test_raw_string_refuses_with_reason() -> None:
    text = HEAD + f"src = {LITERALS['raw']}\n" + CALL
    kernel = holes_of(text)[1]
    with pytest.raises(LiteralError, match="cannot stand between"):
        edit(kernel, ' s = """; ')
    assert edit(kernel, '\n printf("\\n");\n') == '\n printf("\\n");\n'


@pytest.mark.parametrize(
    ("source", "call", "expected"),
    [
        ('src: str = """\nint a;\n"""\n', CALL, [("load_inline_core", "my_ext", True)]),
        ('a = src = """\nint a;\n"""\n', CALL, [("load_inline_core", "my_ext", True)]),
        ('src = ("""\nint a;\n""")\n', CALL, [("load_inline_core", "my_ext", True)]),
        ('real = """\nint a;\n"""\nsrc = real\n', CALL, [("load_inline_core", "my_ext", True)]),
        ('src = """int a;"""\n', 'load_inline("pos", "", src)\n', [("load_inline_core", "pos", True)]),
        ('src = """int a;"""\n', CALL.replace('"my_ext"', "name"), [("load_inline_core", "src", True)]),
        (
            'src = """int a;"""\n',
            CALL.replace("load_inline", "cpp_extension.load_inline"),
            [("load_inline_core", "my_ext", True)],
        ),
        (
            'one = "int a;"\ntwo = "int b;"\n',
            CALL.replace("=src", "=[one, two]"),
            [("load_inline_core", "one", True), ("load_inline_core", "two", True)],
        ),
        ("", CALL.replace("=src", '="""int a;"""'), [("load_inline_core", "my_ext", False)]),
        ("", CALL.replace("=src", '=[f"{1}"]'), [("load_inline_core", "my_ext", False)]),
        ("", CALL, [("load_inline_core", "my_ext", False)]),
        ('src = "int a;"\nsrc = "int b;"\n', CALL, [("load_inline_core", "my_ext", False)]),
        ('src = "int a;"\nsrc += "int b;"\n', CALL, [("load_inline_core", "my_ext", False)]),
        ("src = open('k.cu').read()\n", CALL, [("load_inline_core", "my_ext", False)]),
        ("src = src\n", CALL, [("load_inline_core", "my_ext", False)]),
        ('src = b"int a;"\n', CALL, [("load_inline_core", "my_ext", False)]),
        ('src = "int a;"\n', CALL.replace(", cuda_sources=src", ""), []),
        ('src = "int a;"\n', CALL + CALL, [("load_inline_core", "my_ext", True)]),
        ("", "", []),
    ],
)
def test_resolution(source: str, call: str, expected: list[tuple[str, str, bool]]) -> None:
    assert kinds(HEAD + source + call) == expected


def test_renamed_import() -> None:
    text = (
        HEAD.replace("load_inline", "load_inline as build")
        + 'src = "int a;"\n'
        + CALL.replace("load_inline", "build")
    )
    assert kinds(text) == [("load_inline_core", "my_ext", True)]


def test_inside_a_function() -> None:
    text = HEAD + 'src = "wrong"\n\ndef make():\n    src = "int a;"\n    return ' + CALL[6:]
    (core,) = holes_of(text)
    assert core.core == 'src = "int a;"'
    text = HEAD + 'src = "module"\n\ndef make(src):\n    return ' + CALL[6:]
    (core,) = holes_of(text)
    assert not core.editable
    assert "parameter" in (core.reason or "")


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        (
            'f"""{prefix}' + CUDA.replace("{", "{{").replace("}", "}}").replace("\\", "\\\\") + '"""',
            "f-string",
        ),
        ('("""' + CUDA.replace("\\", "\\\\") + '"""\n  "int b;")', "several strings"),
        ('"""' + CUDA.replace("\\", "\\\\") + '""" + tail', "several strings"),
        ('dedent("""' + CUDA.replace("\\", "\\\\") + '""")', "no string literal but"),
    ],
)
def test_kernels_without_fixed_text_are_declined(expression: str, why: str) -> None:
    text = HEAD + f"src = {expression}\n" + CALL + INPUTS
    core, kernel = holes_of(text)
    for hole in (core, kernel):
        assert not hole.editable
        assert why in (hole.reason or "")
        assert not hole.plan.runnable
    assert kernel.name == "k"
    assert "q[0] = 1;" in kernel.core


def test_plans() -> None:
    text = HEAD + f"src = {LITERALS['raw']}\n" + CALL
    assert [hole.plan.source for hole in holes_of(text)] == ["no_plan", "no_plan"]
    assert "get_inputs" in (holes_of(text)[0].plan.reason or "")
    assert [hole.plan.source for hole in holes_of(text + INPUTS)] == ["inputs", "inputs"]


def test_annotation_above_a_kernel_in_a_string() -> None:
    note = "// @dice grid=1 block=32 out(q[n]) sizes(n=40; n=3)\n"
    text = HEAD + 'src = r"""' + note + CUDA + '"""\n' + CALL
    kernel = holes_of(text)[1]
    assert kernel.plan.source == "annotation"
    assert kernel.plan.sizes == ({"n": 40}, {"n": 3})


def test_cursor_prefers_kernel_then_source() -> None:
    text = HEAD + f"src = {LITERALS['raw']}\n" + CALL
    holes = holes_of(text)
    assert hole_at(holes, text.index("q[0]")) is holes[1]
    assert hole_at(holes, text.index("__global__")) is holes[1]
    assert hole_at(holes, text.index("void run")) is holes[0]
    assert hole_at(holes, text.index("ext =")) is None


MODULE = textwrap.dedent(
    """\
    import torch
    import torch.nn as nn


    class Block(nn.Module):
        def forward(self, x):
            return x


    @torch.no_grad
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.block = Block()

        def forward(self, x: torch.Tensor, scale=1.0):
            return self.block(x) * scale  # scaled


    def get_inputs():
        return [torch.randn(3)]
    """
)


def test_modules() -> None:
    block, model = holes_of(MODULE)
    assert (model.kind, model.name, model.core, model.editable) == ("module", "Model", "", True)
    assert model.prefix.endswith("* scale  # scaled")
    assert model.suffix.startswith("\n\n\ndef get_inputs")
    assert MODULE.encode()[model.anchor[0] :].startswith(b"@torch.no_grad")
    assert model.plan.source == "inputs"
    assert block.plan.source == "no_plan"
    assert "inputs of Model" in (block.plan.reason or "")
    added = "\n\n\nclass ModelNew(Model):\n    pass"
    ast.parse(apply(model, added))
    assert apply(model.__class__(**{**model.__dict__, "newline": "\r\n"}), added).count("\r\n") == 4


def test_modules_need_inputs() -> None:
    assert kinds(MODULE.split("def get_inputs")[0]) == []
    crlf = holes_of(MODULE.replace("\n", "\r\n"))[1]
    assert crlf.suffix.startswith("\r\n")
    at_end = MODULE.split("class Block")[0] + INPUTS + "class Model(torch.nn.Module):\n    pass"
    (model,) = holes_of(at_end)
    assert model.suffix == ""


def test_modules_with_annotation() -> None:
    text = MODULE.replace("@torch", "# @dice inputs(x=randn(8, 4)) init()\n@torch").split("def get_inputs")[0]
    (model,) = holes_of(text)
    assert model.plan.source == "annotation"
    assert "torch.randn(8, 4)" in (model.plan.inputs_source or "")


@pytest.mark.parametrize(
    "use",
    [
        "class Model(nn.Module):\n    def forward(self, x):\n        return ext.run(x)\n",
        "run = ext.run\nclass Model(nn.Module):\n    def forward(self, x):\n        return run(x)\n",
        "def op(x):\n    return ext.run(x)\nclass Model(nn.Module):\n    def forward(self, x):\n        return op(x)\n",
        "class Model(nn.Module):\n    def __init__(self):\n        self.e = load_inline('a', '', src)\n",
    ],
)
def test_modules_that_use_the_extension_are_none(use: str) -> None:
    text = HEAD + "import torch.nn as nn\nsrc = 'int a;'\n" + CALL + use + INPUTS
    assert [kind for kind, _, _ in kinds(text)] == ["load_inline_core"]


def test_module_beside_the_extension() -> None:
    text = HEAD + "import torch.nn as nn\nsrc = 'int a;'\n" + CALL
    text += "class Model(nn.Module):\n    pass\n"
    text += "class ModelNew(nn.Module):\n    def forward(self, x):\n        return ext.run(x)\n"
    assert [(kind, name) for kind, name, _ in kinds(text + INPUTS)] == [
        ("load_inline_core", "my_ext"),
        ("module", "Model"),
    ]
    model = holes_of(text + INPUTS)[1]
    assert not model.editable and not model.plan.runnable, "a second ModelNew above this one would never run"
    assert model.reason == "ModelNew on line 7 would replace what is written here; rewrite that one"


def test_a_class_above_the_module_replaces_nothing() -> None:
    text = "import torch.nn as nn\nclass ModelNew(nn.Module):\n    pass\nclass Model(nn.Module):\n    pass\n"
    assert [(hole.name, hole.editable) for hole in holes_of(text + INPUTS) if hole.name == "Model"] == [
        ("Model", True)
    ]


PIECES = [
    *LITERALS.values(),
    HEAD,
    CALL,
    INPUTS,
    "src = ",
    "class Model(nn.Module):\n",
    "    def forward(self, x):\n        return ext.run(x)\n",
    "# @dice inputs(x=randn(3))\n",
    "\n",
    "\r\n",
    "(",
    ")",
    '"""',
    "é🚀",
    "f'",
]


@settings(deadline=None, max_examples=60)
@given(st.lists(st.sampled_from(PIECES), max_size=12))
def test_any_python_text(pieces: list[str]) -> None:
    text = "".join(pieces)
    for hole in holes_of(text):
        if hole.editable:
            changed = apply(hole, "x")
            assert changed.startswith(hole.prefix)
            assert changed.endswith(hole.suffix)
