"""Where many candidates are judged: ``local`` in processes of this machine, ``cluster`` on the nodes of Ray."""

from pathlib import Path

TOKEN = Path.home() / ".ray" / "auth_token"
"""Where Ray keeps what it asks everyone for who wants to use a cluster."""


class PoolError(RuntimeError):
    """There is no such pool, or it cannot be used: one line that says what to do."""
