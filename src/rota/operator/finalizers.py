"""Remove the finalizer of a deleted TrainingJob when its job has ended.

Usually a last status write triggers this. If a policy of the cluster forbids that write, no
watch event arrives, so this module follows the controller instead.
"""

from __future__ import annotations

from contextlib import suppress

from rota.core.model.job import JobId
from rota.daemon.runtime.job_reader import JobReader
from rota.errors import RotaError, UnavailableError
from rota.kube.errors import ApiError
from rota.operator.store_port import TrainingJobStore
from rota.tasks import ErrorIsolation


class FinalizerRemover:
    """Waits for the jobs of deleted objects to end."""

    def __init__(self, reader: JobReader, store: TrainingJobStore) -> None:
        self._reader, self._store = reader, store
        self._deleted: dict[JobId, str] = {}
        """The name of the deleted object by job."""
        self._isolation = ErrorIsolation("finalizer not removed")

    def wait_for(self, job_id: JobId, name: str) -> None:
        self._deleted[job_id] = name

    async def run(self) -> None:
        while True:
            await self._reader.changed()
            ended = [each for each in self._deleted if self._reader.job(each) is None]
            for job_id in ended:
                name = self._deleted.pop(job_id)
                with self._isolation.of(object=name), suppress(RotaError):
                    try:
                        await self._store.remove_finalizer(job_id, name)
                    except UnavailableError as error:
                        if not isinstance(error, ApiError) or error.is_transient:
                            # The next write of any job tries again.
                            self._deleted[job_id] = name
