"""The scenarios in Emacs with eglot: the package of ``editors/emacs`` in a terminal, keys typed, the real server."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from applied import compiles, value_of
from conftest import ROOT, SHOTS, Place, needs
from nvim_rpc import until
from samples import EMOJI_CRLF, FAST, SAXPY
from screen import Screen

PACKAGE = ROOT / "editors" / "emacs"
INIT = """
(add-to-list 'load-path "{package}")
(setq inhibit-startup-screen t make-backup-files nil auto-save-default nil create-lockfiles nil
      server-name "{socket}" server-socket-dir nil use-dialog-box nil visible-bell nil ring-bell-function #'ignore
      native-comp-async-report-warnings-errors nil eglot-autoshutdown t column-number-mode nil
      suggest-key-bindings nil)
(menu-bar-mode -1)
(require 'dice)
{more}
(setq server-use-tcp nil server-socket-dir "{folder}")
(server-start)
(setq confirm-kill-processes nil)
"""
REWRITTEN = SAXPY[: SAXPY.index("{") + 1] + FAST + SAXPY[SAXPY.index("}\n\nvoid") :]
HAS_FMAF = '(save-excursion (goto-char (point-min)) (search-forward "fmaf" nil t))'
TRUSTED = "(setq dice-trusted t)"


class Editor:
    """Emacs on one file of the place's workspace."""

    def __init__(self, place: Place, file: str, more: str = TRUSTED) -> None:
        self.place = place
        number = len(list(place.runtime.glob("emacs*")))
        self.socket = place.runtime / f"emacs-{number}"
        init = place.folder / "init.el"
        values = {"package": PACKAGE, "socket": self.socket.name, "folder": place.runtime, "more": more}
        init.write_text(INIT.format(**values), encoding="utf-8")
        command = [needs("emacs", "emacs"), "-q", "-nw", "-l", str(init), file]
        self.screen = Screen(place.runtime, command, place.environment, place.workspace)
        until(self.socket.exists, "Emacs")

    def eval(self, form: str) -> str:
        """The printed value of a Lisp form, evaluated in the shown buffer."""
        whole = f"(with-current-buffer (window-buffer (selected-window)) {form})"
        command = [needs("emacsclient", "emacs"), "-s", str(self.socket), "--eval", whole]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=60,
            env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
        )
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout.strip()

    def until(self, form: str) -> str:
        """Wait for a form that is not nil; a failure shows the screen."""
        try:
            return until(lambda: (value := self.eval(form)) != "nil" and value, form)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.screen.text()}") from None

    def shows(self, *texts: str) -> None:
        try:
            until(lambda: all(text in self.screen.text() for text in texts), " and ".join(texts))
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.screen.text()}") from None

    def lens(self, title: str) -> None:
        self.until(f'(cl-find-if (lambda (one) (string-match-p "{title}" one)) (dice-lens-titles))')

    def text(self) -> str:
        target = self.place.folder / "text"
        write = (
            f'(let ((coding-system-for-write (quote utf-8-unix))) (write-region nil nil "{target}" nil 0))'
        )
        self.eval(f"(save-restriction (widen) {write})")
        return target.read_bytes().decode()

    def at(self, text: str) -> None:
        search = f'(goto-char (point-min)) (search-forward "{text}") (goto-char (match-beginning 0))'
        self.eval(f"(progn {search} (set-window-point (selected-window) (point)))")

    def command(self, name: str) -> None:
        """Run a command by its name, as a person does."""
        self.screen.keys("M-x")
        self.screen.keys("-l", name)
        self.screen.keys("Enter")

    def close(self) -> None:
        self.screen.close()


@pytest.fixture
def editor(place: Place) -> Iterator[Callable[..., Editor]]:
    opened: list[Editor] = []

    def open_(file: str = "saxpy.cu", **options: str) -> Editor:
        opened.append(Editor(place, file, **options))
        return opened[-1]

    yield open_
    for one in opened:
        one.close()


def searched(one: Editor) -> None:
    one.lens("DICE: ")
    one.at("dst[k] =")
    one.command("dice-find-faster")
    one.lens("2.31x verified")


def previewed(one: Editor) -> None:
    one.command("dice-preview")
    one.shows("*dice preview*", "+  const int k")


def applied(one: Editor, buffer: str) -> None:
    """RET in the preview, and wait until the buffer has the rewrite."""
    one.screen.keys("Enter")
    one.until(f'(and (equal (buffer-name) "{buffer}") {HAS_FMAF})')


def test_byte_compiles_without_a_warning_and_passes_its_unit_tests() -> None:
    done = subprocess.run(
        ["make", "-C", str(PACKAGE), "check", "clean"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 unexpected" in done.stdout + done.stderr


def test_lens_appears(editor: Callable[..., Editor]) -> None:
    one = editor()
    one.lens("DICE: find faster")
    one.shows("DICE: find faster")


def test_ask_progress_preview_apply_undo(editor: Callable[..., Editor], place: Place) -> None:
    one = editor()
    one.lens("DICE: find faster")
    place.hold()
    one.at("dst[k] =")
    one.command("dice-find-faster")
    one.lens("DICE: checking 1/8")
    one.shows("1 in queue")
    place.release()
    one.lens("2.31x verified")
    one.shows("DICE: 2.31x verified")
    previewed(one)
    one.shows("+  const int k", "0.2 ms -> 0.0864 ms")
    applied(one, "saxpy.cu")
    assert one.text() == REWRITTEN
    compiles(REWRITTEN, place.folder)
    one.screen.keys("C-_")
    one.until(f"(not {HAS_FMAF})")
    assert one.text() == SAXPY


def test_cancel_in_the_middle(editor: Callable[..., Editor], place: Place) -> None:
    one = editor()
    one.lens("DICE: find faster")
    place.hold()
    one.at("dst[k] =")
    one.command("dice-find-faster")
    one.lens("DICE: checking 1/8")
    one.command("dice-cancel")
    one.lens("DICE: find faster")
    until(lambda: place.requests("cancel"), "the engine to be told")
    assert one.text() == SAXPY


def test_an_edit_while_it_runs_makes_it_stale(editor: Callable[..., Editor], place: Place) -> None:
    one = editor()
    one.lens("DICE: find faster")
    place.hold()
    one.at("dst[k] =")
    one.command("dice-find-faster")
    one.lens("DICE: checking 1/8")
    one.screen.keys("-l", "/* typed */ ")
    until(lambda: place.requests("cancel"), "the search to be cancelled")
    place.release()
    one.lens("DICE: find faster")
    one.command("dice-preview")
    one.shows("No verified rewrite here")
    assert one.text() == SAXPY.replace("dst[k] =", "/* typed */ dst[k] =")


def test_a_preview_of_an_edited_buffer_is_not_applied(editor: Callable[..., Editor]) -> None:
    one = editor()
    searched(one)
    previewed(one)
    one.eval('(with-current-buffer "saxpy.cu" (goto-char (point-min)) (insert "// above\\n"))')
    one.screen.keys("Enter")
    one.shows("was edited since this preview")
    assert "fmaf" not in one.eval('(with-current-buffer "saxpy.cu" (buffer-string))')


def test_a_kernel_in_a_python_string(editor: Callable[..., Editor]) -> None:
    one = editor("inline.py")
    one.command("dice")
    one.until("(and (fboundp 'flymake-diagnostics) (flymake-diagnostics))")
    ends = "(flymake-diagnostic-beg one) (flymake-diagnostic-end one)"
    place = f"(let ((one (car (flymake-diagnostics)))) (buffer-substring-no-properties {ends}))"
    assert one.eval(place) == '"outt"'
    one.at("outt")
    one.eval("(progn (goto-char (+ (point) 3)) (delete-char 1))")
    one.until("(null (flymake-diagnostics))")
    searched(one)
    previewed(one)
    applied(one, "inline.py")
    assert FAST in value_of(one.text(), "SOURCE"), "the string's value is the candidate, to the byte"


def test_emoji_and_crlf(editor: Callable[..., Editor], place: Place) -> None:
    one = editor("emoji.cu")
    searched(one)
    previewed(one)
    applied(one, "emoji.cu")
    one.screen.keys("C-x", "C-s")
    one.until("(not (buffer-modified-p))")
    start, end = EMOJI_CRLF.index("{ // 😀") + 1, EMOJI_CRLF.index("}\r\n\r\nvoid")
    written = (place.workspace / "emoji.cu").read_bytes().decode()
    assert written == EMOJI_CRLF[:start] + FAST.replace("\n", "\r\n") + EMOJI_CRLF[end:]


def test_ghost_text_is_shown_taken_and_hidden_by_typing(editor: Callable[..., Editor]) -> None:
    one = editor("typing.cu")
    one.lens("DICE: find faster")
    there = "(goto-char (point-min)) (forward-line 5) (end-of-line)"
    one.eval(f"(progn {there} (set-window-point (selected-window) (point)))")
    one.screen.keys("-l", "dst[k] =")
    one.shows("dst[k] = alpha * lhs[k] + rhs[k];")
    one.screen.save(SHOTS / "emacs-ghost.svg", "Emacs")
    assert "alpha * lhs" not in one.text()
    one.screen.keys("M-w")
    one.until('(string-prefix-p " * lhs" (or (dice-ghost-text) ""))')
    one.screen.keys("-l", "x")
    one.until("(null (dice-ghost-text))")
    one.screen.keys("BSpace")
    one.shows("dst[k] = alpha * lhs[k] + rhs[k];")
    one.screen.keys("M-l")
    one.until("(null (dice-ghost-text))")
    assert "dst[k] = alpha * lhs[k] + rhs[k];" in one.text()


def test_nothing_runs_in_an_untrusted_workspace(editor: Callable[..., Editor], place: Place) -> None:
    one = editor(more="")
    one.lens("DICE: find faster")
    one.at("dst[k] =")
    one.command("dice-find-faster")
    one.shows("Do you trust this code?")
    one.screen.keys("-l", "Do not trust")
    one.screen.keys("Enter")
    one.shows("is not compiled or run")
    assert not place.requests("generate") and not place.requests("verify")


def test_a_killed_engine_is_told_and_comes_back(editor: Callable[..., Editor], place: Place) -> None:
    one = editor()
    one.lens("DICE: find faster")
    place.hold()
    one.at("dst[k] =")
    one.command("dice-find-faster")
    one.lens("DICE: checking 1/8")
    place.kill_engine()
    one.until('(string-match-p "unavailable" (dice-status-text))')
    place.release()
    place.start_engine()
    searched(one)
    one.until('(not (string-match-p "unavailable" (dice-status-text)))')


def test_a_killed_server_is_started_again(editor: Callable[..., Editor], place: Place) -> None:
    """By eglot, which does so for a server that has run for a few seconds."""
    one = editor()
    one.lens("DICE: find faster")
    one.until("(not (eglot--inhibit-autoreconnect (eglot-current-server)))")
    place.kill_server()
    searched(one)


def test_two_editors_share_one_engine(editor: Callable[..., Editor], place: Place) -> None:
    one, other = editor(), editor("emoji.cu")
    for each in (one, other):
        searched(each)
    assert place.engine is not None and place.engine.poll() is None
    assert len(place.requests("generate")) == 2


def test_an_old_client_with_this_server(editor: Callable[..., Editor]) -> None:
    """eglot without the package: code actions only."""
    more = (
        "(fset 'dice-ensure #'ignore) (remove-hook 'eglot-managed-mode-hook #'dice--managed)"
        """(setq eglot-server-programs '((dice-cuda-mode "dice-ls" :initializationOptions (:trusted t))))"""
        "(add-hook 'dice-cuda-mode-hook #'eglot-ensure)"
    )
    one = editor(more=more)
    one.until("(and (eglot-current-server) (not (bound-and-true-p dice-mode)))")
    one.at("dst[k] =")
    one.eval(with_action("Find a faster", RUN))
    one.until(with_action("2.31x faster", "action"))
    one.eval(with_action("2.31x faster", "(eglot--apply-workspace-edit (plist-get action :edit))"))
    assert one.text() == REWRITTEN


RUN = """(let ((command (plist-get action :command)))
  (eglot-execute-command (eglot-current-server) (intern (plist-get command :command))
                         (plist-get command :arguments)))"""


def with_action(title: str, form: str) -> str:
    """``form`` with ``action`` bound to the code action at point whose title contains ``title``."""
    here = "(list :start (eglot--pos-to-lsp-position) :end (eglot--pos-to-lsp-position))"
    params = (
        f"(list :textDocument (eglot--TextDocumentIdentifier) :range {here} :context (list :diagnostics []))"
    )
    actions = f"(jsonrpc-request (eglot-current-server) :textDocument/codeAction {params})"
    wanted = f'(lambda (one) (string-match-p "{title}" (plist-get one :title)))'
    return (
        f"(let ((eglot-confirm-server-initiated-edits nil) (action (cl-find-if {wanted} {actions}))) {form})"
    )


def test_this_client_with_an_old_server(editor: Callable[..., Editor], place: Place) -> None:
    old = place.folder / "old-dice-ls"
    program = f'exec "{sys.executable}" "{Path(__file__).with_name("old_server.py")}"'
    old.write_text(f"#!/bin/sh\n{program}\n", encoding="utf-8")
    old.chmod(0o755)
    one = editor(more=f'{TRUSTED} (setq dice-program "{old}")')
    one.until("(bound-and-true-p dice-mode)")
    one.at("dst[k] =")
    one.command("dice-evidence")
    one.shows("too old for dice.showEvidence")
    one.command("dice-find-faster")
    one.shows("1 of 4 candidates verified")
    previewed(one)


def test_evidence(editor: Callable[..., Editor]) -> None:
    one = editor()
    searched(one)
    one.command("dice-evidence")
    one.shows("*dice evidence*", "axpb")
    one.eval('(select-window (get-buffer-window "*dice evidence*"))')
    assert "2.31x" in one.text() and "mismatch" in one.text()


def test_trace(editor: Callable[..., Editor]) -> None:
    one = editor()
    searched(one)
    one.command("dice-trace")
    one.shows("pass ", "left and right move", "fmaf(alpha, lhs[k], rhs[k]);")
    shown, passes = re.findall(r"pass (\d+) of (\d+)", one.screen.text())[0]
    assert shown == passes
    one.eval('(with-current-buffer "*dice trace*" (dice-trace-back))')
    one.shows(f"pass {int(passes) - 1} of {passes}")


def test_the_real_engine_and_model(place_without_engine: Place) -> None:
    """Nothing is scripted: what the embedded model writes is checked, previewed, applied."""
    one = Editor(place_without_engine, "silu.cu", TRUSTED + '(setq dice-device "cpu" dice-candidates 2)')
    try:
        one.lens("DICE: find faster")
        one.at("out[i] = v")
        one.command("dice-find-faster")
        ended = (
            '(cl-find-if (lambda (one) (string-match-p "not timed\\\\|no verified" one)) (dice-lens-titles))'
        )
        until(lambda: one.eval(ended) != "nil", "the end of the search", 200)
        if "not timed" in one.eval(ended):
            one.shows("DICE: correct on the CPU backend, not timed")
            one.screen.save(SHOTS / "emacs-lens.svg", "Emacs")
            one.command("dice-preview")
            one.shows("Rewrite `silu_kernel`: correct on the CPU backend, not timed", "expf")
            one.screen.save(SHOTS / "emacs-preview.svg", "Emacs")
            one.screen.keys("Enter")
            one.until('(and (equal (buffer-name) "silu.cu") (not (buffer-narrowed-p)) (buffer-modified-p))')
            assert "expf" in one.text()
    finally:
        one.close()
