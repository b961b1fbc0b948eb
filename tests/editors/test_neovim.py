"""The scenarios in Neovim 0.11: the plugin of ``editors/neovim`` in a real terminal, keys typed, the real server."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from applied import compiles, value_of
from conftest import CLIENTS, ROOT, SHOTS, Place, needs
from nvim_rpc import Nvim, until
from samples import EMOJI_CRLF, FAST, IN_PYTHON, SAXPY
from screen import Screen

PLUGIN = ROOT / "editors" / "neovim"
NVIM = CLIENTS / "python" / "bin" / "nvim"
START = """
vim.opt.rtp:prepend('{plugin}')
vim.o.swapfile, vim.o.cmdheight, vim.o.more, vim.o.updatetime = false, 2, false, 100
vim.o.termguicolors, vim.o.background = true, 'dark'
vim.o.shortmess = vim.o.shortmess .. 'F'
notes = {{}}
vim.notify = function(text) table.insert(notes, text) end
vim.o.statusline = "%f %m %= %{{%v:lua.require'dice'.statusline()%}}"
require('dice').setup({{ settings = {settings} }})
"""
LENSES = """vim.iter(vim.lsp.codelens.get(0)):map(function(l) return l.command.title end):join('|')"""
REWRITTEN = SAXPY[: SAXPY.index("{") + 1] + FAST + SAXPY[SAXPY.index("}\n\nvoid") :]


class Editor:
    """Neovim on one file of the place's workspace."""

    def __init__(
        self, place: Place, file: str, settings: str = "{ trusted = true }", start: str = START
    ) -> None:
        self.place = place
        init = place.folder / "init.lua"
        init.write_text(start.format(plugin=PLUGIN, settings=settings), encoding="utf-8")
        self.address = place.runtime / f"nvim-{len(list(place.runtime.glob('nvim*')))}"
        command = [needs(NVIM, "neovim"), "-u", str(init), "-i", "NONE", "--listen", str(self.address), file]
        self.screen = Screen(place.runtime, command, place.environment, place.workspace)
        self.nvim = Nvim(self.address)
        self.nvim.until(
            "#vim.lsp.get_clients({ name = 'dice', bufnr = 0 }) > 0 and vim.lsp.get_clients()[1].initialized"
        )

    def lens(self, title: str) -> None:
        self.until(f"({LENSES}):find({title!r}, 1, true)")

    def until(self, code: str) -> Any:
        """Wait for a Lua expression; a failure shows the screen."""
        try:
            return self.nvim.until(code)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.screen.text()}") from None

    def shows(self, *texts: str) -> None:
        """Wait until all of ``texts`` are on the screen."""
        try:
            until(lambda: all(text in self.screen.text() for text in texts), " and ".join(texts))
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.screen.text()}") from None

    def in_window(self, *texts: str) -> None:
        """Wait until a floating window with ``texts`` takes the keys: the screen may still show one that is closed."""
        self.until("vim.api.nvim_win_get_config(0).relative ~= ''")
        self.shows(*texts)

    def at(self, text: str) -> None:
        """Put the cursor on the first place of ``text``."""
        self.nvim.lua("vim.fn.cursor(1, 1) assert(vim.fn.search('\\\\V' .. ..., 'c') > 0)", text)

    def close(self) -> None:
        self.nvim.close()
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


def text(nvim: Nvim) -> str:
    return "\n".join(nvim.lines()) + "\n"


def searched(one: Editor) -> None:
    one.lens("DICE: ")
    one.at("dst[k] =")
    one.nvim.keys(":Dice findFaster<CR>")
    one.lens("DICE: 2.31x verified")


def test_lens_appears(editor: Callable[..., Editor]) -> None:
    one = editor()
    one.lens("DICE: find faster")
    one.shows("DICE: find faster")


def test_ask_progress_preview_apply_undo(editor: Callable[..., Editor], place: Place) -> None:
    one = editor()
    place.hold()
    one.at("dst[k] =")
    one.nvim.keys(":Dice findFaster<CR>")
    one.lens("DICE: checking 1/8")
    one.shows("checking", "in queue")
    place.release()
    one.lens("DICE: 2.31x verified")
    one.nvim.keys(":Dice preview<CR>")
    one.shows("fmaf(alpha", "+  const int k")
    assert "0.2 ms -> 0.0864 ms" in one.screen.text()
    assert text(one.nvim) != REWRITTEN
    one.nvim.keys("<CR>")
    one.until("vim.api.nvim_get_current_line ~= nil and vim.fn.search('fmaf', 'n') > 0")
    assert text(one.nvim) == REWRITTEN
    compiles(REWRITTEN, place.folder)
    one.nvim.keys("u")
    one.until("vim.fn.search('fmaf', 'n') == 0")
    assert text(one.nvim) == SAXPY


def test_cancel_in_the_middle(editor: Callable[..., Editor], place: Place) -> None:
    one = editor()
    place.hold()
    one.at("dst[k] =")
    one.nvim.keys(":Dice findFaster<CR>")
    one.lens("DICE: checking 1/8")
    one.nvim.keys(":Dice cancel<CR>")
    one.lens("DICE: find faster")
    until(lambda: place.requests("cancel"), "the engine to be told")
    assert text(one.nvim) == SAXPY


def test_an_edit_while_it_runs_makes_it_stale(editor: Callable[..., Editor], place: Place) -> None:
    one = editor()
    place.hold()
    one.at("dst[k] =")
    one.nvim.keys(":Dice findFaster<CR>")
    one.lens("DICE: checking 1/8")
    one.at("dst[k] =")
    one.nvim.keys("O<C-u>    // typed meanwhile<Esc>")
    until(lambda: place.requests("cancel"), "the search to be cancelled")
    place.release()
    one.lens("DICE: find faster")
    one.nvim.keys(":Dice preview<CR>")
    one.until("table.concat(notes, '|'):find('no verified rewrite here', 1, true)")
    assert text(one.nvim) == SAXPY.replace("    dst[k]", "    // typed meanwhile\n    dst[k]")


def test_a_preview_of_an_edited_buffer_is_not_applied(editor: Callable[..., Editor]) -> None:
    one = editor()
    searched(one)
    one.nvim.keys(":Dice preview<CR>")
    one.shows("fmaf(alpha")
    one.nvim.lua("vim.api.nvim_buf_set_lines(vim.fn.bufnr('saxpy.cu'), 0, 0, true, { '// above' })")
    one.nvim.keys("<CR>")
    one.until("table.concat(notes, '|'):find('was edited since this preview', 1, true)")
    assert text(one.nvim) == "// above\n" + SAXPY


def test_a_kernel_in_a_python_string(editor: Callable[..., Editor]) -> None:
    one = editor("inline.py")
    found = one.until("vim.diagnostic.get(0)[1]")
    line = IN_PYTHON.split("\n")[found["lnum"]]
    start = len(line.split("outt")[0].encode())
    assert (found["col"], found["end_col"]) == (start, start + 4)
    one.at("outt")
    one.nvim.keys("3lx")
    one.until("#vim.diagnostic.get(0) == 0")
    searched(one)
    one.nvim.keys(":Dice preview<CR>")
    one.shows("fmaf(alpha")
    one.nvim.keys("<CR>")
    one.until("vim.fn.search('fmaf', 'n') > 0")
    applied = text(one.nvim)
    assert FAST in value_of(applied, "SOURCE"), "the string's value is the candidate, to the byte"


def test_emoji_and_crlf(editor: Callable[..., Editor]) -> None:
    one = editor("emoji.cu")
    assert one.nvim.lua("return vim.bo.fileformat") == "dos"
    searched(one)
    one.nvim.keys(":Dice preview<CR>")
    one.shows("fmaf(alpha")
    one.nvim.keys("<CR>")
    one.until("vim.fn.search('fmaf', 'n') > 0")
    one.nvim.keys(":w<CR>")
    one.until("not vim.bo.modified")
    start, end = EMOJI_CRLF.index("{ // 😀") + 1, EMOJI_CRLF.index("}\r\n\r\nvoid")
    written = (one.place.workspace / "emoji.cu").read_bytes().decode()
    assert written == EMOJI_CRLF[:start] + FAST.replace("\n", "\r\n") + EMOJI_CRLF[end:]


def test_nothing_runs_in_an_untrusted_workspace(editor: Callable[..., Editor], place: Place) -> None:
    one = editor(settings="{}")
    one.at("dst[k] =")
    one.nvim.keys(":Dice findFaster<CR>")
    one.shows("compiles and runs code", "2: Do not trust")
    one.nvim.keys("2<CR>")
    one.shows("is not trusted")
    assert not place.requests("generate") and not place.requests("verify")


def test_a_killed_engine_is_told_and_comes_back(editor: Callable[..., Editor], place: Place) -> None:
    one = editor()
    place.hold()
    one.at("dst[k] =")
    one.nvim.keys(":Dice findFaster<CR>")
    one.lens("DICE: checking 1/8")
    place.kill_engine()
    one.until("require('dice').statusline():find('unavailable', 1, true)")
    place.release()
    place.start_engine()
    searched(one)
    one.until("not require('dice').statusline():find('unavailable', 1, true)")


def test_a_killed_server_is_started_again(editor: Callable[..., Editor], place: Place) -> None:
    one = editor()
    one.lens("DICE: find faster")
    place.kill_server()
    one.until("table.concat(notes, '|'):find('ended by signal 9; it is started again', 1, true)")
    searched(one)


def test_the_server_is_restarted_politely(editor: Callable[..., Editor], place: Place) -> None:
    one = editor()
    one.lens("DICE: find faster")
    (before,) = place.servers()
    one.nvim.keys(":Dice restart<CR>")
    until(lambda: before not in place.servers() and place.servers(), "another server")
    searched(one)
    assert one.nvim.lua("return #notes") == 0, "no crash is told"


def test_two_editors_share_one_engine(editor: Callable[..., Editor], place: Place) -> None:
    one, other = editor(), editor("emoji.cu")
    for each in (one, other):
        searched(each)
    assert place.engine is not None and place.engine.poll() is None
    assert len(place.requests("generate")) == 2


PLAIN = """
vim.o.swapfile, vim.o.more, vim.o.cmdheight = false, false, 4
vim.filetype.add({{ extension = {{ cu = 'cuda' }} }})
vim.lsp.config('dice', {{ cmd = {{ 'dice-ls' }}, filetypes = {{ 'cuda' }}, init_options = {settings} }})
vim.lsp.enable('dice')
"""


def test_an_old_client_with_this_server(editor: Callable[..., Editor]) -> None:
    """Neovim without the plugin knows none of our notifications and asks for no lenses by itself."""
    one = editor(start=PLAIN)
    one.at("dst[k] =")
    ask = (
        "local title = ... vim.lsp.buf.code_action("
        "{ apply = true, filter = function(action) return action.title:find(title, 1, true) end })"
    )
    one.nvim.lua(ask, "Find a faster version")
    one.nvim.lua("vim.lsp.codelens.refresh({ bufnr = 0 })")
    until(
        lambda: one.nvim.lua("vim.lsp.codelens.refresh({ bufnr = 0 })") or "2.31x" in one.screen.text(),
        "lens",
    )
    one.nvim.lua(ask, "2.31x faster")
    one.until("vim.fn.search('fmaf', 'n') > 0")
    assert text(one.nvim) == REWRITTEN


def test_this_client_with_an_old_server(editor: Callable[..., Editor], place: Place) -> None:
    """A server without lenses, ghost text and evidence: the plugin uses what there is and says what is missing."""
    old = [sys.executable, str(Path(__file__).with_name("old_server.py"))]
    command = "{{ '" + "', '".join(old) + "' }}"
    start = START.replace("setup({{", "setup({{ cmd = " + command + ",")
    one = editor(start=start)
    one.at("dst[k] =")
    one.nvim.keys(":Dice showEvidence<CR>")
    one.until("table.concat(notes, '|'):find('no command showEvidence', 1, true)")
    one.nvim.keys(":Dice findFaster<CR>")
    one.shows("candidates verified")
    one.nvim.keys(":Dice preview<CR>")
    one.shows("fmaf(alpha")


def test_checkhealth(editor: Callable[..., Editor]) -> None:
    one = editor()
    one.nvim.keys(":checkhealth dice<CR>")
    one.until("vim.bo.filetype == 'checkhealth' and vim.fn.search('torch', 'n') > 0")
    report = text(one.nvim)
    assert (
        "dice-ls 0." in report
        and "attached; DICE idle" in report
        and "Failed to run healthcheck" not in report
    )


def test_help_has_its_tags(editor: Callable[..., Editor]) -> None:
    one = editor()
    one.nvim.lua("vim.cmd.helptags(...)", str(PLUGIN / "doc"))
    (PLUGIN / "doc" / "tags").unlink()
    for tag in ("dice.txt", "dice-settings", ":Dice", "dice-keys", "dice-old"):
        assert f"*{tag}*" in (PLUGIN / "doc" / "dice.txt").read_text(encoding="utf-8")


def ghost(one: Editor) -> Any:
    return one.nvim.lua("return require('dice.ghost').text()")


def typing(one: Editor) -> None:
    one.nvim.lua("vim.fn.cursor(6, 1)")
    one.nvim.keys("A dst[k] =")
    one.shows("dst[k] = alpha * lhs[k] + rhs[k];")


def test_ghost_text_is_shown_and_accepted(editor: Callable[..., Editor]) -> None:
    one = editor("typing.cu")
    typing(one)
    assert "alpha" not in one.nvim.lines()[5], "what is shown is not in the text"
    one.screen.save(SHOTS / "neovim-ghost.svg", "Neovim")
    one.nvim.keys("<M-l>")
    one.until("vim.fn.getline(6):find('alpha * lhs[k] + rhs[k];', 1, true)")
    assert ghost(one) is None
    one.nvim.keys("<Esc>u")
    one.until("not vim.fn.getline(6):find('alpha')")
    assert one.nvim.lines()[5].endswith("dst[k] ="), "what was typed stays"


def test_ghost_text_by_word_and_line_and_the_next_one(editor: Callable[..., Editor]) -> None:
    one = editor("typing.cu", settings="{ trusted = true, ghostText = 'onRequest' }")
    one.nvim.lua("vim.fn.cursor(6, 1)")
    one.nvim.keys("A dst[k] =")
    one.nvim.keys("<M-g>")
    one.until("require('dice.ghost').text()")
    one.nvim.keys("<M-n>")
    one.until("(require('dice.ghost').text() or ''):find('fmaf', 1, true)")
    one.nvim.keys("<M-w>")
    one.until("vim.endswith(vim.fn.getline(6), 'dst[k] = fmaf')")
    one.nvim.keys("<M-j>")
    one.until("vim.endswith(vim.fn.getline(6), 'dst[k] = fmaf(alpha, lhs[k], rhs[k]);')")


def test_typing_shortens_or_hides_ghost_text(editor: Callable[..., Editor]) -> None:
    one = editor("typing.cu")
    typing(one)
    one.nvim.keys(" al")
    one.until("(require('dice.ghost').text() or ''):find('^pha')")
    one.nvim.keys("x")
    one.until("require('dice.ghost').text() == nil")
    assert one.nvim.lines()[5].endswith("dst[k] = alx")


def test_evidence_and_trace_in_windows(editor: Callable[..., Editor]) -> None:
    one = editor()
    searched(one)
    one.nvim.keys(":Dice showEvidence<CR>")
    one.in_window("DICE: evidence for axpb", "mismatch", "2.31x")
    one.nvim.keys("q")
    one.until("vim.api.nvim_win_get_config(0).relative == ''")
    one.nvim.lua(
        "vim.lsp.buf.code_action({ apply = true, filter = function(one) return one.title:find('evidence') end })"
    )
    one.in_window("DICE: evidence for axpb")
    one.nvim.keys("q")
    one.until("vim.api.nvim_win_get_config(0).relative == '' and #vim.api.nvim_list_wins() == 1")
    one.nvim.keys(":Dice showTrace<CR>")
    one.in_window("DICE: candidate 1, pass ")
    shown, passes = re.findall(r"pass (\d+) of (\d+)", one.screen.text())[0]
    assert shown == passes and "fmaf(alpha, lhs[k], rhs[k]);" in one.screen.text()
    one.nvim.keys("h")
    one.shows(f"pass {int(passes) - 1} of {passes}")
    one.nvim.keys("0")
    one.shows(f"pass 0 of {passes}")
    one.nvim.keys("q")
    one.until("vim.api.nvim_win_get_config(0).relative == ''")


def test_the_real_engine_and_model(place_without_engine: Place) -> None:
    """Nothing is scripted: what the embedded model writes is checked, offered, applied; a killed engine returns."""
    settings = "{ trusted = true, device = 'cpu', candidates = 2 }"
    one = Editor(place_without_engine, "silu.cu", settings)
    try:
        one.lens("DICE: find faster")
        one.at("out[i] = v")
        one.nvim.keys(":Dice findFaster<CR>")
        one.nvim.until(
            f"({LENSES}):find('not timed', 1, true) or ({LENSES}):find('no verified', 1, true)", 200
        )
        pid = one.nvim.lua("return require('dice.status').of(require('dice').client()).engine.pid")
        if one.nvim.lua(f"return ({LENSES}):find('not timed', 1, true)"):
            one.shows("not timed")
            one.screen.save(SHOTS / "neovim-lens.svg", "Neovim")
            one.nvim.keys(":Dice preview<CR>")
            one.shows("Rewrite `silu_kernel`: correct on the CPU backend, not timed", "expf")
            one.screen.save(SHOTS / "neovim-preview.svg", "Neovim")
            one.nvim.keys("<CR>")
            one.until("vim.fn.search('expf', 'n') > 0")
            one.nvim.keys("u")
        os.kill(pid, signal.SIGKILL)
        one.nvim.keys(":Dice restartEngine<CR>")
        again = f"require('dice.status').of(require('dice').client()).engine.pid ~= {pid}"
        one.nvim.until(again, 60)
    finally:
        one.close()
