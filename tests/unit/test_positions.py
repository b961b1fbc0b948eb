"""Positions are exact in every encoding, whatever characters and line ends the text has."""

from __future__ import annotations

import pytest
from dice_engine.source.lines import Encoding
from hypothesis import given
from hypothesis import strategies as st
from lsprotocol.types import Position

from dice_ls.positions import Positions, units

ENCODINGS: tuple[Encoding, ...] = ("utf-8", "utf-16", "utf-32")
TEXTS = st.text(alphabet="ab{}\n\r\f\u2028é中😋", max_size=40)


def expected_line_starts(text: str) -> list[int]:
    starts, at = [0], 0
    while at < len(text):
        width = 2 if text[at : at + 2] == "\r\n" else 1
        if text[at] in "\r\n":
            starts.append(at + width)
        at += width
    return starts


@given(TEXTS, st.sampled_from(ENCODINGS))
def test_every_offset_round_trips(text: str, encoding: Encoding) -> None:
    positions = Positions(text, encoding)
    starts = expected_line_starts(text)
    assert positions.line_count == len(starts)
    for index in range(len(text) + 1):
        if text[index - 1 : index + 1] == "\r\n":
            continue
        byte = len(text[:index].encode())
        position = positions.position(byte)
        assert position.character == units(text[starts[position.line] : index], encoding)
        assert positions.offset(position) == byte


@given(TEXTS, st.sampled_from(ENCODINGS), st.integers(0, 50), st.integers(0, 50))
def test_any_position_gives_an_offset_between_characters(
    text: str, encoding: Encoding, line: int, character: int
) -> None:
    offset = Positions(text, encoding).offset(Position(line, character))
    text.encode()[:offset].decode()
    assert 0 <= offset <= len(text.encode())


@pytest.mark.parametrize(("encoding", "column"), [("utf-8", 5), ("utf-16", 3), ("utf-32", 2)])
def test_emoji_counts_in_the_clients_units(encoding: Encoding, column: int) -> None:
    positions = Positions("x\r\na😋b", encoding)
    assert positions.position(8) == Position(1, column)
    assert positions.offset(Position(1, column)) == 8


def test_positions_outside_the_text_are_clamped() -> None:
    positions = Positions("ab\r\ncd", "utf-16")
    assert positions.offset(Position(0, 99)) == 2
    assert positions.offset(Position(99, 0)) == 6
    assert positions.position(-1) == Position(0, 0)
    assert positions.position(99) == Position(1, 2)


def test_half_of_a_surrogate_pair_means_before_the_character() -> None:
    assert Positions("😋b", "utf-16").offset(Position(0, 1)) == 0


def test_only_lsp_line_ends_end_a_line() -> None:
    positions = Positions("a\f\u2028\x85b\nc", "utf-16")
    assert positions.line_count == 2
    assert positions.line(0) == "a\f\u2028\x85b"
