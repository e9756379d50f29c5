"""The protocol through which the store reads and writes TrainingJob objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from rota.core.model.job import JobId
from rota.store.kubernetes.crd_codec import Object


class TrainingJobPort(Protocol):
    """Calls to the API server. A temporary failure raises `UnavailableError`.

    A permanent rejection, such as a quota or an admission rule, raises `WriteRejectedError` where
    the method says so.
    """

    async def check(self) -> None:
        """Raise while the API server cannot accept writes of the store."""
        ...

    async def all(self) -> list[Object]: ...

    async def create(self, body: Object) -> bool:
        """Create an object. Idempotent. Return False if another object has the name.

        Raises `WriteRejectedError`."""
        ...

    async def adopt(self, name: str, job_id: JobId) -> bool:
        """Add our finalizer and the label of the job to a user's object. Return False if the object
        is gone. Raises `WriteRejectedError`."""
        ...

    async def update(self, name: str, status: Object) -> bool:
        """Replace the status, unless a later leader wrote it. Return False if the object is gone.

        Raises `WriteRejectedError`."""
        ...

    async def report_refusal(self, name: str, words: str) -> None:
        """Publish an Event about the rejected status of an object, where users can find it."""
        ...

    async def wait_idle(self) -> None:
        """Wait until no urgent write is queued, for a limited time."""
        ...

    async def remove_finalizer(self, name: str) -> None: ...

    async def remove(self, name: str) -> None: ...

    async def rows(self) -> dict[str, str]:
        """Return the rows that all replicas share, by name."""
        ...

    async def put_rows(self, rows: Mapping[str, str | None]) -> None:
        """Write shared rows. A value of None deletes the row."""
        ...
