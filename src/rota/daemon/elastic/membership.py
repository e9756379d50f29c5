"""Who belongs to a job's newest generation, and when the scheduler hears that it stands.

A generation stands once its members have come together (`committed`) and the workers that it leaves
out are gone. Live workers are brought together here: each says with its reports where it can be met
and which generation it is in, and hears with the answers which one to join. Other workers meet
elsewhere, and whoever brings them together says so.

All of it is in memory. After a restart the scheduler orders again what it wants, and the workers
say again where they are: what they did meanwhile counts.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import structlog

from rota.core.commands import ChangeMembership, Command, ReportWorkers, StartWorkers
from rota.core.events import (
    JobRemarked,
    MembershipChanged,
    NewcomersMissing,
    WorkerSlow,
    WorkersSilent,
)
from rota.core.model import Job, JobId, JobSpec, Mode, Running, Starting
from rota.daemon.crew import Crew
from rota.daemon.generations import Wanted
from rota.daemon.reports import Told
from rota.daemon.shell import Shell
from rota.tasks import Bugs
from rota_trainer.messages import Switch

log = structlog.get_logger()

MUTE = (
    "its mode is live, and its program does not use rota_trainer.torch.live: nobody can join it,"
    " and it goes on at the size that it has; submit it with --mode restart to have it resized"
)
LOOK_S = 1.0
"""How often it is looked whether somebody fell silent."""


@dataclass(frozen=True, slots=True)
class Roll:
    """The workers of a job's newest generation, by rank. `held` are all that the job has at the
    moment, those who leave included; `exits` is how some of them ended."""

    generation: int
    numbers: tuple[int, ...]
    held: tuple[int, ...]
    exits: Mapping[int, int]

    def is_gone(self, number: int) -> bool:
        return number in self.exits or number not in self.held


def roll_of(job: Job | None) -> Roll | None:
    """None while nobody is to come together: the job waits, stops or is over."""
    match job:
        case Job(phase=Running(joining_numbers=numbers, exits=exits)) if numbers:
            return Roll(job.generation, numbers, job.numbers, exits)
        case Job(phase=Running(exits=exits) | Starting(exits=exits)):
            return Roll(job.generation, job.numbers, job.numbers, exits)
        case _:
            return None


@dataclass(frozen=True, slots=True)
class Care:
    """What is done about workers that hold up the others: one that is silent is ended after
    `heartbeat_s`, one that is slow only if it `replaces_stragglers`."""

    heartbeat_s: float = 10.0
    replaces_stragglers: bool = False


DEFAULT_CARE = Care()


class Membership:
    def __init__(
        self, shell: Shell, *, clock: Callable[[], float], care: Care = DEFAULT_CARE
    ) -> None:
        self._shell = shell
        self._clock = clock
        self._care = care
        self._crews: dict[JobId, Crew] = {}
        self._committed: dict[JobId, MembershipChanged] = {}
        """Generations whose leavers are still there."""
        self._looked_at_s = clock()
        self._bugs = Bugs("the workers of a job could not be looked after")
        self.wake: Callable[[JobId], None] = lambda _job_id: None
        """Called when the workers of a job have something new to hear."""
        self.remark: Callable[[JobId, str], None] = lambda _job_id, _words: None
        """Called with words for the log of a job."""

    # -- orders of the scheduler ----------------------------------------------------------------

    def order(self, command: Command) -> None:
        """For the shell, when what the order rests upon is on the disk. The same again changes
        nothing."""
        match command:
            case StartWorkers(job_id, attempt, generation, allocation):
                self._want(job_id, Wanted(attempt, generation, tuple(range(len(allocation)))))
            case ChangeMembership(job_id, attempt, generation, _, workers):
                self._want(job_id, Wanted(attempt, generation, workers))
            case ReportWorkers(job_id, attempt):
                # After a restart. One that changes its members is ordered to right after this.
                job = self._job(job_id, attempt)
                if job is not None and isinstance(job.phase, Running) and not job.phase.joining:
                    self._want(job_id, Wanted(attempt, job.generation, job.phase.numbers))
            case _:
                pass

    def _want(self, job_id: JobId, wanted: Wanted) -> None:
        crew = self._crews.get(job_id)
        if crew is None or crew.wanted.attempt != wanted.attempt:
            self._crews[job_id] = Crew(wanted, since_s=self._clock())
        elif crew.wanted != wanted:
            crew.want(wanted)
        self._bring_together(job_id)

    # -- reports and answers --------------------------------------------------------------------

    def heard(self, job: Job, told: Told) -> None:
        """From a worker of this job; what it says of another attempt does not get here."""
        crew = self._crews.get(job.id)
        if crew is not None and crew.wanted.attempt == job.attempt and told.address:
            crew.hear(told, now=self._clock())
            self._bring_together(job.id)

    def orders(self, job_id: JobId, worker: int, *, attempt: int) -> tuple[Switch | None, str]:
        """The generation that a worker is to join, if it is not in it, or why it may not."""
        crew = self._crews.get(job_id)
        if crew is None or crew.wanted.attempt != attempt:
            return None, ""
        return crew.orders(worker)

    def steady_since_s(self, job: Job) -> float:
        """Since when the job has the size that the scheduler knows: never, while that changes."""
        if isinstance(job.phase, Running) and job.phase.joining:
            return math.inf
        crew = self._crews.get(job.id)
        return -math.inf if crew is None else crew.changed_at_s

    def _bring_together(self, job_id: JobId) -> None:
        crew = self._crews[job_id]
        job = self._job(job_id, crew.wanted.attempt)
        if job is None:
            return
        if crew.gather(job):
            log.info("generation given", job=job_id, generation=crew.wanted.generation)
            self.wake(job_id)
        if crew.has_come_about(job):
            wanted = crew.wanted
            self.committed(
                job_id, wanted.attempt, generation=wanted.generation, pause_s=crew.pause_s(job)
            )

    # -- facts for the scheduler ----------------------------------------------------------------

    def committed(
        self, job_id: JobId, attempt: int, *, generation: int, pause_s: float | None = None
    ) -> None:
        """All members of this generation have come together. Told again, it changes nothing."""
        self._committed[job_id] = MembershipChanged(job_id, attempt, generation, pause_s)
        self._settle(job_id)

    def _settle(self, job_id: JobId) -> None:
        fact = self._committed[job_id]
        job = self._job(job_id, fact.attempt)
        phase = None if job is None or job.generation != fact.generation else job.phase
        if not isinstance(phase, Running) or not phase.joining:
            del self._committed[job_id]
            return
        leavers = set(phase.numbers) - set(phase.joining_numbers)
        if leavers <= phase.exits.keys() and not self._shell.trouble:
            del self._committed[job_id]
            self._shell.tell(fact)

    # -- time -----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until it is cancelled: looks for leavers that are gone whenever something changes, and
        now and then for workers that hold up the others."""
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._shell.changed(), LOOK_S)
            for job_id in list(self._committed):
                with self._bugs.of(job=job_id):
                    self._settle(job_id)
            now = self._clock()
            if now - self._looked_at_s >= LOOK_S:
                self.look_around(now)

    def look_around(self, now: float) -> None:
        """Who was not heard of while we did not listen ourselves is not to blame."""
        was_asleep = now - self._looked_at_s > self._care.heartbeat_s / 2
        self._looked_at_s = now
        for job_id, crew in list(self._crews.items()):
            job = self._job(job_id, crew.wanted.attempt)
            if job is None or not job.is_active:
                del self._crews[job_id]
                continue
            with self._bugs.of(job=job_id):
                if was_asleep:
                    crew.excuse(now)
                if isinstance(job.phase, Running) and not self._shell.trouble:
                    self._look_at(job, crew, now=now)

    def _look_at(self, job: Job, crew: Crew, *, now: float) -> None:
        # Of those who never speak, and whose members do not change, nobody is missed.
        if crew.said or job.numbers != crew.wanted.numbers:
            self._end_silent(job, crew, now=now)
        if job.spec.mode is Mode.LIVE:
            self._miss_newcomers(job, crew, now=now)
            self._remark_silence(job, crew, now=now)

    def _end_silent(self, job: Job, crew: Crew, *, now: float) -> None:
        for reason, workers in crew.faults(
            job, now=now, heartbeat_s=self._care.heartbeat_s
        ).items():
            log.warning("workers are ended", job=job.id, workers=sorted(workers), reason=reason)
            self._shell.tell(WorkersSilent(job.id, job.attempt, workers, reason))

    def _miss_newcomers(self, job: Job, crew: Crew, *, now: float) -> None:
        if missing := crew.missing(job, now=now):
            log.warning("newcomers did not join", job=job.id, workers=sorted(missing))
            self._shell.tell(NewcomersMissing(job.id, job.attempt, missing))

    def _remark_silence(self, job: Job, crew: Crew, *, now: float) -> None:
        if crew.is_mute(job, now=now):
            self._shell.tell(JobRemarked(job.id, job.attempt, MUTE))
            self.remark(job.id, MUTE)

    def replace_slow(self, job_id: JobId, worker: int, *, why: str) -> None:
        """Have another come in the place of a worker that the others have to wait for, if that is
        the rule. Where there is no room for another, it is ended, if they can do without it until
        the scheduler gives them one."""
        job = self._settled(job_id)
        if job is None or not self._care.replaces_stragglers or self._shell.trouble:
            return
        reason = f"{why}, and is replaced"
        self._shell.tell(WorkerSlow(job.id, job.attempt, worker, reason))
        job = self._settled(job_id)
        if job is not None and len(job.numbers) > job.spec.min_workers:
            self._shell.tell(WorkersSilent(job.id, job.attempt, frozenset((worker,)), reason))

    def _settled(self, job_id: JobId) -> Job | None:
        """A live job whose members do not change at the moment."""
        match self._shell.kernel.job(job_id):
            case Job(phase=Running(joining=()), spec=JobSpec(mode=Mode.LIVE)) as job:
                return job
            case _:
                return None

    def _job(self, job_id: JobId, attempt: int) -> Job | None:
        job = self._shell.kernel.job(job_id)
        return job if job is not None and job.attempt == attempt else None
