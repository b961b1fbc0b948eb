"""Size and launch expressions: C integers, against g++'s own rules."""

from __future__ import annotations

import contextlib

import pytest
from dice_engine.source.expressions import ExpressionError, evaluate, names
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("(h+7)/8", 135), ("h*stride", 1080 * 2048), ("-7/2", -3), ("-7%2", -1), ("1<<4|1", 17), ("2+3*4", 14),
        ("(2+3)*4", 20), ("h > w ? 1 : 2", 2), ("0 && 1/0", 0), ("1 || 1/0", 1), ("1 ? 5 : 1/0", 5),
        ("min(h, 7, 9)", 7),
        ("max(1, 2)", 2), ("0x10", 16), ("010", 8), ("100u", 100), ("~0", -1), ("!h", 0), ("!!h", 1), ("5-3-1", 1),
        ("7 == 7 != 0", 1), ("1<2<3", 1), ("6&3^1", 3), ("+ - 4", -4), ("(h)", 1080),
    ],
)  # fmt: skip
def test_values(text, value):
    assert evaluate(text, {"h": 1080, "w": 1920, "stride": 2048}) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("n/0", "division by zero"), ("m", "unknown symbol 'm' .known: n"), ("n +", "expected a number"),
        ("(n", "expected '\\)'"), ("n n", "unexpected 'n'"), ("n $ 2", "column 3"), ("", "expected a number"),
        ("1 << 64", "shift"), ("9223372036854775807 * 4", "64 bits"), ("09", "bad number"),
        ("f(n)", "unknown symbol 'f'"),
        ("min()", "expected a number"), ("__import__('os')", "unexpected"), ("n.real", "unexpected"),
        ("1.5", "unexpected"),
    ],
)  # fmt: skip
def test_errors(text, message):
    with pytest.raises(ExpressionError, match=message):
        evaluate(text, {"n": 5})


@given(st.text(alphabet="n0123456789+-*/%<>=&|^~!?:() ,minax", max_size=40))
def test_any_text_gives_an_int_or_an_error(text):
    with contextlib.suppress(ExpressionError):
        assert isinstance(evaluate(text, {"n": 3}), int)


def test_depth_is_an_error():
    with pytest.raises(ExpressionError):
        evaluate("(" * 5000 + "1" + ")" * 5000, {})


def test_names():
    assert names("(h+7)/8 * min(w, 0x1F) + stride_2") == {"h", "w", "stride_2"}
