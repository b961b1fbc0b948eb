"""Where many candidates are judged: ``local`` in processes of this machine, ``cluster`` on the nodes of Ray."""


class PoolError(RuntimeError):
    """There is no such pool, or it cannot be used: one line that says what to do."""
