"""String literals: value, map to the document, encoding, for every form of literal."""

from __future__ import annotations

import ast
import warnings

import pytest
from dice_engine.source.python_string import (
    LiteralError,
    check_content,
    decode_content,
    encode_content,
    read_literal,
)
from hypothesis import example, given
from hypothesis import strategies as st

OPENINGS = ['"""', "'''", '"', "'", 'r"""', "R'''", 'r"', "u'", 'U"""']


def literal(source: str):
    data = source.encode("utf-8", "surrogatepass")
    return read_literal(data, 0, len(data))


def evaluated(source: str) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.literal_eval(source)


@pytest.mark.parametrize(
    "source",
    [
        r'"""a\n\\n\x41\u00e9\U0001F680\101\0\'\"\a\b\f\r\t\v"""',
        '"""line \\\ncontinued\r\nand CRLF"""',
        r"'unknown \d \( \8 \é escapes stay'",
        r'"\N{GREEK SMALL LETTER LAMDA} and \N{DIGIT ONE}"',
        r'r"""raw \n \" \x41 stays"""',
        "r'raw \\' quote'",
        "''",
        'u"é🚀"',
        '"""\r\n\r\n"""',
    ],
)
def test_value_is_what_python_reads(source: str) -> None:
    assert literal(source).value == evaluated(source)


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ('f"""x"""', "f-string"),
        ('Rb"x"', "bytes"),
        ('"abc', "closing quotes"),
        ("name", "no string literal"),
        (r'"\x4"', "incomplete"),
        (r'"\N{NO SUCH NAME}"', "means nothing"),
        (r'"\UFFFFFFFF"', "means nothing"),
    ],
)
def test_refused(source: str, why: str) -> None:
    with pytest.raises(LiteralError, match=why):
        literal(source)


def test_map_to_document() -> None:
    source = '"""é\\x7b ab\\\n\\n}"""'  # é { space a b (continued line) newline }
    read = literal(source)
    assert read.value == "é{ ab\n}"
    data, value = source.encode(), read.value.encode()
    brace, newline, close = value.index(b"{"), value.index(b"\n"), value.index(b"}")
    assert read.document_start(brace + 1) == data.index(b" ab")
    assert read.document_end(brace) == data.index(b"\\x7b")
    assert read.document_start(newline) == data.index(b"\\\n")
    assert read.document_end(newline) == data.index(b"\\n")
    assert read.document_end(close) == data.index(b"}")


texts = st.text(
    st.one_of(st.sampled_from("\"'\\\n\r\tn x07u{}N\x00é🚀"), st.characters(codec="utf-8")), max_size=40
)


@given(texts, st.sampled_from(OPENINGS), st.sampled_from(["\n", "\r\n"]))
@example('"""', '"""', "\n")
@example('a"', '"""', "\n")
@example("\\", "r'", "\n")
def test_roundtrip(text: str, opening: str, newline: str) -> None:
    """What can be encoded reads back the same, by our decoder and by Python."""
    quote = opening[len(opening.rstrip("\"'")) :]
    try:
        content = encode_content(text, opening, newline)
        check_content(content, opening, text)
    except LiteralError:
        assert "r" in opening.lower()
        return
    assert decode_content(content, opening) == text
    assert evaluated(opening + content + quote) == text


@given(texts, st.sampled_from(OPENINGS))
def test_check_accepts_only_what_python_reads(content: str, opening: str) -> None:
    quote = opening[len(opening.rstrip("\"'")) :]
    try:
        value: str | None = evaluated(opening + content + quote)
    except (SyntaxError, ValueError):
        value = None
    try:
        ours: str | None = decode_content(content, opening)
        assert ours is not None
        check_content(content, opening, ours)
    except LiteralError:
        ours = None
    if ours is not None and "\x00" not in content:
        assert value == ours


@given(
    st.lists(st.sampled_from(["a", "é", "🚀", "\\n", "\\x41", "\\\n", "\r\n", "\\d", "{", "}"]), max_size=12)
)
def test_map_is_monotone_and_exact(pieces: list[str]) -> None:
    source = '"""' + "".join(pieces) + '"""'
    read = literal(source)
    data, value = source.encode(), read.value.encode()
    length = len(value)
    previous = read.content_start
    for offset in range(length + 1):
        if offset < length and (value[offset] & 0xC0) == 0x80:
            continue  # inside a character
        start, end = read.document_start(offset), read.document_end(offset)
        assert previous <= start <= end <= read.content_end
        before = data[read.content_start : start].decode()
        assert decode_content(before, '"""') == value[:offset].decode()
        after = data[end : read.content_end].decode()
        assert decode_content(after, '"""') == value[offset:].decode()
        previous = end
