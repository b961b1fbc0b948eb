"""The protocol layer: what pygls leaves out. Every request gets an answer, and documents are ours.

pygls drops malformed requests, and requests before ``initialize`` or after ``shutdown``, without a word; a client
then waits for ever. Document synchronisation is replaced because pygls counts lines as ``str.splitlines`` does.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from lsprotocol import types
from pygls.exceptions import (
    JsonRpcException,
    JsonRpcInternalError,
    JsonRpcInvalidParams,
    JsonRpcInvalidRequest,
)
from pygls.protocol import LanguageServerProtocol, lsp_method

if TYPE_CHECKING:
    from dice_ls.language_server import DiceServer

log = logging.getLogger(__name__)
_NOT_INITIALIZED = -32002
_PARSE_ERROR = -32700


@dataclass(frozen=True)
class Malformed:
    """A message that was already answered (or needs no answer) and must not be handled."""

    reason: str


class _Futures(dict[Any, Any]):
    """The requests under way. At shutdown pygls cancels them one by one, and each leaves at once."""

    def items(self) -> Any:
        return list(super().items())


class DiceProtocol(LanguageServerProtocol):
    """pygls' protocol with an error for every request that cannot be served."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._request_futures = _Futures()

    @property
    def dice(self) -> DiceServer:
        return cast("DiceServer", self._server)

    def prepare(self, *kinds: type) -> None:
        """Build what reads and writes messages of these kinds now, not when the first one comes."""
        for kind in kinds:
            self._converter.get_structure_hook(kind)
            self._converter.get_unstructure_hook(kind)

    def structure_message(self, data: dict[str, Any]) -> Any:
        try:
            return super().structure_message(data)
        except (JsonRpcException, TypeError, AttributeError) as error:
            method, msg_id = data.get("method"), data.get("id")
            reason = _cause(error)
            if isinstance(method, str) and isinstance(msg_id, int | str):
                wrong = JsonRpcInvalidParams(f"invalid params for {method}: {reason}")
                self._send_response(msg_id, error=wrong.to_response_error())
            return Malformed(f"{method}: {reason}")

    def handle_message(self, message: Any) -> None:
        if isinstance(message, Malformed):
            log.error("ignored a malformed message: %s", message.reason)
            return
        if not hasattr(message, "jsonrpc"):
            log.error("ignored something that is not JSON-RPC 2.0")
            return
        method, msg_id = getattr(message, "method", None), getattr(message, "id", None)
        if method is not None and method != types.EXIT:
            refusal = self._refusal(method)
            if refusal is not None:
                if msg_id is not None:
                    self._send_response(msg_id, error=refusal.to_response_error())
                return
        super().handle_message(message)

    def _refusal(self, method: str) -> JsonRpcException | None:
        if self._shutdown:
            return JsonRpcInvalidRequest(f"{method} after shutdown")
        if self._workspace is None and method != types.INITIALIZE:
            return JsonRpcException(f"{method} before initialize", code=_NOT_INITIALIZED)
        if self._workspace is not None and method == types.INITIALIZE:
            return JsonRpcInvalidRequest("initialize was sent twice")
        return None

    def answer_parse_error(self, error: json.JSONDecodeError | UnicodeDecodeError) -> None:
        """Answer a body that is not JSON: the id is unknown, so it is null."""
        self._send_data(
            {"jsonrpc": "2.0", "id": None, "error": {"code": _PARSE_ERROR, "message": str(error)}}
        )

    def _execute_handler(
        self, msg_id: Any, handler: Any, callback: Any, args: Any = None, kwargs: Any = None
    ) -> None:
        """As in pygls, which keeps the result of every notification and command for ever."""

        def done(future: Any) -> None:
            self._request_futures.pop(msg_id, None)
            callback(future)

        super()._execute_handler(msg_id, handler, done, args, kwargs)

    def _send_handler_result(self, future: Any, *, msg_id: Any) -> None:
        """As in pygls, but an unexpected exception reaches the client as one line, the traceback only our log."""
        if not future.cancelled() and (error := future.exception()) is not None:
            self._request_futures.pop(msg_id, None)
            if not isinstance(error, JsonRpcException):
                log.error("request %r failed", msg_id, exc_info=error)
                error = JsonRpcInternalError(f"{type(error).__name__}: {error}")
            self._send_response(msg_id, error=error.to_response_error())
            return
        super()._send_handler_result(future, msg_id=msg_id)

    @lsp_method(types.TEXT_DOCUMENT_DID_OPEN)
    def lsp_text_document__did_open(
        self, params: types.DidOpenTextDocumentParams
    ) -> Generator[Any, Any, None]:
        self.dice.documents.open(params.text_document)
        yield from self._user_handler(types.TEXT_DOCUMENT_DID_OPEN, params)

    @lsp_method(types.TEXT_DOCUMENT_DID_CHANGE)
    def lsp_text_document__did_change(
        self, params: types.DidChangeTextDocumentParams
    ) -> Generator[Any, Any, None]:
        document = self.dice.documents.get(params.text_document.uri)
        if document is None:
            log.error("didChange for a document that is not open: %s", params.text_document.uri)
            return
        document.change(list(params.content_changes), params.text_document.version)
        yield from self._user_handler(types.TEXT_DOCUMENT_DID_CHANGE, params)

    @lsp_method(types.TEXT_DOCUMENT_DID_CLOSE)
    def lsp_text_document__did_close(
        self, params: types.DidCloseTextDocumentParams
    ) -> Generator[Any, Any, None]:
        self.dice.documents.close(params.text_document.uri)
        yield from self._user_handler(types.TEXT_DOCUMENT_DID_CLOSE, params)

    @lsp_method(types.NOTEBOOK_DOCUMENT_DID_OPEN)
    def lsp_notebook_document__did_open(
        self, params: types.DidOpenNotebookDocumentParams
    ) -> Generator[Any, Any, None]:
        self.dice.notebooks.open(params)
        yield from self._user_handler(types.NOTEBOOK_DOCUMENT_DID_OPEN, params)

    @lsp_method(types.NOTEBOOK_DOCUMENT_DID_CHANGE)
    def lsp_notebook_document__did_change(
        self, params: types.DidChangeNotebookDocumentParams
    ) -> Generator[Any, Any, None]:
        self.dice.notebooks.change(params)
        yield from self._user_handler(types.NOTEBOOK_DOCUMENT_DID_CHANGE, params)

    @lsp_method(types.NOTEBOOK_DOCUMENT_DID_CLOSE)
    def lsp_notebook_document__did_close(
        self, params: types.DidCloseNotebookDocumentParams
    ) -> Generator[Any, Any, None]:
        self.dice.notebooks.close(params)
        yield from self._user_handler(types.NOTEBOOK_DOCUMENT_DID_CLOSE, params)

    def _user_handler(self, method: str, params: Any) -> Generator[Any, Any, None]:
        if (handler := self.fm.features.get(method)) is not None:
            yield handler, (params,), None


def _cause(error: BaseException) -> str:
    """The innermost reason of a cattrs error, in one line."""
    inner: BaseException | None = error
    while inner is not None:
        error = inner
        nested = getattr(inner, "exceptions", None)
        inner = nested[0] if nested else inner.__cause__
    return f"{type(error).__name__}: {error}".splitlines()[0]


class ClientPipe:
    """Standard output as the protocol's channel. After the client is gone, writing does nothing."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._gone = False

    def write(self, data: bytes) -> int:
        if not self._gone:
            try:
                self._stream.write(data)
                self._stream.flush()
            except (OSError, ValueError):
                self._gone = True
                print("dice-ls: the client closed the connection", file=sys.stderr)
        return len(data)

    def flush(self) -> None:
        """Nothing is held back: ``write`` flushes."""

    def close(self) -> None:
        self._gone = True
