"""A kernel full of made-up jobs that come and go: what `decide` measures rounds on."""

from __future__ import annotations

from random import Random

from rota.core.commands import (
    AskToStop,
    ChangeMembership,
    KillWorkers,
    ReportWorkers,
    StartWorkers,
    StopWorkers,
)
from rota.core.effects import Effects
from rota.core.events import (
    JobSubmitted,
    MembershipChanged,
    NodeSeen,
    ProgressReported,
    WorkersExited,
    WorkersStarted,
)
from rota.core.kernel import Kernel
from rota.core.model import Job, JobId, Running
from rota.core.plan import Plan
from rota.core.view import Rules, View
from rota.simulator.cluster import parse_cluster
from rota.simulator.traces.synthetic import synthetic
from rota.simulator.workload import TraceJob

SEED = 1
STEP_S = 60.0
ENDING = 0.01
REPORTING = 0.1
SPARE_JOBS = 4
"""So many times the jobs are generated: those who come later are of the same kind."""
STOPPED = 143


class Crowd:
    """So many jobs, always: whoever ends is replaced."""

    def __init__(self, nodes: int, jobs: int) -> None:
        self.now = 0.0
        self._kernel = Kernel(Rules(round_interval_s=STEP_S))
        self._random = Random(SEED)
        made = synthetic(f"jobs={SPARE_JOBS * jobs},seed={SEED},gpus={8 * nodes}").jobs
        self._coming = iter(made)
        for node in parse_cluster(f"{nodes}x8"):
            self._kernel.apply(NodeSeen(node), self.now)
        for _ in range(jobs):
            self._submit(next(self._coming))

    def view(self) -> View:
        return self._kernel.view(self.now)

    def commit(self, plan: Plan) -> Effects:
        return self._kernel.commit(plan, self.now)

    def carry_out(self, effects: Effects) -> None:
        """Every order is followed at once."""
        for command in effects.commands:
            job_id, attempt = command.job_id, command.attempt
            match command:
                case StartWorkers(allocation=slots):
                    event = WorkersStarted(job_id, attempt, frozenset(range(len(slots))))
                case StopWorkers(workers=workers):
                    event = WorkersExited(job_id, attempt, dict.fromkeys(workers, STOPPED))
                case ChangeMembership(generation=generation):
                    event = MembershipChanged(job_id, attempt, generation)
                case ReportWorkers() | AskToStop() | KillWorkers():
                    continue  # Nothing crashes here, nobody falls silent, and no program listens.
            self.carry_out(self._kernel.apply(event, self.now))

    def turn_over(self) -> None:
        """Some time passes: a few jobs end, as many come, and some report what they did."""
        self.now += STEP_S
        running = [job for job in self._kernel.jobs.values() if isinstance(job.phase, Running)]
        leaving = self._random.sample(running, max(2, round(ENDING * len(running))))
        for job in leaving:
            exits = dict.fromkeys(range(len(job.allocation)), 0)
            self.carry_out(self._kernel.apply(WorkersExited(job.id, job.attempt, exits), self.now))
            self._submit(next(self._coming))
        for job in self._random.sample(running, round(REPORTING * len(running))):
            self._report(job)

    def _submit(self, job: TraceJob) -> None:
        self._kernel.apply(JobSubmitted(JobId(job.id), job.spec), self.now)

    def _report(self, job: Job) -> None:
        part = min(0.9, job.epochs_done + 0.02)
        epoch_s = job.speed.epoch_s(len(job.allocation))
        event = ProgressReported(job.id, job.attempt, part, epoch_s)
        self.carry_out(self._kernel.apply(event, self.now))
