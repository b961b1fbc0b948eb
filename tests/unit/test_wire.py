"""Messages survive the wire, and whatever else arrives is one clear WireError."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import msgpack
import pytest
from dice_engine import wire
from dice_engine.source.plan import Buffer, Fill, Param, Plan, Tolerance
from dice_engine.verify.verdict import BuildInfo, Verdict
from hypothesis import given, settings
from hypothesis import strategies as st

PLAN = Plan(
    source="host",
    kernel="k",
    wrapper="run_k",
    params=(Param("x", "float", pointer=True), Param("n", "int")),
    grid=("(n+255)/256", "1", "1"),
    block=("256", "1", "1"),
    buffers=(Buffer("x", "inout", "n", Fill("int", "0", "n")),),
    templates=({"T": "float"}, {"T": "double"}),
    sizes=({"n": 1000}, {"n": 33}),
    tolerance=Tolerance(1e-3, 1e-6),
    origin={"grid": "launch in run_k, line 15"},
)
MESSAGES: list[wire.Message] = [
    wire.Hello(1, "secret"),
    wire.GenerateRequest("1", "kernel_body", "é {", "}", "x = 1;", n=4, checkpoint="/c", device="cpu"),
    wire.VerifyRequest("2", "a", "b", kernel="k", plan=PLAN),
    wire.VerifyRequest("3", "a", "b"),
    wire.CancelRequest("1"),
    wire.StatusRequest("4"),
    wire.ShutdownRequest("5"),
    wire.Welcome(1, 99, "0.1"),
    wire.Progress("1", 3, 40, 1, 8),
    wire.CandidateEvent("1", 0, "core\0\r\n🙂", [1, 2], [0, 3], True, 0.5),
    wire.VerdictEvent("2", Verdict("verified", speedup=2.5, trials=5, build=BuildInfo("nvrtc", 0.1))),
    wire.Done("1", True),
    wire.Error("", "no"),
    wire.Status("4", 99, "0.1", "cpu", ["nano"]),
]


def pack(data: Any) -> bytes:
    body = msgpack.packb(data)
    assert isinstance(body, bytes)
    return body


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: m.type)
def test_round_trip(message: wire.Message) -> None:
    frame = wire.encode(message)
    assert wire.body_length(frame[:4]) == len(frame) - 4
    assert wire.decode(frame[4:]) == message


def test_missing_fields_take_their_defaults() -> None:
    body = pack(
        {"type": "generate", "id": "1", "kind": "module", "prefix": "", "suffix": "", "reference": ""}
    )
    assert wire.decode(body) == wire.GenerateRequest("1", "module", "", "", "")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (5, "not a map"),
        ({}, "type is not known"),
        ({"type": "sing"}, "type is not known"),
        ({"type": ["generate"]}, "type is not known"),
        ({"type": "cancel"}, "bad cancel message.*'id'"),
        ({"type": "cancel", "id": 7}, "id should be str, it is 7"),
        ({"type": "cancel", "id": "1", "why": "x"}, "unknown field 'why'"),
        ({"type": "hello", "protocol": True}, "protocol should be int, it is True"),
        ({"type": "status", "id": None}, "id should be str"),
        ({"type": "verify", "id": "1", "original": "", "candidate": "", "device": "tpu"}, "device should be"),
        (
            {"type": "verify", "id": "1", "original": "", "candidate": "", "plan": {"source": "x"}},
            "plan should be",
        ),
    ],
)
def test_bad_messages_name_the_field(data: Any, message: str) -> None:
    with pytest.raises(wire.WireError, match=message):
        wire.decode(pack(data))


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_a_wire_error(body: bytes) -> None:
    try:
        wire.decode(body)
    except wire.WireError as error:
        assert "\n" not in str(error) and len(str(error)) < 300


_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(MESSAGES), st.data())
def test_one_field_replaced_gives_a_message_or_a_wire_error(
    message: wire.Message, data: st.DataObject
) -> None:
    fields = msgpack.unpackb(wire.encode(message)[4:])
    fields[data.draw(st.sampled_from(sorted(fields)))] = data.draw(_values)
    try:
        wire.decode(pack(fields))
    except wire.WireError as error:
        assert "\n" not in str(error)


def test_too_large() -> None:
    with pytest.raises(wire.WireError, match="over the limit"):
        wire.encode(wire.Error("", "x" * wire.MAX_FRAME))
    with pytest.raises(wire.WireError, match="over the limit"):
        wire.body_length(b"GET ")


def test_text_that_is_no_unicode() -> None:
    with pytest.raises(wire.WireError, match="cannot be packed"):
        wire.encode(wire.Error("", "\ud800"))


def test_read_frames_and_end_of_stream() -> None:
    async def read_all(data: bytes) -> list[wire.Message]:
        reader = asyncio.StreamReader()
        reader.feed_data(data)
        reader.feed_eof()
        found = []
        while (message := await wire.read(reader)) is not None:
            found.append(message)
        return found

    frames = b"".join(wire.encode(m) for m in MESSAGES)
    assert asyncio.run(read_all(frames)) == MESSAGES
    for cut in (len(frames) - 1, 2, 10):
        with pytest.raises(wire.WireError, match="ended inside a frame"):
            asyncio.run(read_all(frames[:cut]))


def test_plan_with_every_field_is_equal_after_the_wire() -> None:
    request = wire.VerifyRequest("1", "a", "b", plan=replace(PLAN, reason="why", shared="n*4"))
    assert wire.decode(wire.encode(request)[4:]) == request
