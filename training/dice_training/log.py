"""What a training run tells while it runs: a JSON line, TensorBoard, and curves as PNG and in a page of their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dice_training.report import figure, table, write_page

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

_CURVES = (
    ("loss", "loss"),
    ("held_out", "held-out loss"),
    ("pass@1", "pass@1"),
    ("rate", "share of the peak learning rate"),
    ("positions_per_s", "positions a second"),
    ("mfu", "MFU"),
)


class Log:
    """``log.jsonl``, TensorBoard's files where it is installed, ``curves.png`` and ``report.html`` in the output.

    An entry has a ``step`` and numbers by name; a name with ``/`` belongs to the curve before it.
    """

    def __init__(self, folder: Path, steps_done: int) -> None:
        self.folder, self._path = folder, folder / "log.jsonl"
        folder.mkdir(parents=True, exist_ok=True)
        self.entries: list[dict[str, Any]] = []
        if steps_done and self._path.is_file():
            lines = self._path.read_text(encoding="utf-8").splitlines()
            self.entries = [entry for line in lines if (entry := json.loads(line))["step"] < steps_done]
        self._path.write_text("".join(json.dumps(entry) + "\n" for entry in self.entries), "utf-8")
        self._board = _board(folder / "tensorboard", steps_done)

    def add(self, entry: dict[str, Any]) -> None:
        self.entries.append(entry)
        with self._path.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(entry) + "\n")
        for name, value in entry.items():
            if self._board is not None and name != "step":
                self._board.add_scalar(name, value, entry["step"])

    def close(self) -> None:
        """Draw the curves of all entries so far."""
        if self._board is not None:
            self._board.close()
        if not self.entries:
            return
        present = list(dict.fromkeys(name for entry in self.entries for name in entry))
        shown = [(key, title) for key, title in _CURVES if key in present]
        made = figure(len(shown))
        for axes, (key, title) in zip(made.axes, shown, strict=True):
            for name in (n for n in present if n.split("/")[0] == key):
                points = [(entry["step"], entry[name]) for entry in self.entries if name in entry]
                marker = "." if len(points) < 20 else None
                axes.plot(*zip(*points, strict=True), label=name.removeprefix(key + "/"), marker=marker)
            if len(axes.lines) > 1:
                axes.legend(fontsize="x-small")
            axes.set_title(title)
        made.savefig(self.folder / "curves.png", dpi=120)
        rows = [[_short(entry.get(name, "")) for name in present] for entry in self.entries[-200:]]
        write_page(self.folder / "report.html", f"SFT: {self.folder.name}", [made, table(present, rows)])


def _board(folder: Path, steps_done: int) -> SummaryWriter | None:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:  # on a machine that only trains
        return None
    return SummaryWriter(str(folder), purge_step=steps_done)


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
