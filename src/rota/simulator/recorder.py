"""Watches a replay and remembers what a report needs: lives, tenures, usage, disturbances."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from rota.core.commands import ChangeMembership, StartWorkers
from rota.core.effects import Effects
from rota.core.model import (
    Allocation,
    Ended,
    Job,
    JobId,
    Node,
    Purpose,
    Queued,
    Starting,
    Stopping,
    n_gpus,
    newcomers,
)
from rota.core.states import State
from rota.simulator.alone import Alone
from rota.simulator.fairness import Life, fair_times
from rota.simulator.results import Outcome, Run, Tenure
from rota.simulator.workload import TraceJob, Workload


class Recorder:
    """Give `record` to a replay, then ask for the `result`."""

    def __init__(
        self,
        workload: Workload,
        nodes: Sequence[Node],
        progress: Callable[[float], None],
        *,
        keeps_tenures: bool,
    ) -> None:
        self._workload = workload
        self._nodes = nodes
        self._progress = progress
        self._keeps_tenures = keeps_tenures
        self._ended: dict[JobId, Job] = {}
        self._held: dict[JobId, tuple[float, Allocation]] = {}
        self._tenures: list[Tenure] = []
        self._usage: list[tuple[float, float]] = []
        self._gpus_held = 0.0
        self._resizing_from: dict[JobId, Allocation] = {}
        self._preemptions = self._resizes = self._moves = 0
        self._alone = Alone(nodes)

    @property
    def n_ended(self) -> int:
        return len(self._ended)

    def record(self, now: float, effects: Effects) -> None:
        for job in effects.jobs.values():
            _, held = self._held.get(job.id, (now, ()))
            if job.members != held:
                self._change_tenure(job, now)
            if isinstance(job.phase, Ended):
                self._ended[job.id] = job
                self._progress(len(self._ended) / len(self._workload.jobs))
        for row in effects.transitions:
            if row.after is State.STOPPING:
                self._note_stop(effects.jobs[row.job_id])
            elif row.before is State.STOPPING:
                self._note_end_of_stop(effects.jobs[row.job_id])
        for command in effects.commands:
            if isinstance(command, StartWorkers):
                self._count_change(command.job_id, command.allocation)
            elif isinstance(command, ChangeMembership):
                self._resizing_from[command.job_id] = effects.jobs[command.job_id].allocation
                self._count_change(command.job_id, command.allocation)

    def result(self, policy: str, decision_s: Sequence[float]) -> Run:
        jobs = self._workload.jobs
        cluster_gpus = sum(len(node.gpus) for node in self._nodes)
        fair_s = fair_times([self._life(job) for job in jobs], cluster_gpus)
        return Run(
            policy=policy,
            cluster_gpus=cluster_gpus,
            outcomes=tuple(map(self._outcome, jobs, fair_s)),
            tenures=tuple(self._tenures),
            usage=tuple(self._usage),
            preemptions=self._preemptions,
            resizes=self._resizes,
            moves=self._moves,
            rounds=len(decision_s),
            decision_s=tuple(decision_s),
        )

    def _change_tenure(self, job: Job, now: float) -> None:
        since_s, held = self._held.pop(job.id, (now, ()))
        if held and self._keeps_tenures and now > since_s:
            self._tenures.append(Tenure(job.id, held, since_s, now))
        if job.members:
            self._held[job.id] = (now, job.members)
        self._gpus_held += n_gpus(job.members) - n_gpus(held)
        if self._usage and self._usage[-1][0] == now:
            self._usage.pop()
        self._usage.append((now, self._gpus_held))

    def _note_stop(self, job: Job) -> None:
        if not isinstance(job.phase, Stopping):
            return
        if job.phase.purpose is Purpose.PREEMPT:
            self._preemptions += 1
        elif job.phase.purpose is Purpose.RESIZE:
            self._resizing_from[job.id] = job.allocation

    def _note_end_of_stop(self, job: Job) -> None:
        """A job whose new size was taken back while it stopped is preempted after all."""
        match job.phase:
            case Queued(is_resizing=True) | Starting():
                pass  # Its run goes on, now or as soon as its slots are free.
            case phase:
                was_resizing = bool(self._resizing_from.pop(job.id, ()))
                self._preemptions += was_resizing and isinstance(phase, Queued)

    def _count_change(self, job_id: JobId, after: Allocation) -> None:
        """A resize is another number of workers; a move, a worker that stays but goes elsewhere."""
        before = self._resizing_from.pop(job_id, ())
        if not before:
            return
        self._resizes += len(before) != len(after)
        n_staying = min(len(before), len(after))
        self._moves += len(newcomers(before[:n_staying], after[:n_staying]))

    def _outcome(self, trace_job: TraceJob, fair_s: float) -> Outcome:
        job = self._ended.get(trace_job.id)
        return Outcome(
            job_id=trace_job.id,
            name=trace_job.spec.name,
            submitted_s=trace_job.submit_s,
            first_started_s=job.first_started_s if job else math.inf,
            finished_s=self._finished_s(trace_job),
            waited_s=job.service.waiting_s if job else math.inf,
            gpu_s=job.service.gpu_s if job else 0.0,
            fair_s=fair_s,
        )

    def _finished_s(self, trace_job: TraceJob) -> float:
        job = self._ended.get(trace_job.id)
        match job and job.phase:
            case Ended(state=State.SUCCEEDED, at_s=at_s):
                return at_s
            case _:
                return math.inf

    def _life(self, trace_job: TraceJob) -> Life:
        spec = trace_job.spec
        slots = self._alone.slots(spec)
        sizes = range(spec.min_workers, spec.max_workers + 1)
        unused = (math.inf,) * (spec.min_workers - 1)
        return Life(
            submitted_s=trace_job.submit_s,
            finished_s=self._finished_s(trace_job),
            gpus_per_worker=self._alone.gpus_per_worker(spec),
            run_s=unused + tuple(trace_job.truth.run_s(slots[:n]) for n in sizes),
            min_workers=spec.min_workers,
        )
