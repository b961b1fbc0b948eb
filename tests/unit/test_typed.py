"""What is wrong with data names its place, in a line."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from dice_engine.typed import TypeMismatch, plain, structure


@dataclass(frozen=True)
class Point:
    x: float
    label: str | None = None


@dataclass(frozen=True)
class Path:
    points: list[Point]
    ends: tuple[int, int] = (0, 0)
    named: dict[str, Point] = field(default_factory=dict)
    more: tuple[str, ...] = ()


def test_data_comes_back_as_it_was() -> None:
    path = Path([Point(1.0), Point(2.5, "b")], (1, 2), {"a": Point(0.0)}, ("s",))

    assert structure(Path, plain(path)) == path


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (7, "value should be a map (Path), it is 7"),
        ({"points": [{"x": 1}, 5]}, "points[1] should be a map (Point), it is 5"),
        ({"points": [{"x": "a"}]}, "points[0].x should be float, it is 'a'"),
        ({"points": [], "named": {"a": {"x": None}}}, "named.a.x should be float, it is None"),
        ({"points": [], "ends": [1, 2, 3]}, "ends should be tuple[int, int], it is [1, 2, 3]"),
        ({"points": [], "ends": [1, True]}, "ends[1] should be int, it is True"),
        ({"points": [], "more": ["a", 1]}, "more[1] should be str, it is 1"),
        ({"points": [{"y": 1}]}, "points[0] has the unknown field 'y'"),
        ({"point": []}, "Path has the unknown field 'point'"),
    ],
)
def test_the_place_of_a_mistake_is_named(data: object, message: str) -> None:
    with pytest.raises(TypeMismatch) as error:
        structure(Path, data)

    assert str(error.value) == message


@pytest.mark.parametrize(("length", "shown"), [(58, "'" + "a" * 58 + "'"), (59, "'" + "a" * 56 + "...")])
def test_long_values_are_cut(length: int, shown: str) -> None:
    with pytest.raises(TypeMismatch) as error:
        structure(int, "a" * length)

    assert str(error.value) == f"value should be int, it is {shown}"
