"""The ways people write a number in Python."""

from __future__ import annotations

import random


def number(value: float) -> str:
    """The plain way."""
    return repr(int(value)) if value == int(value) and abs(value) >= 20 else repr(value)


def spelled(value: float, rng: random.Random) -> str:
    """``2.0`` may be ``2``, ``1e-05`` ``1e-5`` or ``0.00001``, ``0.5`` ``.5``."""
    roll = rng.random()
    if value == int(value):
        return repr(int(value)) if roll < 0.45 else repr(float(value))
    text = repr(float(value))
    if "e" in text:
        if roll < 0.75:
            return text.replace("e-0", "e-")
        return f"{value:.8f}".rstrip("0") if roll < 0.85 and value >= 1e-8 else text
    if abs(value) < 0.02 and roll < 0.2:
        return f"{value:.0e}".replace("e-0", "e-") if float(f"{value:.0e}") == value else text
    if roll < 0.03:
        return text.replace("0.", ".", 1)
    return text


COMPUTED = {
    0.5: ("1 / 2", "1.0 / 2.0", "4 ** -0.5"),
    0.25: ("1 / 4", "16 ** -0.5", "1.0 / math.sqrt(16)"),
    0.125: ("64 ** -0.5", "1 / 8", "1.0 / math.sqrt(64)"),
    0.1: ("1 / 10", "1e-1"),
    2.0: ("math.sqrt(4)", "1 + 1"),
    3.0: ("6 / 2", "math.sqrt(9.0)"),
    1.5: ("3 / 2", "1 + 0.5"),
    4.0: ("2 ** 2", "math.sqrt(16)"),
    -1.0: ("-1",),
}
"""How a constant's value may be computed, by the value."""

# In Python, in CUDA, and the value.
_FIXED = (
    ("math.sqrt(2.0)", "sqrtf(2.0f)", 2**0.5),
    ("math.sqrt(2)", "sqrtf(2.0f)", 2**0.5),
    ("math.sqrt(0.5)", "sqrtf(0.5f)", 0.5**0.5),
    ("math.sqrt(3.0)", "sqrtf(3.0f)", 3**0.5),
    ("math.pi", "3.14159265f", 3.141592653589793),
    ("math.log(2.0)", "logf(2.0f)", 0.6931471805599453),
)


def drawn_expression(rng: random.Random) -> tuple[float, tuple[str, str]]:
    """A constant expression: its value, and how it is written in Python and CUDA."""
    if rng.random() < 0.35:
        python, cuda, value = rng.choice(_FIXED)
        return value, (python, cuda)
    a, b = rng.randrange(1, 6), rng.choice((2, 3, 4, 5, 6, 7, 8, 10, 16))
    if rng.random() < 0.25:
        root = rng.choice((2, 3, 8, 16, 64))
        top = rng.choice(("1.0", "1"))
        return 1 / root**0.5, (f"{top} / math.sqrt({root})", f"(1.0f / sqrtf({root}.0f))")
    sign = rng.choice(("/", "/", "*"))
    value = a / b if sign == "/" else a * 0.1 * b
    if sign == "*":
        return a * (b / 10), (f"{a} * {b / 10}", f"({a}.0f * {b / 10}f)")
    dots = rng.choice((("", ""), (".0", ""), (".0", ".0")))
    return value, (f"{a}{dots[0]} / {b}{dots[1]}", f"({a}.0f / {b}.0f)")
