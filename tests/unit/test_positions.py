"""Positions are exact in every encoding, whatever characters and line ends the text has."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lsprotocol.types import Position

from dice_ls.positions import TextIndex, units

ENCODINGS = ("utf-8", "utf-16", "utf-32")
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
def test_every_offset_round_trips(text: str, encoding: str) -> None:
    index = TextIndex(text)
    starts = expected_line_starts(text)
    assert index.line_count == len(starts)
    for offset in range(len(text) + 1):
        position = index.position(offset, encoding)
        assert starts[position.line] <= offset
        assert position.character == units(text[starts[position.line] : offset], encoding)
        in_line_end = text[offset - 1 : offset + 1] == "\r\n"
        assert index.offset(position, encoding) == offset - in_line_end
        assert index.to_byte(offset) == len(text[:offset].encode())
        assert index.from_byte(index.to_byte(offset)) == offset


@pytest.mark.parametrize(("encoding", "column"), [("utf-8", 5), ("utf-16", 3), ("utf-32", 2)], ids=str)
def test_emoji_counts_in_the_clients_units(encoding: str, column: int) -> None:
    index = TextIndex("x\r\na😋b")
    assert index.position(5, encoding) == Position(1, column)
    assert index.offset(Position(1, column), encoding) == 5


def test_positions_outside_the_text_are_clamped() -> None:
    index = TextIndex("ab\r\ncd")
    assert index.offset(Position(0, 99), "utf-16") == 2
    assert index.offset(Position(99, 0), "utf-16") == 6
    assert index.position(-1, "utf-16") == Position(0, 0)
    assert index.position(99, "utf-16") == Position(1, 2)


def test_half_of_a_surrogate_pair_means_before_the_character() -> None:
    assert TextIndex("😋b").offset(Position(0, 1), "utf-16") == 0


def test_only_lsp_line_ends_end_a_line() -> None:
    index = TextIndex("a\f\u2028\x85b\nc")
    assert index.position(6, "utf-16") == Position(1, 0)
