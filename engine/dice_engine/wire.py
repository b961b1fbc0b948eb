"""The messages between clients and the engine process, and the frames they travel in. No torch here.

A frame is a 4-byte big-endian length and that many bytes of msgpack: a map of the message's fields plus ``type``. The
first message of a connection is :class:`Hello`; the service answers with :class:`Welcome` or an :class:`Error` and
closes. Every request carries an ``id`` chosen by the client, which its events repeat.
"""

from __future__ import annotations

import asyncio
import struct
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeAlias

import msgpack

from dice_engine.source.hole import HoleKind
from dice_engine.source.plan import Plan
from dice_engine.typed import TypeMismatch, plain, structure
from dice_engine.verify.verdict import Verdict

PROTOCOL = 2
MAX_FRAME = 8 * 2**20
HEADER = struct.Struct(">I")

Device = Literal["auto", "cpu", "cuda"]


class WireError(Exception):
    """A frame that cannot be understood; the connection it came from is closed."""


# Requests


@dataclass(frozen=True)
class Hello:
    type: ClassVar[str] = "hello"
    protocol: int
    token: str = ""
    """The secret of the token file, on TCP connections."""


@dataclass(frozen=True)
class GenerateRequest:
    """Decode ``n`` candidates at most: events ``progress`` and ``candidate``, then ``done``. The first is greedy, the
    others leave it where it was least sure, or are drawn at a ``temperature`` with seeds ``seed + i``."""

    type: ClassVar[str] = "generate"
    id: str
    kind: HoleKind
    prefix: str
    suffix: str
    reference: str
    """What is to be made faster: see ``dice_engine.prompts``."""
    n: int = 8
    seed: int = 0
    temperature: float | None = None
    max_new_tokens: int = 1536
    checkpoint: str | None = None
    """Folder of the model; None: the embedded one."""
    device: Device = "auto"
    priority: int = 0
    """Higher goes first. Above 0 somebody waits while typing, and no verification follows."""
    begin: str = ""
    """The beginning of the core, when it stands already: candidates go on from there."""
    trace: bool = False
    """Let ``progress`` say which tokens came and when."""


@dataclass(frozen=True)
class VerifyRequest:
    """Judge one candidate: one ``verdict`` event. ``kernel`` names the kernel of two CUDA sources; None: two Python
    modules, ``reference_class`` against ``candidate_class``."""

    type: ClassVar[str] = "verify"
    id: str
    original: str
    candidate: str
    kernel: str | None = None
    plan: Plan | None = None
    reference_class: str = "Model"
    candidate_class: str = "ModelNew"
    keep_state: bool = False
    """Whether the candidate must have the reference's parameters and buffers by name, type and shape."""
    measure: bool = True
    device: Device = "auto"


@dataclass(frozen=True)
class CancelRequest:
    """Stop the request ``id`` of the same connection, which then ends with ``done``."""

    type: ClassVar[str] = "cancel"
    id: str


@dataclass(frozen=True)
class StatusRequest:
    type: ClassVar[str] = "status"
    id: str


@dataclass(frozen=True)
class ShutdownRequest:
    """End the service; running work is cancelled."""

    type: ClassVar[str] = "shutdown"
    id: str


# Events


@dataclass(frozen=True)
class Welcome:
    type: ClassVar[str] = "welcome"
    protocol: int
    pid: int
    version: str


@dataclass(frozen=True)
class Progress:
    """One candidate has one more block. ``tokens`` is its length so far; ``finished`` of ``n`` candidates are done."""

    type: ClassVar[str] = "progress"
    id: str
    candidate: int
    tokens: int
    finished: int
    n: int
    new: list[int] = field(default_factory=list)
    """With ``trace``: the block's tokens."""
    steps: list[int] = field(default_factory=list)
    """With ``trace``: for each of them the step inside the block at which it was unmasked."""


@dataclass(frozen=True)
class CandidateEvent:
    """A candidate is decoded. Its core goes between the user's own prefix and suffix, unchanged."""

    type: ClassVar[str] = "candidate"
    id: str
    index: int
    core: str
    tokens: list[int]
    step_map: list[int]
    complete: bool
    """The model ended it; False: cut at the length limit."""
    seconds: float


@dataclass(frozen=True)
class VerdictEvent:
    type: ClassVar[str] = "verdict"
    id: str
    verdict: Verdict


@dataclass(frozen=True)
class Done:
    """Nothing more comes for this id."""

    type: ClassVar[str] = "done"
    id: str
    cancelled: bool = False


@dataclass(frozen=True)
class Error:
    """The request ``id`` failed (empty: the connection did, and is closed)."""

    type: ClassVar[str] = "error"
    id: str
    message: str


@dataclass(frozen=True)
class Status:
    type: ClassVar[str] = "status_report"
    id: str
    pid: int
    version: str
    device: str
    """Where models run or would run: ``cpu`` or the GPU's name."""
    models: list[str] = field(default_factory=list)
    """Loaded checkpoints."""
    clients: int = 0
    active: int = 0
    """Requests being decoded or verified."""
    waiting: int = 0
    uptime_seconds: float = 0.0
    idle_seconds: float = 0.0
    gpu_bytes: int = 0
    """GPU memory that the engine process holds."""


Request: TypeAlias = Hello | GenerateRequest | VerifyRequest | CancelRequest | StatusRequest | ShutdownRequest
Event: TypeAlias = Welcome | Progress | CandidateEvent | VerdictEvent | Done | Error | Status
Message: TypeAlias = Request | Event

_TYPES: dict[str, Any] = {
    t.type: t
    for t in (
        *(Hello, GenerateRequest, VerifyRequest, CancelRequest, StatusRequest, ShutdownRequest),
        *(Welcome, Progress, CandidateEvent, VerdictEvent, Done, Error, Status),
    )
}


def encode(message: Message) -> bytes:
    """The frame of a message; raises :class:`WireError` when it is over the size limit."""
    return pack_frame({"type": message.type, **plain(message)})


def decode(body: bytes) -> Message:
    """The message of a frame's body; raises :class:`WireError`, whatever the bytes are."""
    data = unpack_body(body)
    kind = _TYPES.get(data.pop("type", None)) if isinstance(data.get("type"), str) else None
    if kind is None:
        raise WireError("a frame whose type is not known here")
    try:
        return structure(kind, data)
    except TypeMismatch as error:
        raise WireError(f"a bad {kind.type} message: {error}") from None


def pack_frame(data: dict[str, Any]) -> bytes:
    try:
        body = msgpack.packb(data)
    except (UnicodeEncodeError, OverflowError, ValueError) as error:
        raise WireError(f"a message that cannot be packed: {error}") from None
    assert body is not None
    if len(body) > MAX_FRAME:
        raise WireError(f"a message of {len(body)} bytes is over the limit of {MAX_FRAME}")
    return HEADER.pack(len(body)) + body


def unpack_body(body: bytes) -> dict[str, Any]:
    try:
        data = msgpack.unpackb(body, strict_map_key=True)
    except Exception as error:  # msgpack raises a dozen types, some undocumented
        raise WireError(f"a frame that is not msgpack: {type(error).__name__}") from None
    if not isinstance(data, dict):
        raise WireError("a frame that is not a map")
    return data


def body_length(header: bytes) -> int:
    (length,) = HEADER.unpack(header)
    if length > MAX_FRAME:
        raise WireError(f"a frame of {length} bytes, over the limit of {MAX_FRAME}: is this a DICE client?")
    return length


async def read(reader: asyncio.StreamReader) -> Message | None:
    """The next message; None at the end of the stream. Raises :class:`WireError`."""
    try:
        header = await reader.readexactly(HEADER.size)
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise WireError("the connection ended inside a frame") from None
        return None
    try:
        return decode(await reader.readexactly(body_length(header)))
    except asyncio.IncompleteReadError:
        raise WireError("the connection ended inside a frame") from None
