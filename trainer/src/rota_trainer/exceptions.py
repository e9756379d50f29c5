"""The exceptions that end a training process on request of rota.

All of them are `SystemExit`: the script unwinds, its `finally` blocks run, and the process ends
with an exit code that tells the daemon why.
"""

from __future__ import annotations

STOPPED_EXIT_CODE = 75
"""`EX_TEMPFAIL`: run the program again later. It is not 0, so that in `train && evaluate` the
second program does not start after a stop."""
REFUSED_EXIT_CODE = 78
"""`EX_CONFIG`: the worker would be refused again if it were started again unchanged."""


class Stopped(SystemExit):
    """Raised at a safe point after a stop request. `saved`: a checkpoint holds all of the work."""

    def __init__(self, reason: str, *, saved: bool = False) -> None:
        super().__init__(STOPPED_EXIT_CODE)
        self.reason = reason
        self.saved = saved


class WorkerRemoved(SystemExit):
    """The newest generation does not contain this worker; its state is in the other workers."""

    def __init__(self) -> None:
        super().__init__(0)


class JoinRefused(SystemExit):
    """This worker is incompatible with the other workers of the job (other code or model)."""

    def __init__(self, reason: str) -> None:
        super().__init__(REFUSED_EXIT_CODE)
        self.reason = reason
