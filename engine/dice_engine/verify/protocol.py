"""Messages between the judge and a runner: length-prefixed msgpack over a private socket, tensors as raw bytes.

Nothing here is pickle: what a runner sends is data, whatever it contains. A frame is

    nonce (16 bytes) | body length (u32) | blob count (u32) | blob lengths (u64 each) | body | blobs

where the body is msgpack and a tensor in it is an extension value that names one blob with its dtype, shape and
strides. The nonce is random for each runner; a frame that does not carry it is a ``ProtocolError``.
"""

from __future__ import annotations

import math
import socket
import struct
import time
from typing import Any

import msgpack
import torch

NONCE_BYTES = 16
MAX_BODY_BYTES = 64 << 20
MAX_BLOBS = 4096
MAX_BLOB_BYTES = 16 << 30
_HEAD = struct.Struct("!II")
_TENSOR, _TUPLE, _DTYPE = 1, 2, 3

DTYPES: dict[str, torch.dtype] = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float32,
        torch.float64,
        torch.float16,
        torch.bfloat16,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.uint8,
        torch.uint16,
        torch.uint32,
        torch.uint64,
        torch.bool,
        torch.complex64,
        torch.complex128,
    )
}


class ProtocolError(Exception):
    """A frame that is malformed, too large or without the nonce."""


class Closed(Exception):
    """The other side closed the connection."""


class Deadline(Exception):
    """No whole message arrived in time."""


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


class Channel:
    """One end of a judge-runner connection. Not thread-safe: one user at a time."""

    def __init__(self, sock: socket.socket, nonce: bytes):
        self.sock = sock
        self.nonce = nonce

    def close(self) -> None:
        self.sock.close()

    def send(self, message: Any, timeout: float | None = None) -> None:
        """Send one message: None, bool, int, float, str, bytes, list, tuple, dict, tensor or torch.dtype, nested.

        Raises TypeError for anything else, before a byte is sent.
        """
        blobs: list[memoryview] = []
        body = _packed(message, blobs)
        head = self.nonce + _HEAD.pack(len(body), len(blobs))
        head += struct.pack(f"!{len(blobs)}Q", *(blob.nbytes for blob in blobs))
        self.sock.settimeout(timeout)
        try:
            self.sock.sendall(head + body)
            for blob in blobs:
                self.sock.sendall(blob)
        except TimeoutError as error:
            raise Deadline("the other process does not read its messages") from error
        except OSError as error:
            raise Closed(str(error)) from error

    def receive(self, timeout: float | None = None) -> Any:
        """Wait for one message; ``timeout`` in seconds covers the whole of it."""
        until = None if timeout is None else time.monotonic() + timeout
        head = self._read(NONCE_BYTES + _HEAD.size, until)
        if bytes(head[:NONCE_BYTES]) != self.nonce:
            raise ProtocolError("a message without the nonce of this run")
        body_bytes, blob_count = _HEAD.unpack(head[NONCE_BYTES:])
        if body_bytes > MAX_BODY_BYTES or blob_count > MAX_BLOBS:
            raise ProtocolError(
                f"a message of {body_bytes} bytes with {blob_count} tensors is over the limit"
            )
        sizes = struct.unpack(f"!{blob_count}Q", self._read(8 * blob_count, until))
        if sum(sizes) > MAX_BLOB_BYTES:
            raise ProtocolError(f"{sum(sizes)} bytes of tensors in one message are over the limit")
        body = self._read(body_bytes, until)
        blobs = [self._read(size, until) for size in sizes]
        try:
            return _unpacked(body, blobs)
        except ProtocolError:
            raise
        except Exception as error:
            raise ProtocolError(f"a message that is not valid msgpack: {error}") from error

    def _read(self, size: int, until: float | None) -> bytearray:
        data = bytearray(size)
        view = memoryview(data)
        while view.nbytes:
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                raise Deadline("no answer in time")
            self.sock.settimeout(left)
            try:
                count = self.sock.recv_into(view)
            except TimeoutError as error:
                raise Deadline("no answer in time") from error
            except OSError as error:
                raise Closed(str(error)) from error
            if count == 0:
                raise Closed("the connection was closed")
            view = view[count:]
        return data


def _packed(value: Any, blobs: list[memoryview]) -> bytes:
    packed = msgpack.packb(
        value, default=lambda item: _pack(item, blobs), use_bin_type=True, strict_types=True
    )
    return bytes(packed or b"")


def _unpacked(data: bytes | bytearray, blobs: list[bytearray]) -> Any:
    return msgpack.unpackb(data, ext_hook=lambda code, item: _unpack(code, item, blobs), strict_map_key=False)


def _pack(value: Any, blobs: list[memoryview]) -> Any:
    if isinstance(value, tuple):
        return msgpack.ExtType(_TUPLE, _packed(list(value), blobs))
    if isinstance(value, torch.dtype):
        return msgpack.ExtType(_DTYPE, dtype_name(value).encode())
    kinds: tuple[Any, ...] = (dict, list, bool, int, float, str)
    for kind in kinds:
        if isinstance(value, kind):
            return kind(value)
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"a message cannot hold a {type(value).__name__}")
    name = dtype_name(value.dtype)
    if name not in DTYPES:
        raise TypeError(f"a message cannot hold a tensor of {value.dtype}")
    tensor = value.detach()
    if tensor.layout != torch.strided:
        raise TypeError(f"a message cannot hold a tensor of layout {tensor.layout}")
    strides = list(tensor.stride())
    order = sorted(range(tensor.dim()), key=lambda axis: -strides[axis])
    dense = tensor.permute(order).cpu().contiguous().resolve_conj().resolve_neg()
    raw = dense.reshape(-1).view(torch.uint8) if dense.numel() else torch.empty(0, dtype=torch.uint8)
    array: Any = raw.numpy()
    blobs.append(memoryview(array).cast("B"))
    return msgpack.ExtType(
        _TENSOR, _packed([len(blobs) - 1, name, list(tensor.shape), order, strides], blobs)
    )


def _unpack(code: int, data: bytes, blobs: list[bytearray]) -> Any:
    if code == _TUPLE:
        return tuple(_unpacked(data, blobs))
    if code == _DTYPE:
        return DTYPES[bytes(data).decode()]
    if code != _TENSOR:
        raise ProtocolError(f"unknown extension {code} in a message")
    try:
        index, name, shape, order, strides = msgpack.unpackb(data)
        dtype = DTYPES[name]
        blob = blobs[index]
        count = math.prod(shape)
        if (
            sorted(order) != list(range(len(shape)))
            or len(strides) != len(shape)
            or min(shape, default=0) < 0
        ):
            raise ValueError("axes do not fit")
        if count * dtype.itemsize != len(blob):
            raise ValueError(f"{len(blob)} bytes for shape {shape} of {name}")
    except ProtocolError:
        raise
    except Exception as error:
        raise ProtocolError(f"a malformed tensor in a message: {error}") from error
    if not count:
        return torch.empty(shape, dtype=dtype)
    flat = torch.frombuffer(blob, dtype=torch.uint8).view(dtype)
    inverse = [order.index(axis) for axis in range(len(shape))]
    tensor = flat.view([shape[axis] for axis in order]).permute(inverse)
    if list(tensor.stride()) == list(strides):
        return tensor
    return _restride(tensor, strides)


def _restride(tensor: torch.Tensor, strides: list[int]) -> torch.Tensor:
    """A copy with exactly these strides (a slice, an expanded axis) where memory for it is reasonable."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, strides, strict=True))
    if min(strides, default=0) < 0 or last >= 64 * tensor.numel() + 1024:
        return tensor
    out = torch.empty(last + 1, dtype=tensor.dtype).as_strided(tensor.shape, strides)
    expanded = tuple(slice(0, 1) if stride == 0 else slice(None) for stride in strides)
    try:
        out[expanded].copy_(tensor[expanded])
    except RuntimeError:
        return tensor
    return out
