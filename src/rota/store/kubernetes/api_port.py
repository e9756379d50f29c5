"""What a cluster's store asks of the API server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from rota.core.model import JobId
from rota.store.training_jobs import Object


class Resources(Protocol):
    """The objects at an API server. What cannot be done now is an `UnavailableError`."""

    async def check(self) -> None:
        """Raises while nothing could be kept there."""
        ...

    async def all(self) -> list[Object]: ...

    async def create(self, body: Object) -> bool:
        """Made, now or when the same was asked before. False: the name is somebody else's. What
        is refused for good is a `NotKeptError`."""
        ...

    async def adopt(self, name: str, job_id: JobId) -> bool:
        """Hold an object that somebody else made until we let go. False: it is gone. What is
        refused for good is a `NotKeptError`."""
        ...

    async def update(self, name: str, status: Object) -> bool:
        """All that it says from now on, unless somebody who came after us wrote it. False: it is
        gone. What is refused for good is a `NotKeptError`."""
        ...

    async def complain(self, name: str, words: str) -> None:
        """Beside a status that is refused: where whoever looks at the object finds it."""
        ...

    async def lull(self) -> None:
        """Until nothing more urgent waits to be written, or for a while."""
        ...

    async def let_go(self, name: str) -> None: ...

    async def remove(self, name: str) -> None: ...

    async def rows(self) -> dict[str, str]:
        """What was kept besides jobs, by name."""
        ...

    async def keep(self, rows: Mapping[str, str | None]) -> None:
        """None takes one out."""
        ...
