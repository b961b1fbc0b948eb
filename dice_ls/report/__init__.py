"""The evidence of one hole as one HTML file that needs nothing else: no network, no other file."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parent / "page"
SCRIPTS = ("text.js", "charts.js", "trace.js", "page.js")
"""In this order; editors/vscode loads the same files into its panel."""

_LAYOUT = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>DICE: evidence for {name}</title>
<style>{style}</style>
</head>
<body>
<main id="dice-evidence"></main>
<script type="application/json" id="dice-data">{data}</script>
{scripts}
</body>
</html>
"""


def render(evidence: Mapping[str, Any], traces: Sequence[Mapping[str, Any]] = ()) -> str:
    """The page for ``evidence`` (shape: ``dice_ls.contract.Evidence``) with the denoising ``traces`` at hand.

    The page's policy allows exactly its own scripts and styles: text from files and models cannot run.
    """
    style = (PAGE / "page.css").read_text(encoding="utf-8")
    scripts = [(PAGE / name).read_text(encoding="utf-8") for name in SCRIPTS]
    allowed = " ".join(_hash(script) for script in scripts)
    data = json.dumps({**evidence, "traces": list(traces)}, ensure_ascii=False)
    return _LAYOUT.format(
        policy=f"default-src 'none'; script-src {allowed}; style-src {_hash(style)}",
        name=_text(str(evidence["name"])),
        style=style,
        data=data.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"),
        scripts="\n".join(f"<script>{script}</script>" for script in scripts),
    )


def _hash(content: str) -> str:
    digest = hashlib.sha256(content.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _text(value: str) -> str:
    return value.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
