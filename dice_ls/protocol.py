"""The protocol layer: what pygls leaves out. Every request gets an answer, and documents are ours.

pygls drops malformed requests, and requests before ``initialize`` or after ``shutdown``, without a word; a client
then waits for ever. Document synchronisation is replaced because pygls counts lines as ``str.splitlines`` does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Generator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from lsprotocol import types
from pygls.exceptions import (
    JsonRpcException,
    JsonRpcInternalError,
    JsonRpcInvalidParams,
    JsonRpcInvalidRequest,
    JsonRpcMethodNotFound,
)
from pygls.protocol import LanguageServerProtocol, lsp_method

from dice_ls import envelope
from dice_ls.uris import readable

if TYPE_CHECKING:
    from dice_ls.language_server import DiceServer

log = logging.getLogger(__name__)
_NOT_INITIALIZED = -32002
_PARSE_ERROR = -32700


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

    @property
    def was_shut_down(self) -> bool:
        """Whether the client has said that the session ends: leaving without that is an error."""
        return self._shutdown

    def prepare(self, *kinds: type) -> None:
        """Build what reads and writes messages of these kinds now, not when the first one comes."""
        for kind in kinds:
            self._converter.get_structure_hook(kind)
            self._converter.get_unstructure_hook(kind)

    def structure_message(self, data: dict[str, Any]) -> Any:
        """pygls calls this for every object inside a body; what is a message is known only of the whole."""
        return data

    def handle_message(self, message: Any) -> None:
        """Serve what a client has sent, or answer what is wrong with it."""
        if (fault := envelope.fault(message)) is not None:
            self._refuse(None, JsonRpcInvalidRequest(fault))
        elif "method" in message:
            self._handle_call(message)
        else:
            self._handle_answer(message)

    def _handle_answer(self, message: dict[str, Any]) -> None:
        """Whoever waits for the answer hears of it, though it says nothing that can be read."""
        msg_id = message.get("id")
        if not envelope.is_id(msg_id) or msg_id not in self._result_types:
            return
        if "error" not in message:
            message.setdefault("result", None)
        try:
            answer: Any = super().structure_message(message)
        except (JsonRpcException, TypeError, AttributeError) as error:
            wrong = JsonRpcException(f"the client's answer cannot be read: {envelope.reasons(error)}")
            self._handle_response(msg_id, error=wrong.to_response_error())
        else:
            super().handle_message(answer)
        self._result_types.pop(msg_id, None)

    def _handle_call(self, message: dict[str, Any]) -> None:
        method, msg_id = message["method"], message.get("id")
        refusal = self._refusal(method, is_request="id" in message)
        if refusal is None:
            try:
                structured: Any = super().structure_message(message)
            except (JsonRpcException, TypeError, AttributeError) as error:
                refusal = JsonRpcInvalidParams(f"invalid params for {method}: {envelope.reasons(error)}")
            else:
                super().handle_message(structured)
                return
        if "id" in message:
            self._refuse(msg_id, refusal)
        elif isinstance(refusal, JsonRpcInvalidParams):
            log.error("ignored: %s", refusal)

    def _refuse(self, msg_id: int | str | None, error: JsonRpcException) -> None:
        self._send_data(
            {"jsonrpc": "2.0", "id": msg_id, "error": {"code": error.code, "message": error.message}}
        )

    def _refusal(self, method: str, is_request: bool) -> JsonRpcException | None:
        known = method in self.fm.builtin_features or method in self.fm.features
        if method == types.EXIT and not is_request:
            return None
        if self._shutdown:
            return JsonRpcInvalidRequest(f"{method} after shutdown")
        if self._workspace is None and method != types.INITIALIZE:
            return JsonRpcException(f"{method} before initialize", code=_NOT_INITIALIZED)
        if self._workspace is not None and method == types.INITIALIZE:
            return JsonRpcInvalidRequest("initialize was sent twice")
        if not known and method != types.CANCEL_REQUEST:
            return JsonRpcMethodNotFound.of(method)
        if is_request != (self.get_result_type(method) is not None):
            return JsonRpcInvalidRequest(f"{method} is a {'notification' if is_request else 'request'}")
        return None

    def answer_parse_error(self, error: Exception) -> None:
        """Answer a body that is not JSON: the id is unknown, so it is null."""
        self._refuse(None, JsonRpcException(str(error), code=_PARSE_ERROR))

    def _execute_handler(
        self, msg_id: Any, handler: Any, callback: Any, args: Any = None, kwargs: Any = None
    ) -> None:
        """As in pygls, which keeps the result of every notification and command for ever."""

        def done(future: Any) -> None:
            self._request_futures.pop(msg_id, None)
            with suppress(asyncio.CancelledError):  # the end of the session found it at work
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

    @lsp_method(types.INITIALIZE)
    def lsp_initialize(self, params: types.InitializeParams) -> Generator[Any, Any, types.InitializeResult]:
        """As in pygls; what has a URI that cannot be read is no folder."""
        if not readable(params.root_uri):
            params.root_uri = None
        params.workspace_folders = [one for one in params.workspace_folders or () if readable(one.uri)]
        return (yield from super().lsp_initialize(params))

    @lsp_method(types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS)
    def lsp_workspace__did_change_workspace_folders(
        self, params: types.DidChangeWorkspaceFoldersParams
    ) -> Generator[Any, Any, None]:
        params.event.added = [one for one in params.event.added if readable(one.uri)]
        params.event.removed = [one for one in params.event.removed if readable(one.uri)]
        return (yield from super().lsp_workspace__did_change_workspace_folders(params))

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
