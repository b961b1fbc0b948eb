"""What follows from a document being opened, changed, saved or closed. The texts themselves: ``dice_ls.documents``."""

from __future__ import annotations

from pathlib import Path

from lsprotocol import types

from dice_ls.features import diagnostics, trust, watched_files
from dice_ls.language_server import DiceServer
from dice_ls.uris import file_of, path_of


def register(server: DiceServer) -> None:
    board = server.board = diagnostics.Board(server)

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    async def did_open(ls: DiceServer, params: types.DidOpenTextDocumentParams) -> None:
        board.check_annotations(params.text_document.uri, delay=0)
        document = ls.documents.get(params.text_document.uri)
        if document is not None and ls.settings.searchOnSave:
            document.saved = {hole_id for hole_id, _ in await document.holes()}

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def did_change(ls: DiceServer, params: types.DidChangeTextDocumentParams) -> None:
        ls.ghosts.typed(params.text_document.uri)
        board.check_annotations(params.text_document.uri, delay=ls.settings.diagnosticsDelayMs / 1000)

    @server.feature(types.TEXT_DOCUMENT_DID_SAVE)
    async def did_save(ls: DiceServer, params: types.DidSaveTextDocumentParams) -> None:
        board.check_saved(params.text_document.uri)
        watched_files.written(ls, [params.text_document.uri])
        await _search_edited(ls, params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def did_close(ls: DiceServer, params: types.DidCloseTextDocumentParams) -> None:
        _gone(ls, params.text_document.uri)

    @server.feature(types.NOTEBOOK_DOCUMENT_DID_OPEN)
    def notebook_opened(ls: DiceServer, params: types.DidOpenNotebookDocumentParams) -> None:
        for item in params.cell_text_documents:
            board.check_annotations(item.uri, delay=0)

    @server.feature(types.NOTEBOOK_DOCUMENT_DID_CHANGE)
    def notebook_changed(ls: DiceServer, params: types.DidChangeNotebookDocumentParams) -> None:
        cells = params.change.cells
        for content in (cells.text_content or ()) if cells is not None else ():
            ls.ghosts.typed(content.document.uri)
            board.check_annotations(content.document.uri, delay=ls.settings.diagnosticsDelayMs / 1000)
        if cells is not None and cells.structure is not None:
            for closed in cells.structure.did_close or ():
                _gone(ls, closed.uri)

    @server.feature(types.NOTEBOOK_DOCUMENT_DID_SAVE)
    def notebook_saved(ls: DiceServer, params: types.DidSaveNotebookDocumentParams) -> None:
        for uri in ls.notebooks.cells(params.notebook_document.uri):
            board.check_saved(uri)

    @server.feature(types.NOTEBOOK_DOCUMENT_DID_CLOSE)
    def notebook_closed(ls: DiceServer, params: types.DidCloseNotebookDocumentParams) -> None:
        for item in params.cell_text_documents:
            _gone(ls, item.uri)

    code = [types.FileOperationFilter(types.FileOperationPattern("**/*.{cu,cuh,py,ipynb}"), scheme="file")]
    folders = [
        types.FileOperationFilter(
            types.FileOperationPattern("**", matches=types.FileOperationPatternKind.Folder), scheme="file"
        )
    ]
    operations = types.FileOperationRegistrationOptions(filters=code + folders)

    @server.feature(types.WORKSPACE_DID_RENAME_FILES, operations)
    def renamed(ls: DiceServer, params: types.RenameFilesParams) -> None:
        """Results go with their file, whether it was renamed itself or a folder above it."""
        for file in params.files:
            ls.store.move(file.old_uri, file.new_uri)
        ls.refresh_lenses()

    @server.feature(types.WORKSPACE_DID_DELETE_FILES, operations)
    def deleted(ls: DiceServer, params: types.DeleteFilesParams) -> None:
        for file in params.files:
            ls.jobs.cancel_document(file.uri, "its file was deleted")
            ls.store.forget(file.uri)

    @server.feature(types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS)
    async def folders_changed(ls: DiceServer, params: types.DidChangeWorkspaceFoldersParams) -> None:
        """What was asked for in a folder that is no longer open is given up."""
        gone = [Path(path) for folder in params.event.removed if (path := path_of(folder.uri))]
        for document in ls.documents:
            path = file_of(document.uri)
            if path is not None and any(path.is_relative_to(folder) for folder in gone):
                ls.jobs.cancel_document(document.uri, "its folder was closed")
        await ls.watch.follow(ls.roots())


def _gone(ls: DiceServer, uri: str) -> None:
    ls.board.forget(uri)
    ls.jobs.cancel_document(uri)


async def _search_edited(ls: DiceServer, uri: str) -> None:
    """Search for faster versions of what was edited since the last save, where the user has turned that on."""
    document = ls.documents.get(uri)
    if document is None or not ls.settings.searchOnSave:
        return
    pairs = await document.holes()
    before, document.saved = document.saved, {hole_id for hole_id, _ in pairs}
    if not trust.known(ls, document):
        return
    for hole_id, hole in pairs:
        edited = hole_id not in before and hole.kind == "kernel_body"
        if edited and hole.editable and hole.plan.runnable and ls.store.get(document.uri, hole_id) is None:
            ls.jobs.submit(document, hole_id, hole, background=True)
