"""How a worker ends that is not to go on although the training does."""

from __future__ import annotations

REFUSED = 78
"""`EX_CONFIG`: started again as it is, it would be refused again."""


class Left(SystemExit):
    """The newest generation is without this worker; the others have all that it knew."""

    def __init__(self) -> None:
        super().__init__(0)


class Refused(SystemExit):
    """This worker does not fit to the others."""

    def __init__(self, reason: str) -> None:
        super().__init__(REFUSED)
        self.reason = reason
