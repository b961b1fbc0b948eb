"""URIs as clients write them. Not each can be read: ``file://[`` is no host, and no path has a zero in it."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

from pygls.uris import to_fs_path


def readable(uri: str | None) -> bool:
    try:
        urlsplit(uri or "")
    except ValueError:
        return False
    return "\0" not in unquote(uri or "")


def path_of(uri: str) -> str | None:
    """The path of a ``file:`` URI; None for every other and for one that cannot be read."""
    return to_fs_path(uri) if readable(uri) else None


def file_of(uri: str) -> Path | None:
    """The file of a URI (for a notebook's cell, the notebook's); None for a buffer that has none."""
    if not readable(uri):
        return None
    parts = urlsplit(uri)
    path = to_fs_path(urlunsplit(("file", "", parts.path, "", "")))
    return Path(path) if path and parts.path.startswith("/") else None
