"""How a training run ends when rota asks it to: by an exit that unwinds the script."""

from __future__ import annotations

CODE = 75
"""`EX_TEMPFAIL`: run me again. Whatever follows a script with `&&` does not run."""


class Stopped(SystemExit):
    """Raised at a safe point after a request to stop. `saved`: a checkpoint holds the work."""

    def __init__(self, reason: str, *, saved: bool = False) -> None:
        super().__init__(CODE)
        self.reason = reason
        self.saved = saved
