"""Where the programs of jobs report, and hear that they are to stop.

A report is answered when there is an order for its worker, or when the worker does not want to wait
any longer: so an order arrives at once, on a connection that is there anyway.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import structlog

from rota.core.commands import AskToStop, Command
from rota.core.events import JobRemarked
from rota.core.model import Job, JobId
from rota.daemon.cards import Cards
from rota.daemon.measurements import Measurements
from rota.daemon.membership import Membership
from rota.daemon.people import Caller, ForbiddenError, Reach
from rota.daemon.reports import Told, told
from rota.daemon.shell import Shell
from rota.daemon.trainees import Given, Team, Trainee
from rota.errors import RotaError
from rota.tasks import Bugs
from rota_trainer.messages import Orders

log = structlog.get_logger()

LONGEST_WAIT_S = 30.0
TIDY_S = 2.0
"""How often samples are written, slow workers looked for, and the jobs forgotten that are over."""


class Training:
    def __init__(
        self, shell: Shell, membership: Membership, *, clock: Callable[[], float], cards: Cards
    ) -> None:
        self._shell = shell
        self._membership = membership
        membership.wake = self._wake
        membership.remark = self._remark
        self._clock = clock
        self._teams: dict[JobId, Team] = {}
        self._measurements = Measurements(shell)
        self.cards = cards
        self._is_hushed = False
        self._bugs = Bugs("a job that trains could not be looked at")

    # -- reports --------------------------------------------------------------------------------

    async def report(self, caller: Caller, raw: object) -> Orders:
        """Take a report; wait for an order as long as the worker wants to."""
        job = self._job(caller)
        now = self._clock()
        said = told(raw, now=now)
        team = self._team(job.id, job.attempt)
        if said.worker not in job.numbers:
            stranger = f"a report came from worker {said.worker}, which this job does not have"
            return Orders(notes=team.news({"worker": stranger}))
        trainee = team.trainees.setdefault(said.worker, Trainee(said.worker))
        before = trainee.sequence
        faults = said.faults | trainee.take(said, now=now)
        trainee.card_bytes = self.cards.held_bytes(job.id, job.attempt, worker=said.worker)
        if trainee.sequence != before:
            self._membership.heard(job, said)
            self._follow(job, team, said=said, now=now)
        notes = team.news(faults)
        await self._wait(job.id, team, trainee=trainee, wait_s=min(said.wait_s, LONGEST_WAIT_S))
        return self._orders(job.id, team, trainee=trainee, notes=notes)

    def _job(self, caller: Caller) -> Job:
        job = None if caller.job_id is None else self._shell.kernel.job(caller.job_id)
        if caller.reach is not Reach.JOB or job is None:
            raise ForbiddenError(
                "only a job reports about its training, with the token of its attempt",
                "use rota_trainer in the job's program: it finds the token in ROTA_TOKEN",
            )
        return job

    def _team(self, job_id: JobId, attempt: int) -> Team:
        known = self._teams.get(job_id)
        if known is None or known.attempt != attempt:
            self._forget(job_id)
            known = self._teams[job_id] = Team(attempt)
        return known

    def _follow(self, job: Job, team: Team, *, said: Told, now: float) -> None:
        """Tell the scheduler what it needs, and keep what is worth keeping. While the store cannot
        be written nothing is told; what is owed comes with a later report."""
        lead = team.lead(job.numbers, now=now)
        if lead is None or lead.worker != said.worker:
            return
        team.note_epochs(said, since_s=self._membership.steady_since_s(job))
        sample = team.sample(job, lead, now=now)
        if sample is not None:
            self._measurements.add(sample)
        fact = team.next_fact(job, lead, now=now)
        if fact is not None and not self._shell.trouble:
            self._shell.tell(fact)
            team.has_told(fact, lead, now=now)
            if fact.epoch_s is not None:
                self._measurements.learn(self._shell.kernel.job(job.id) or job)

    # -- orders ---------------------------------------------------------------------------------

    def order(self, command: Command) -> None:
        """For the shell. Given again after a crash, it changes nothing for those who know it."""
        if not isinstance(command, AskToStop):
            return
        job = self._shell.kernel.job(command.job_id)
        if job is None or job.attempt != command.attempt:
            return
        team = self._team(command.job_id, command.attempt)
        team.order = command
        team.answer_all()

    def _wake(self, job_id: JobId) -> None:
        if team := self._teams.get(job_id):
            team.answer_all()

    def _remark(self, job_id: JobId, words: str) -> None:
        """For the log of a job whose program reports at all."""
        if team := self._teams.get(job_id):
            team.notes.append(words)

    async def _wait(self, job_id: JobId, team: Team, *, trainee: Trainee, wait_s: float) -> None:
        is_news = self._given(job_id, team, worker=trainee.worker) != trainee.given
        if is_news or wait_s <= 0 or self._is_hushed:
            return
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        team.wait(trainee.worker, answer)
        await asyncio.wait([answer], timeout=wait_s)
        team.stop_waiting(trainee.worker, answer)

    def _given(self, job_id: JobId, team: Team, *, worker: int) -> Given:
        stop = team.order if team.order and worker in team.order.workers else None
        return Given(stop, *self._membership.orders(job_id, worker, attempt=team.attempt))

    def _orders(self, job_id: JobId, team: Team, *, trainee: Trainee, notes: list[str]) -> Orders:
        if trainee.worker == min(team.trainees, default=None):
            notes += team.notes
            team.notes.clear()
        given = trainee.given = self._given(job_id, team, worker=trainee.worker)
        stop, insists_in_s = "", None
        if given.stop is not None:
            stop = given.stop.reason or "the GPUs are needed"
            insists_in_s = max(0.0, given.stop.insists_at_s - self._clock())
        return Orders(stop, insists_in_s, notes, given.switch, given.refused)

    def hush(self) -> None:
        """The daemon ends: nobody waits for anything any more."""
        self._is_hushed = True
        for team in self._teams.values():
            team.answer_all()

    # -- what is known --------------------------------------------------------------------------

    def workers(self, job_id: JobId) -> Sequence[Trainee]:
        """The workers of a job that report, by number."""
        team = self._teams.get(job_id)
        return [] if team is None else [one for _, one in sorted(team.trainees.items())]

    def slow_workers(self, job_id: JobId) -> dict[int, float]:
        """Those that hold the others up -> how many times as long as usual their steps take."""
        team = self._teams.get(job_id)
        return {} if team is None else team.slow()

    # -- time -----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until it is cancelled; then what is left is written."""
        try:
            while True:
                await asyncio.sleep(TIDY_S)
                try:
                    self._tidy()
                except RotaError as error:
                    log.warning("measurements were not kept", error=str(error))
        finally:
            self._measurements.write(now=self._clock(), all_of_it=True)

    def _tidy(self) -> None:
        with self._bugs.of():
            self._measurements.write(now=self._clock())
        for job_id, team in list(self._teams.items()):
            with self._bugs.of(job=job_id):
                self._look_at(job_id, team)

    def _look_at(self, job_id: JobId, team: Team) -> None:
        job = self._shell.kernel.job(job_id)
        if job is None or not job.is_active or job.attempt != team.attempt:
            self._forget(job_id)
        else:
            team.keep_only(job.numbers)
            self._name_slow(job_id, team)

    def _name_slow(self, job_id: JobId, team: Team) -> None:
        """Once for each worker and attempt, wherever the job's owner and the operator look."""
        for worker, times in team.slow().items():
            words = f"worker {worker} takes {times:.3g} times as long for a step as the others"
            if team.news({f"slow {worker}": words}):
                team.notes.append(words)
                log.info("worker is slow", job=job_id, worker=worker, times=round(times, 2))
                if not self._shell.trouble:
                    self._shell.tell(JobRemarked(job_id, team.attempt, words))
                self._membership.replace_slow(job_id, worker, why=words)

    def _forget(self, job_id: JobId) -> None:
        team = self._teams.pop(job_id, None)
        if team is not None:
            team.answer_all()
