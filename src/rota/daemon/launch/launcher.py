"""What a job's workers run, when they start: the program with its account, code and environment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from rota.core.model import Job, JobId
from rota.daemon.admission import Defaults
from rota.daemon.premises import Premises
from rota.daemon.programs import program, unpack
from rota.daemon.shell import Shell
from rota.daemon.snapshots import Shipper, Snapshots, shipper_of
from rota.engines.base import Program
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
    premises: Premises


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
        saved = unpack(submission.program)
        found = await self._site.premises.fit_out(submission, saved.request)
        env = self._site.env(job) | self._told(job) | dict(found.env)
        if saved.request.epochs is not None:
            env["ROTA_EPOCHS"] = f"{saved.request.epochs:.15g}"
        if found.workdir is not None:
            saved = replace(saved, request=replace(saved.request, workdir=found.workdir))
        defaults = self._site.defaults(job.spec.project)
        is_contained = defaults.are_contained or bool(saved.request.image)
        made = program(saved, job.spec, account=found.account, env=env, is_contained=is_contained)
        name, uid = found.owner
        mounts = (*made.mounts, *found.mounts)
        return replace(
            made,
            log=defaults.log,
            mounts=mounts,
            code=found.code,
            owner_name=name,
            owner_uid=uid,
        )

    def _told(self, job: Job) -> dict[str, str]:
        """What a program needs to go on where the attempt before was stopped."""
        return {
            "EPOCHS_DONE": str(int(job.epochs_saved)),
            "ROTA_RESTARTS": str(job.attempt - 1),
            "ROTA_BEGAN": f"{self._site.clock():.3f}",
        }

    async def prune_snapshots(self) -> frozenset[JobId]:
        """Shipped code stays as long as a job that is not over needs it. Returns those jobs."""
        live = frozenset(self._shell.kernel.jobs)
        await asyncio.to_thread(self._prune, live)
        return live

    def _prune(self, job_ids: Collection[JobId]) -> None:
        needed: set[tuple[Shipper, str]] = set()
        for job_id in job_ids:
            submission = self._store.submission(job_id)
            if submission is not None and (snapshot := unpack(submission.program).request.snapshot):
                needed.add((shipper_of(submission), snapshot))
        self._site.snapshots.prune(needed)

    async def remove_checkpoints(self, job_ids: Collection[JobId]) -> None:
        """Of jobs whose logs are gone."""
        await asyncio.to_thread(self._remove_checkpoints, job_ids)

    def _remove_checkpoints(self, job_ids: Collection[JobId]) -> None:
        for job_id in job_ids:
            submission = self._store.submission(job_id)
            if submission is not None:
                self._site.premises.remove_checkpoints(job_id, submission.user)
