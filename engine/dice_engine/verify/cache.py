"""Verdicts kept between runs: JSON only, in a folder that only its user can read.

The key covers everything a verdict depends on: both texts, the plan, flags, compilers, torch, device, driver and our
own version. What the machine is to blame for (``infra_error``) and time limits that a busy machine may miss are not
kept.
"""

from __future__ import annotations

import functools
import hashlib
import json
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import diskcache
import platformdirs
import torch

from dice_engine.verify.verdict import Verdict

_SCHEMA = 1
_SIZE_LIMIT = 256 << 20
_KEPT = frozenset(
    ("verified", "no_gain", "correct_unmeasured", "mismatch", "build_error", "deceptive", "unsafe", "no_plan")
)


def keeps(verdict: Verdict) -> bool:
    """Whether a verdict would be the same another time."""
    return verdict.verdict in _KEPT


class VerdictCache:
    """A cache folder of verdicts. A folder that cannot be used makes a cache that holds nothing."""

    def __init__(self, folder: Path | None = None):
        self.folder = folder or Path(platformdirs.user_cache_dir("dice")) / "verdicts"
        self._store: diskcache.Cache | None = None
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.folder.chmod(0o700)
            self._store = diskcache.Cache(
                str(self.folder), disk=diskcache.JSONDisk, disk_compress_level=1, size_limit=_SIZE_LIMIT
            )
        except Exception:  # sqlite3, OSError, diskcache's own: without a cache everything still works
            self._store = None

    def get(self, key: str) -> Verdict | None:
        if self._store is None:
            return None
        try:
            data = self._store.get(key)
            return Verdict.from_json(data) if isinstance(data, dict) else None
        except Exception:
            return None

    def put(self, key: str, verdict: Verdict) -> None:
        if self._store is None or not keeps(verdict):
            return
        try:
            self._store.set(key, verdict.to_json())
        except Exception:
            return

    def close(self) -> None:
        if self._store is not None:
            self._store.close()


def key(**parts: Any) -> str:
    """A digest of everything that the verdict depends on; ``parts`` are JSON values."""
    text = json.dumps({"schema": _SCHEMA, "tools": tools(), **parts}, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=24).hexdigest()


@functools.cache
def tools() -> dict[str, str]:
    """Versions of what builds and runs candidates."""
    return {
        "python": sys.version,
        "torch": torch.__version__,
        "g++": _version("g++", "--version"),
        "nvcc": _version("nvcc", "--version"),
        "dice": metadata.version("dice-ls"),
        "source": _own_source(),
    }


def _version(program: str, option: str) -> str:
    path = shutil.which(program)
    if path is None:
        return ""
    try:
        found = subprocess.run([path, option], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return found.stdout.strip()


def _own_source() -> str:
    """A digest of our own files: a verdict of other code is another verdict."""
    digest = hashlib.blake2b(digest_size=16)
    root = Path(__file__).parent
    for path in sorted(
        [*root.rglob("*.py"), *(root / "build").rglob("*.h"), *(root.parent / "source").glob("*.py")]
    ):
        digest.update(path.read_bytes())
    return digest.hexdigest()
