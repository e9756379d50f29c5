"""TrainingJobs that somebody deletes while their jobs are not over: each stays until its job is.

Most of them are heard of again when their objects say so. One whose object may not be told, because
a rule of the site is against it, is not.
"""

from __future__ import annotations

from contextlib import suppress

from rota.core.model import JobId
from rota.daemon.shell import Shell
from rota.errors import RotaError
from rota.store.cluster import ClusterStore
from rota.tasks import Bugs


class Farewells:
    def __init__(self, shell: Shell, store: ClusterStore) -> None:
        self._shell, self._store = shell, store
        self._leaving: dict[JobId, str] = {}
        """By the names of their objects."""
        self._bugs = Bugs("an object that is deleted could not be let go")

    def wait_for(self, job_id: JobId, name: str) -> None:
        self._leaving[job_id] = name

    async def run(self) -> None:
        while True:
            await self._shell.changed()
            over = [each for each in self._leaving if self._shell.kernel.job(each) is None]
            for job_id in over:
                name = self._leaving.pop(job_id)
                with self._bugs.of(object=name), suppress(RotaError):
                    await self._store.let_go(job_id, name)
