"""scale_recipe.py RECIPE OUT KEY=VALUE...: a recipe with other keys; with TINY set, of a tiny shape, for a dry run."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

TINY = "row_length=1024 layers=2 hidden=32 intermediate=48 heads=2 kv_heads=1 head_dim=16 vocab=4096"


def main() -> None:
    text = Path(sys.argv[1]).read_text()
    pairs = [word.split("=", 1) for word in sys.argv[3:]]
    if os.environ.get("TINY"):
        pairs += [word.split("=", 1) for word in TINY.split()]
        pairs += [["lora_rank", "2"]] if "lora_rank" in text else []
    for key, value in pairs:
        text, found = re.subn(rf"(?m)^{key} = .*$", f"{key} = {value}", text)
        if not found:
            text = f"{key} = {value}\n{text}"
    Path(sys.argv[2]).write_text(text)


if __name__ == "__main__":
    main()
