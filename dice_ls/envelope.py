"""The outside of a message: whether it is JSON-RPC at all, and in words what is wrong with it."""

from __future__ import annotations

import re
from typing import Any

_MOST_FAULTS = 3


def fault(body: Any) -> str | None:
    """Why ``body`` (what a client has sent, as JSON) is no message; None when it is one."""
    if not isinstance(body, dict):
        return "a message is one JSON object"
    if body.get("jsonrpc") != "2.0":
        return 'a message has "jsonrpc": "2.0"'
    if "method" in body:
        if not isinstance(body["method"], str):
            return "a method is a text"
        return None if "id" not in body or is_id(body["id"]) else "an id is a whole number or a text"
    if "result" in body or "error" in body or is_id(body.get("id")):
        return None
    return "a message has a method, a result or an error"


def is_id(value: Any) -> bool:
    return isinstance(value, int | str) and not isinstance(value, bool)


def reasons(error: Exception) -> str:
    """What is wrong with a message's parameters, in one line: ``required field missing @ params.textDocument``."""
    from cattrs import transform_error

    cause = error.__cause__ or error
    faults = transform_error(cause, format_exception=_reason)  # type: ignore[arg-type]
    return "; ".join(_as_sent(one) for one in faults[:_MOST_FAULTS])


def _reason(error: BaseException, kind: type | None) -> str:
    if isinstance(error, KeyError):
        return "required field missing"
    if isinstance(error, ValueError) and error.args and "should be" in str(error):
        return str(error).splitlines()[0]
    return f"not a {getattr(kind, '__name__', kind)}" if kind is not None else type(error).__name__


def _as_sent(fault: str) -> str:
    """With the fields named as they are in the protocol."""
    text, _, path = fault.rpartition(" @ ")
    name = re.sub(r"_(\w)", lambda letter: letter[1].upper(), path.removeprefix("$").removeprefix("."))
    return f"{text} @ {name}" if name else text
