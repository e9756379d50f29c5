"""What a job's workers run, when they start: the program with its account, code and environment."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from rota.core.model import Job, JobId
from rota.daemon.admission import Defaults
from rota.daemon.checkpoints import Checkpoints, Owner
from rota.daemon.programs import account_of, program, unpack
from rota.daemon.shell import Shell
from rota.daemon.snapshots import Snapshots
from rota.engines.base import Mount, Program
from rota.errors import UserError
from rota.store.base import Store


@dataclass(frozen=True, slots=True)
class Site:
    """What is particular to this place."""

    clock: Callable[[], float]
    defaults: Callable[[str], Defaults]
    """What is added to the jobs of a project."""
    env: Callable[[Job], dict[str, str]]
    """What every worker of a job finds in its environment."""
    snapshots: Snapshots
    checkpoints: Checkpoints
    door: str
    """The folder of the socket at which workers find us, containers included."""


class Launches:
    def __init__(self, shell: Shell, store: Store, *, site: Site) -> None:
        self._shell = shell
        self._store = store
        self._site = site

    async def program(self, job_id: JobId) -> Program:
        """For the engine, when the job starts."""
        job = self._shell.kernel.job(job_id)
        submission = self._store.submission(job_id)
        if job is None or submission is None:
            raise UserError(f"nobody knows what job {job_id} runs")
        account = account_of(submission.user, submission.uid if os.geteuid() == 0 else None)
        saved = unpack(submission.program)
        place = await asyncio.to_thread(
            self._site.checkpoints.make, job_id, Owner(submission.user, account.uid, account.gid)
        )
        env = self._site.env(job) | self._told(job, place)
        if saved.request.epochs is not None:
            env["ROTA_EPOCHS"] = f"{saved.request.epochs:.15g}"
        # A container sees of this machine only what is mounted into it.
        mounts = [Mount(self._site.door, self._site.door), _both(place)]
        if saved.request.snapshot:
            folder = await asyncio.to_thread(
                self._site.snapshots.unpack,
                saved.request.snapshot,
                owner=submission.uid,
                gid=os.getgid() if account.gid is None else account.gid,
            )
            workdir = str(folder / saved.request.workdir)
            saved = replace(saved, request=replace(saved.request, workdir=workdir))
            mounts.append(_both(folder))
        made = program(saved, job.spec, account=account, env=env)
        log = self._site.defaults(job.spec.project).log
        return replace(made, log=log, mounts=(*made.mounts, *mounts))

    def _told(self, job: Job, place: Path) -> dict[str, str]:
        """What a program needs to go on where the attempt before was stopped."""
        return {
            "EPOCHS_DONE": str(int(job.epochs_saved)),
            "ROTA_RESTARTS": str(job.attempt - 1),
            "ROTA_CHECKPOINT_DIR": str(place),
            "ROTA_BEGAN": f"{self._site.clock():.3f}",
        }

    async def prune_snapshots(self) -> frozenset[JobId]:
        """Shipped code stays as long as a job that is not over needs it. Returns those jobs."""
        live = frozenset(self._shell.kernel.jobs)
        await asyncio.to_thread(self._prune, live)
        return live

    def _prune(self, job_ids: Collection[JobId]) -> None:
        needed: set[tuple[int, str]] = set()
        for job_id in job_ids:
            submission = self._store.submission(job_id)
            if submission is not None and (snapshot := unpack(submission.program).request.snapshot):
                needed.add((submission.uid, snapshot))
        self._site.snapshots.prune(needed)

    async def remove_checkpoints(self, job_ids: Collection[JobId]) -> None:
        """Of jobs whose logs are gone."""
        await asyncio.to_thread(self._remove_checkpoints, job_ids)

    def _remove_checkpoints(self, job_ids: Collection[JobId]) -> None:
        for job_id in job_ids:
            submission = self._store.submission(job_id)
            if submission is not None:
                # Many a job has none; what its owner made impassable stays.
                with suppress(OSError):
                    self._site.checkpoints.remove(job_id, submission.user)


def _both(folder: Path) -> Mount:
    """At the same place, inside and outside."""
    return Mount(str(folder), str(folder), is_writable=True)
