"""Which workspaces' code may be compiled and run. Kept in the user's data directory, never in a workspace."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

from platformdirs import user_data_dir


class TrustStore:
    """Answers by workspace root. A file that cannot be read or written means "not trusted", never an exception."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or Path(user_data_dir("dice-ls", appauthor=False)) / "trust.json"

    def get(self, root: Path) -> bool | None:
        """True or False once answered for ``root``, None before."""
        return self._read().get(str(root.resolve()))

    def set(self, root: Path, trusted: bool | None) -> str | None:
        """Store an answer (None forgets it). Returns why it could not be stored, else None."""
        answers = self._read()
        if trusted is None:
            answers.pop(str(root.resolve()), None)
        else:
            answers[str(root.resolve())] = trusted
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=".trust-")
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(answers, file, indent=2)
            Path(name).replace(self.path)
        except OSError as error:
            return f"the answer could not be stored in {self.path}: {error.strerror}"
        return None

    def _read(self) -> dict[str, bool]:
        try:
            answers = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        if not isinstance(answers, dict):
            return {}
        return {root: answer for root, answer in answers.items() if isinstance(answer, bool)}
