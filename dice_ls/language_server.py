"""The server object: what all features share. No feature logic here; see ``server.py`` for the wiring."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lsprotocol import types
from pygls.capabilities import get_capability
from pygls.exceptions import JsonRpcException
from pygls.lsp.server import LanguageServer

from dice_ls import __version__
from dice_ls.compiler import Compiler
from dice_ls.documents import Document, Documents
from dice_ls.engine import Engine
from dice_ls.notebooks import Notebooks
from dice_ls.progress import ProgressBar
from dice_ls.projects import Projects, Watch
from dice_ls.protocol import DiceProtocol
from dice_ls.settings import Settings
from dice_ls.status import StatusReporter
from dice_ls.suggestions.jobs import JobQueue
from dice_ls.suggestions.store import Store
from dice_ls.trust import TrustStore
from dice_ls.uris import file_of, path_of

if TYPE_CHECKING:
    from dice_engine.source.project import Project

    from dice_ls.features.diagnostics import Board
    from dice_ls.features.inline_completion import Ghosts

log = logging.getLogger(__name__)


class DiceServer(LanguageServer):
    """State of one client's session: documents, settings, trust, results and the queue of jobs."""

    def __init__(self) -> None:
        cells = [types.NotebookCellLanguage(language=language) for language in ("python", "cuda", "cuda-cpp")]
        super().__init__(
            "dice-ls",
            __version__,
            protocol_cls=DiceProtocol,
            max_workers=2,
            notebook_document_sync=types.NotebookDocumentSyncOptions(
                [types.NotebookDocumentFilterWithCells(cells=cells)], save=True
            ),
        )
        self.settings = self.first_settings = Settings()
        self.setting_problems: list[str] = []
        self.documents = Documents()
        self.notebooks = Notebooks(self.documents)
        self.projects = Projects()
        self.documents.project_of = self.project_of
        self.watch = Watch(self.project_changed)
        self.said_problems: set[str] = set()
        self.store = Store()
        self.trust = TrustStore()
        self.asking = asyncio.Lock()
        """Held while the user is asked a question: requests that come meanwhile wait for the same answer."""
        self.seen_checkpoints: dict[str | None, None] = {}
        """Folders that were selected in this session."""
        self.bars: dict[str | int, ProgressBar] = {}
        """The progress bars that are shown, by token."""
        self.status = StatusReporter(self.protocol.notify)
        self.engine = Engine()
        self.compiler = Compiler()
        self.jobs = JobQueue(self)
        self._refreshing = False
        self._following: asyncio.Future[None] | None = None

    def supports(self, capability: str) -> bool:
        """Whether the client said yes to a capability, by its dotted attribute path."""
        return bool(get_capability(self.client_capabilities, capability, False))

    def resolves(self, capability: str) -> list[str]:
        """The properties that the client fetches later, by a resolve request."""
        support = get_capability(self.client_capabilities, capability, None)
        return list(support.properties) if support is not None else []

    def prefers_markdown(self, capability: str) -> bool:
        """Whether a client's list of text formats (by its path) names Markdown; without a list it is plain text."""
        formats = get_capability(self.client_capabilities, capability, None) or []
        return types.MarkupKind.Markdown in formats

    def root_of(self, document: Document) -> Path:
        """The workspace folder a document belongs to, else the folder it lies in."""
        path = file_of(document.uri)
        roots = self.roots()
        if path is None:
            return roots[0] if roots else Path("untitled").resolve().parent
        containing = [root for root in roots if path.is_relative_to(root)]
        return max(containing, key=lambda root: len(root.parts), default=path.parent)

    def roots(self) -> list[Path]:
        """The open workspace folders."""
        folders = [path_of(uri) for uri in self.workspace.folders] or [self.workspace.root_path]
        return [Path(folder) for folder in folders if folder]

    def show(self, message: str, kind: types.MessageType = types.MessageType.Info) -> None:
        """Tell the user one thing, once."""
        self.window_show_message(types.ShowMessageParams(kind, message))

    def note(self, message: str) -> None:
        """Write to the client's log, where it disturbs nobody."""
        self.window_log_message(types.LogMessageParams(types.MessageType.Info, message))

    def refresh_lenses(self) -> None:
        """Ask the client to fetch code lenses again; requests within 200 ms are one."""
        if self._refreshing or not self.supports("workspace.code_lens.refresh_support"):
            return
        self._refreshing = True

        def send() -> None:
            self._refreshing = False
            self.workspace_code_lens_refresh(None)

        asyncio.get_running_loop().call_later(0.2, send)

    def report_server_error(self, error: Exception, source: Any) -> None:
        """Errors outside a request go to our log; only a body that cannot be read has an answer of its own."""
        if source is JsonRpcException and isinstance(error, ValueError | RecursionError):
            self.protocol.answer_parse_error(error)
        log.error("%s", error)

    async def build_flags(self, document: Document) -> list[str]:
        """What the project compiles this document with: include folders and definitions."""
        build = self.project_of(document).build_of(document.path)
        return [*build.flags, f"-I{Path(document.path).parent}"]

    def project_of(self, document: Document) -> Project:
        """What the document's workspace folder says about its sources. May be called from any thread."""
        return self.projects.at(self.root_of(document))

    def project_changed(self) -> None:
        """A file that says something about sources was written: everything is looked at anew."""
        for document in self.documents:
            document.surroundings_changed()
            self.board.check_annotations(document.uri, delay=0)
        self.say_project_problems()
        self.refresh_lenses()
        self._following = asyncio.ensure_future(self.watch.follow(self.roots()))

    def say_project_problems(self) -> None:
        """What is wrong in the projects' files, each thing once."""
        for root in self.roots():
            for problem in self.projects.at(root).problems:
                if problem not in self.said_problems:
                    self.said_problems.add(problem)
                    self.show(problem, types.MessageType.Warning)

    ghosts: Ghosts
    board: Board
    """These two are set by their features."""
    protocol: DiceProtocol  # pyright: ignore[reportIncompatibleVariableOverride]
