"""Private folders of sessions, which a session that was killed cannot remove itself: the next one does."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

_PREFIX = "dice-verify-"


class SessionFolder:
    """A folder of mode 0700 that lives as long as this object; the lock in it says that its owner is alive."""

    def __init__(self, parent: Path | None = None):
        place = Path(parent or tempfile.gettempdir())
        _sweep(place)
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
        self._lock = self._locked()

    def _locked(self) -> int:
        lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return lock

    def restore(self) -> None:
        """Make the folder again when somebody has removed it: a cleaner of temporary files, say."""
        if not self.path.is_dir():
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(self._lock)
            self._lock = self._locked()

    def remove(self) -> None:
        """Remove the folder with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _sweep(place: Path) -> None:
    """Remove this user's folders whose owner died: nobody holds their lock."""
    for folder in place.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            # A folder without a lock may be one that is being made right now.
            lock = os.open(folder / "lock", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
