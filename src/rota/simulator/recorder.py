"""Records a simulation: outcomes of jobs, allocations over time, usage, and disruptions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from rota.core.lifecycle.states import JobState, Purpose
from rota.core.model.allocation import Allocation, added_slots, n_gpus, split_workers
from rota.core.model.commands import ChangeMembership, StartWorkers
from rota.core.model.effects import Effects
from rota.core.model.job import Ended, Job, JobId, Queued, Starting, Stopping
from rota.core.model.node import Node
from rota.simulator.fairness import JobLifetime, fair_times
from rota.simulator.metrics import AllocationSpan, Outcome, SimulationRun
from rota.simulator.standalone_runtime import StandaloneBaseline
from rota.simulator.workload import TraceJob, Workload


class Recorder:
    """Pass `record` to the virtual time loop, then call `result`."""

    def __init__(
        self,
        workload: Workload,
        nodes: Sequence[Node],
        progress: Callable[[float], None],
        *,
        record_spans: bool,
    ) -> None:
        self._workload = workload
        self._merging = {job.id for job in workload.jobs if job.spec.merges_units}
        self._nodes = nodes
        self._progress = progress
        self._record_spans = record_spans
        self._ended: dict[JobId, Job] = {}
        self._held: dict[JobId, tuple[float, Allocation]] = {}
        self._allocation_spans: list[AllocationSpan] = []
        self._usage: list[tuple[float, float]] = []
        self._gpus_held = 0.0
        self._resizing_from: dict[JobId, Allocation] = {}
        self._preemptions = self._resizes = self._moves = 0
        self._baseline = StandaloneBaseline(nodes)

    @property
    def n_ended(self) -> int:
        return len(self._ended)

    def record(self, now: float, effects: Effects) -> None:
        for job in effects.jobs.values():
            _, held = self._held.get(job.id, (now, ()))
            if job.members != held:
                self._change_span(job, now)
            if isinstance(job.phase, Ended):
                self._ended[job.id] = job
                self._progress(len(self._ended) / len(self._workload.jobs))
        for row in effects.transitions:
            if row.after is JobState.STOPPING:
                self._note_stop(effects.jobs[row.job_id])
            elif row.before is JobState.STOPPING:
                self._note_end_of_stop(effects.jobs[row.job_id])
        for command in effects.commands:
            if isinstance(command, StartWorkers):
                self._count_change(command.job_id, command.allocation)
            elif isinstance(command, ChangeMembership):
                self._resizing_from[command.job_id] = effects.jobs[command.job_id].allocation
                self._count_change(command.job_id, command.allocation)

    def result(self, policy: str, decision_s: Sequence[float]) -> SimulationRun:
        jobs = self._workload.jobs
        cluster_gpus = sum(len(node.gpus) for node in self._nodes)
        fair_s = fair_times([self._lifetime(job) for job in jobs], cluster_gpus)
        return SimulationRun(
            policy=policy,
            cluster_gpus=cluster_gpus,
            outcomes=tuple(map(self._outcome, jobs, fair_s)),
            allocation_spans=tuple(self._allocation_spans),
            usage=tuple(self._usage),
            preemptions=self._preemptions,
            resizes=self._resizes,
            moves=self._moves,
            rounds=len(decision_s),
            decision_s=tuple(decision_s),
        )

    def _change_span(self, job: Job, now: float) -> None:
        since_s, held = self._held.pop(job.id, (now, ()))
        if held and self._record_spans and now > since_s:
            self._allocation_spans.append(AllocationSpan(job.id, held, since_s, now))
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
        """Count a preemption if a job stopped for a resize, and the resize was then withdrawn."""
        match job.phase:
            case Queued(is_resizing=True) | Starting():
                pass  # The resize continues, now or when its slots are free.
            case phase:
                was_resizing = bool(self._resizing_from.pop(job.id, ()))
                self._preemptions += was_resizing and isinstance(phase, Queued)

    def _count_change(self, job_id: JobId, after: Allocation) -> None:
        """Count a resize if the number of units changes, and a move per unit on a new slot."""
        before = self._resizing_from.pop(job_id, ())
        if not before:
            return
        if job_id in self._merging:
            before, after = split_workers(before), split_workers(after)
        self._resizes += len(before) != len(after)
        n_staying = min(len(before), len(after))
        self._moves += len(added_slots(before[:n_staying], after[:n_staying]))

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
            case Ended(state=JobState.SUCCEEDED, at_s=at_s):
                return at_s
            case _:
                return math.inf

    def _lifetime(self, trace_job: TraceJob) -> JobLifetime:
        spec = trace_job.spec
        slots = self._baseline.slots(spec)
        sizes = range(spec.min_workers, spec.max_workers + 1)
        unused = (math.inf,) * (spec.min_workers - 1)
        return JobLifetime(
            submitted_s=trace_job.submit_s,
            finished_s=self._finished_s(trace_job),
            gpus_per_worker=self._baseline.gpus_per_worker(spec),
            run_s=unused + tuple(trace_job.runtime.run_s(slots[:n]) for n in sizes),
            min_workers=spec.min_workers,
        )
