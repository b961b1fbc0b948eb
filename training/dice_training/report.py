"""Figures and pages that stand alone: PNG by matplotlib, and HTML with the figures inside."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_STYLE = """body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; } td, th { padding: .2rem .8rem; text-align: right; }
td:first-child, th:first-child { text-align: left; } tr + tr { border-top: 1px solid #8884; }
img { max-width: 100%; background: white; } pre { overflow: auto; }"""


def figure(panels: int, columns: int = 2) -> Figure:
    """An empty figure for ``panels`` plots: take them from its ``axes``."""
    from matplotlib.figure import Figure

    rows = -(-panels // columns)
    made = Figure(figsize=(6.4 * columns, 3.2 * rows), layout="constrained")
    for number in range(panels):
        made.add_subplot(rows, columns, number + 1)
    return made


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """An HTML table; cells are text."""
    lines = ["".join(f"<th>{html.escape(cell)}</th>" for cell in head)]
    lines += ["".join(f"<td>{html.escape(str(cell))}</td>" for cell in row) for row in rows]
    return "<table>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"


def write_page(path: Path, title: str, parts: Iterable[str | Figure]) -> None:
    """An HTML file without outside references; ``parts`` are HTML or figures, in order."""
    body = "\n".join(part if isinstance(part, str) else _image(part) for part in parts)
    page = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{html.escape(title)}</h1>\n{body}\n</body></html>\n"
    )
    part = path.with_name(path.name + ".part")
    part.write_text(page, encoding="utf-8")
    part.replace(path)


def _image(made: Figure) -> str:
    import io

    buffer = io.BytesIO()
    made.savefig(buffer, format="png", dpi=120)
    return f'<img alt="" src="data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}">'
