"""@dice annotations: reading, faults with their places, and plans."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from dice_engine.source.annotation import Annotation, AnnotationError, AnnotationErrors
from dice_engine.source.annotation_parse import parse_annotation
from dice_engine.source.annotation_text import dice_lines
from dice_engine.source.holes import find_annotation_errors, find_holes
from dice_engine.source.plan import Buffer, Fill, Param, Plan, Tolerance
from hypothesis import given, settings
from hypothesis import strategies as st

CASES = Path(__file__).parents[1] / "cases"
PARAMS = (Param("x", "float", True, True), Param("y", "float", True), Param("n", "int"))


def read(text: str, kind: str = "kernel") -> Annotation:
    return parse_annotation(dice_lines(text, 0, 0), kind)  # type: ignore[arg-type]


def faults(text: str, kind: str = "kernel") -> list[AnnotationError]:
    with pytest.raises(AnnotationErrors) as caught:
        read(text, kind)
    return caught.value.errors


def test_everything() -> None:
    annotation = read(
        "// @dice grid=(h+7)/8,(w+31)/32 block=32,8 smem=0\n"
        "// @dice in(img[h*stride]) out(gx[h*w], gy[h*w]) inout() tmp(t[(h+1)*w])\n"
        "// plain words\n"
        "// @dice sizes(w=1920, h=1080, stride=2048; w=33, h=7, stride=w+31)\n"
        "// @dice fill(idx=int[0,n); offs=prefix_sum, p=normal, q=int[ -1, 7 ])\n"
        "// @dice tmpl(T=float|unsigned int, N=4) tol(rel=1e-3, abs=1e-6)\n"
        "// @dice host=run_slopes\n"
    )
    assert annotation.grid == ("(h+7)/8", "(w+31)/32")
    assert annotation.block == ("32", "8")
    assert annotation.smem == "0"
    assert annotation.buffers == (
        Buffer("img", "in", "h*stride"),
        Buffer("gx", "out", "h*w"),
        Buffer("gy", "out", "h*w"),
        Buffer("t", "tmp", "(h+1)*w"),
    )
    assert annotation.sizes == ({"w": 1920, "h": 1080, "stride": 2048}, {"w": 33, "h": 7, "stride": 64})
    assert annotation.fills == {
        "idx": Fill("int", "0", "n"),
        "offs": Fill("prefix_sum"),
        "p": Fill("normal"),
        "q": Fill("int", "-1", "(7)+1"),
    }
    assert annotation.templates == ({"T": "float", "N": "4"}, {"T": "unsigned int", "N": "4"})
    assert annotation.tolerance == Tolerance(1e-3, 1e-6)
    assert annotation.host == "run_slopes"
    assert read("# @dice fixture=tests/x.py:make_inputs").fixture == "tests/x.py:make_inputs"


def test_blanks_and_block_comments() -> None:
    annotation = read(
        "/* words\n * @dice grid = (n + 255) / 256 block=256 smem=2*sizeof(float) sizes(n=1 << 20;\n"
        " * @dice   n=33) in(x[n]) */"
    )
    assert annotation.grid == ("(n + 255) / 256",)
    assert annotation.smem == "2*4"
    assert annotation.sizes == ({"n": 1 << 20}, {"n": 33})
    assert [buffer.name for buffer in annotation.buffers] == ["x"]


@pytest.mark.parametrize(
    ("text", "column", "width", "words"),
    [
        ("// @dice sizse(w=1, h=2)", 9, 5, ["unknown key `sizse`", "`sizes`", "grid, block, smem"]),
        ("// @dice grid=n block=32 blok=32", 25, 4, ["unknown key `blok`", "`block`"]),
        ("// @dice grid=n/256 sizse(n=1)", 20, 5, ["`sizes`"]),
        ("// @dice grid(n)", 9, 4, ["`grid=...`"]),
        ("// @dice sizes=3", 9, 5, ["`sizes(...)`"]),
        ("// @dice block=", 9, 5, ["no value"]),
        ("// @dice in(x[n]", 9, 7, ["not closed"]),
        ("// @dice in(x[n)", 9, 7, ["not closed"]),
        ("// @dice grid=(n+255/256 block=3", 14, 18, ["not closed"]),
        ("// @dice in(x)", 12, 1, ["`name[extent]`"]),
        ("// @dice in(x[])", 12, 3, ["`name[extent]`"]),
        ("// @dice in(x[n*])", 14, 2, ["expected a number"]),
        ("// @dice in(x[n]) out(x[n])", 22, 4, ["`x` is given twice"]),
        ("// @dice grid=1,2,3,4", 20, 1, ["three dimensions"]),
        ("// @dice sizes(n=k)", 17, 1, ["unknown symbol 'k'"]),
        ("// @dice sizes(n)", 15, 1, ["`name=number`"]),
        ("// @dice sizes(n=1; m=2)", 9, 5, ["same names", "m, n"]),
        ("// @dice sizes()", 9, 5, ["empty"]),
        ("// @dice fill(x=int[0))", 16, 6, ["`int[low,high)`"]),
        ("// @dice fill(x=prefixsum)", 16, 9, ["`prefix_sum`", "Known"]),
        ("// @dice tol(rell=1)", 13, 4, ["`rel`", "Known: rel, abs"]),
        ("// @dice tol(rel=x)", 17, 1, ["no number"]),
        ("// @dice tol(rel=-1)", 17, 2, ["zero or more"]),
        ("// @dice grid=n grid=m", 16, 4, ["given twice", "line 1"]),
        ("// @dice fixture=make", 17, 4, ["path.py:function"]),
        ("// @dice = 3", 9, 3, ["expected a key", "Known keys"]),
        ("// @dice grid", 9, 4, ["`grid=...`"]),
    ],
)
def test_faults(text: str, column: int, width: int, words: list[str]) -> None:
    (error,) = faults(text)
    assert (error.line, error.column, error.end_column - error.column) == (0, column, width)
    for word in words:
        assert word in error.message


def test_every_fault_is_told() -> None:
    errors = faults("// @dice gird=3 blokc=32\n// @dice sizes(n=)\n")
    assert [(error.line, error.column) for error in errors] == [(0, 9), (0, 16), (1, 15)]


COMPLETE = "// @dice grid=(n+255)/256 block=256 in(x[n]) out(y[n]) sizes(n=1000; n=33)"


def test_plan_alone() -> None:
    plan = read(COMPLETE + " fill(x=int[0,n)) tol(rel=1e-3)").to_plan(PARAMS, "k")
    assert plan.source == "annotation"
    assert (plan.kernel, plan.wrapper, plan.params) == ("k", None, PARAMS)
    assert (plan.grid, plan.block, plan.shared) == (("(n+255)/256", "1", "1"), ("256", "1", "1"), "0")
    assert plan.buffers[0] == Buffer("x", "in", "n", Fill("int", "0", "n"))
    assert plan.sizes == ({"n": 1000}, {"n": 33})
    assert plan.tolerance == Tolerance(1e-3, 0.0)
    assert plan.origin["grid"] == "annotation, line 1"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (COMPLETE.replace("block=256 ", ""), "needs `block=`"),
        (COMPLETE.replace("sizes(n=1000; n=33)", ""), "needs `sizes(...)`"),
        (COMPLETE.replace("out(y[n]) ", ""), "what `y` is"),
        (COMPLETE.replace("y[n]", "yy[n], y[n]"), "`yy` is no pointer parameter. Did you mean `y`?"),
        (COMPLETE.replace("n=1000; n=33", "m=3"), "no value for `n`"),
        (COMPLETE.replace("y[n]", "y[n*m]"), "unknown symbol 'm'"),
        (COMPLETE.replace("block=256", "block=64,64"), "4096 threads"),
        (COMPLETE.replace("n=33", "n=0"), "is 0 with n=0"),
        (COMPLETE + " fill(z=normal)", "`z` is no parameter"),
    ],
)
def test_plan_faults(text: str, words: str) -> None:
    with pytest.raises(AnnotationErrors) as caught:
        read(text).to_plan(PARAMS, "k")
    assert words in str(caught.value)


def test_template_needs_values() -> None:
    with pytest.raises(AnnotationErrors, match=r"tmpl\(T=\.\.\.\)"):
        read(COMPLETE).to_plan(PARAMS, "k", ["T"])
    plan = read(COMPLETE + " tmpl(T=float|half) smem=256*sizeof(T)").to_plan(PARAMS, "k", ["T"])
    assert plan.templates == ({"T": "float"}, {"T": "half"})
    assert plan.shared == "256*sizeof_T"


def test_refines_the_plan_of_the_file() -> None:
    base = Plan(
        "launch",
        kernel="k",
        wrapper="run",
        params=PARAMS,
        buffers=(Buffer("x", "in", "n"), Buffer("y", "inout", "n")),
        sizes=({"n": 7},),
        origin={"grid": "launch in run, line 9"},
    )
    plan = read("// @dice sizes(n=5) out(y[2*n]) fill(x=prefix_sum)").to_plan(PARAMS, "k", base=base)
    assert plan.source == "annotation"
    assert plan.wrapper == "run"
    assert plan.buffers == (Buffer("x", "in", "n", Fill("prefix_sum")), Buffer("y", "out", "2*n"))
    assert plan.sizes == ({"n": 5},)
    assert plan.origin["grid"] == "launch in run, line 9"
    none = read("// @dice sizes(n=5)").to_plan(PARAMS, "k", base=Plan.none("no launch"))
    assert not none.runnable
    assert "no launch" in (none.reason or "")


def test_module_inputs() -> None:
    annotation = read(
        "# @dice inputs(w=randn(4,2, dtype=float16), x=torch.randint(0, 2*8, (3,))) init(1024, -1)", "module"
    )
    plan = annotation.module_plan(("x", "w"))
    assert plan.source == "annotation"
    assert plan.inputs_source is not None
    functions = {
        node.name: ast.unparse(node.body[0])
        for node in ast.parse(plan.inputs_source).body
        if isinstance(node, ast.FunctionDef)
    }
    assert functions == {
        "get_inputs": "return [torch.randint(0, 2 * 8, (3,)), torch.randn(4, 2, dtype=torch.float16)]",
        "get_init_inputs": "return [1024, -1]",
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("# @dice inputs(x=rnadn(3))", "Did you mean `randn`?"),
        ("# @dice inputs(x=open('f'))", "unknown input maker"),
        ("# @dice inputs(x=randn(n))", "not allowed"),
        ("# @dice inputs(x=randn(3, dtype=floatt16))", "float16"),
        ("# @dice inputs(x=randn(3, device='cuda'))", "by name"),
        ("# @dice inputs(x=__import__('os').system('ls'))", "unknown input maker"),
        ("# @dice inputs(x=randn(3)", "not closed"),
        ("# @dice init(randn(3))", "not allowed"),
        ("# @dice input(x=randn(3))", "Did you mean `inputs`?"),
        ("# @dice inputs(x=3 +)", "cannot be read"),
    ],
)
def test_module_faults(text: str, words: str) -> None:
    assert words in faults(text, "module")[0].message


def test_module_plan_checks_forward() -> None:
    with pytest.raises(AnnotationErrors, match="forward has no parameter `y`"):
        read("# @dice inputs(y=randn(3))", "module").module_plan(("x",))
    with pytest.raises(AnnotationErrors, match="in full, from the first"):
        read("# @dice inputs(w=randn(3))", "module").module_plan(("x", "w"))
    with pytest.raises(AnnotationErrors, match="by position"):
        read("# @dice inputs(x=randn(3)) init(n=3)", "module").module_plan(("x",))


def test_document_errors_have_document_places() -> None:
    text = (CASES / "gradients.cu").read_text()
    assert find_annotation_errors(text, "a.cu") == []
    (error,) = find_annotation_errors(text.replace("sizes(", "sizse("), "a.cu")
    assert (error.line, error.column, error.end_column) == (6, 9, 14)
    assert "Did you mean `sizes`?" in error.message
    hole = find_holes(text.replace("sizes(", "sizse("), "a.cu")[0]
    assert not hole.plan.runnable
    assert "line 7" in (hole.plan.reason or "")


def test_stray_lines() -> None:
    text = "// 🚀 @dice grid=3\n// @dice block=3\n\n__global__ void k(float* q) { }\nint x; // @dice smem=1\n"
    errors = find_annotation_errors(text, "a.cu")
    assert [(error.line, error.column) for error in errors] == [(1, 8), (4, 15)]
    assert "directly above" in errors[0].message
    python = "import torch.nn as nn\n# @dice inputs(x=randn(3))\n\nclass M(nn.Module):\n    pass\n"
    assert len(find_annotation_errors(python, "a.py")) == 1


def test_annotation_in_a_python_string() -> None:
    text = (
        "from torch.utils.cpp_extension import load_inline\n"
        'src = """\n// @dice gird=1\n__global__ void k(float* q) { q[0] = 1; }\n"""\n'
        'e = load_inline(name="e", cpp_sources="", cuda_sources=src)\n'
    )
    (error,) = find_annotation_errors(text, "a.py")
    assert (error.line, error.column) == (2, 9)


@settings(deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                *"()[]{};,=|*/+-. \n",
                "grid",
                "in",
                "sizes",
                "fill",
                "int[0,n)",
                "n",
                "1",
                "x[n]",
                "tol",
                "é",
                "@dice",
            ]
        ),
        max_size=25,
    ),
    st.sampled_from(["kernel", "module"]),
)
def test_any_annotation_is_read_or_refused(pieces: list[str], kind: str) -> None:
    text = "\n".join("// @dice " + line for line in "".join(pieces).split("\n"))
    try:
        annotation = read(text, kind)
        if kind == "kernel":
            annotation.to_plan(PARAMS, "k", base=Plan("launch", params=PARAMS))
        else:
            annotation.module_plan(("x",))
    except AnnotationErrors as error:
        lines = text.split("\n")
        for fault in error.errors:
            assert 0 <= fault.column < fault.end_column
            assert fault.column <= len(lines[fault.line])
