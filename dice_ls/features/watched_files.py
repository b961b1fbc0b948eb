"""Sources and headers that were written: the plans of other open files may come through them."""

from __future__ import annotations

from pathlib import PurePosixPath
from urllib.parse import unquote

from lsprotocol import types

from dice_ls.language_server import DiceServer

_SUFFIXES = (".cu", ".cuh", ".h", ".hpp", ".hh", ".inl")


def register(server: DiceServer) -> None:
    @server.feature(types.WORKSPACE_DID_CHANGE_WATCHED_FILES)
    def changed(ls: DiceServer, params: types.DidChangeWatchedFilesParams) -> None:
        written(ls, [change.uri for change in params.changes])


def when_ready(ls: DiceServer) -> None:
    """Ask the client to tell of such files."""
    if ls.supports("workspace.did_change_watched_files.dynamic_registration"):
        pattern = f"**/*.{{{','.join(suffix[1:] for suffix in _SUFFIXES)}}}"
        options = types.DidChangeWatchedFilesRegistrationOptions([types.FileSystemWatcher(pattern)])
        registration = types.Registration("dice-sources", types.WORKSPACE_DID_CHANGE_WATCHED_FILES, options)
        ls.client_register_capability(types.RegistrationParams([registration]))


def written(ls: DiceServer, uris: list[str]) -> None:
    """Plans that may come through one of these files are looked for again."""
    known = {unquote(uri) for uri in uris if PurePosixPath(unquote(uri)).suffix in _SUFFIXES}
    for document in ls.documents if known else ():
        if known != {unquote(document.uri)} and document.path.endswith((".cu", ".cuh")):
            document.outdated()
            ls.board.check_annotations(document.uri, delay=0)
