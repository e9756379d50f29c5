"""Converts jobs, attempts, nodes and history entries into the messages of the API."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from rota.core.estimation.forecast import JobForecast
from rota.core.explain.explain import WaitExplainer
from rota.core.lifecycle.size_caps import size_reason
from rota.core.model.allocation import Slot, n_gpus
from rota.core.model.effects import Transition
from rota.core.model.job import Ended, Job, JobId, Running, Starting, Stopping
from rota.core.model.node import DEFAULT_TOLERATIONS, Node, NodeId, tolerates
from rota.daemon.jobs.eta import job_eta
from rota.daemon.runtime.scheduling_loop import SchedulingLoop
from rota.engines.interface import GpuReading, WorkerGpus, WorkerId
from rota.store.records import Attempt, AuditEntry
from rota.wire.daemon import GpuView, NodeView
from rota.wire.jobs import AttemptView, JobView, StoryEntry, WorkerView


def job_view(
    job: Job, *, now: float, reason: str = "", expected: JobForecast | None = None
) -> JobView:
    """`expected` is the forecast of a queued job."""
    phase, spec = job.phase, job.spec
    ahead = job_eta(job, now, expected=expected)
    return JobView(
        id=job.id,
        name=spec.name,
        user=spec.user,
        project=spec.project,
        state=job.state.value,
        reason=reason or phase_reason(job, now),
        priority=spec.priority,
        gpus=gpus_text(job),
        gpus_held=n_gpus(job.members),
        nodes=sorted({slot.node for slot in job.members}),
        attempt=job.attempt,
        submitted_s=job.submitted_s,
        started_s=job.first_started_s if math.isfinite(job.first_started_s) else None,
        ended_s=phase.at_s if isinstance(phase, Ended) else None,
        running_s=running_s(job, now),
        epochs=job.epochs if math.isfinite(job.epochs) else None,
        epochs_done=job.epochs_done,
        progress=ahead.progress,
        remaining_s=ahead.remaining_s,
        finish_s=ahead.finish_s,
        finish_error=ahead.finish_error,
    )


def phase_reason(job: Job, now: float) -> str:
    """Why the job ended, stops or does not start; for a running job: why it has its size."""
    if isinstance(job.phase, Ended | Stopping):
        return job.phase.reason
    if isinstance(job.phase, Starting):
        return job.phase.hindrance
    if not isinstance(job.phase, Running):
        return ""
    held = job.phase.joining or job.phase.allocation
    return str(size_reason(job, job.spec.units_in(held), now=now) or "")


def running_s(job: Job, now: float) -> float:
    """The service time is updated at each transition; add the time since then."""
    since = now - job.service.as_of_s if isinstance(job.phase, Running | Starting) else 0.0
    return round(job.service.running_s + max(0.0, since), 3)


def gpus_text(job: Job) -> str:
    """The GPUs of the request, in the form of --gpus."""
    spec = job.spec
    if spec.share is not None:
        share = spec.share
        text = f"{share.fraction:g}" if share.fraction else f"{share.memory_bytes / 2**30:g}GiB"
        return text if spec.max_workers == 1 else f"{spec.max_workers}x{text}"
    least, most = spec.min_workers * spec.gpus, spec.max_workers * spec.gpus
    return str(least) if least == most else f"{least}..{most}"


def why(job: Job, newest: WaitExplainer | None) -> str:
    """Why the last scheduling round did not start the job; empty for a running or ended job."""
    reason = newest.wait_reason(job) if newest is not None else None
    return "" if reason is None else str(reason)


class MoveDescriber(Protocol):
    def describe(self, job: Job) -> str:
        """Where a queued job will move, and when; empty without a planned move."""
        ...


class WaitReasons:
    """Joins the scheduler's reason why a job waits with its planned move."""

    def __init__(self, scheduling_loop: SchedulingLoop, moves: MoveDescriber) -> None:
        self._scheduling_loop = scheduling_loop
        self._moves = moves

    def why(self, job: Job) -> str:
        """Empty for a job that runs or is over."""
        reasons = (why(job, self._scheduling_loop.newest), self._moves.describe(job))
        return "; ".join(each for each in reasons if each)


def without_released_gpus(view: JobView, live: Job | None) -> JobView:
    """`live` is the kernel's copy of the job. A job that the kernel has forgotten holds no GPUs,
    even if its end is not in the store yet: another job may hold its GPUs already."""
    return view if live is not None else replace(view, gpus_held=0, nodes=[])


def attempt_view(attempt: Attempt, *, worker_gpus: WorkerGpus) -> AttemptView:
    workers = [
        WorkerView(
            worker=each.number,
            node=each.slot.node,
            gpus=list(each.slot.gpus),
            share_bytes=each.slot.share_bytes,
            started_s=each.ordered_s or attempt.started_s,
            exit_code=each.exit_code,
            ended_s=each.exited_s,
            cards=list(
                worker_gpus.gpus_of_worker(WorkerId(attempt.job_id, attempt.number, each.number))
            ),
        )
        for each in attempt.workers
    ]
    outcome = attempt.outcome.value if attempt.outcome else ""
    return AttemptView(
        attempt.number, attempt.started_s, attempt.ended_s, outcome, attempt.reason, workers
    )


def story_entry(entry: AuditEntry) -> StoryEntry:
    step: Transition = entry.transition
    return StoryEntry(
        number=entry.number,
        at_s=step.at_s,
        job_id=step.job_id,
        attempt=step.attempt,
        before=step.before.value if step.before else "",
        after=step.after.value,
        cause=step.cause,
        reason=step.reason,
        actor=entry.actor,
    )


def node_views(
    nodes: Iterable[Node], jobs: Iterable[Job], *, readings: Mapping[int, GpuReading]
) -> list[NodeView]:
    """The views of all nodes, from one pass over the jobs."""
    by_node: dict[NodeId, list[tuple[Job, Slot]]] = {}
    for job in jobs:
        for slot in job.members:
            by_node.setdefault(slot.node, []).append((job, slot))
    return [_node_view(each, by_node.get(each.id, ()), readings=readings) for each in nodes]


def _node_view(
    node: Node, workers: Sequence[tuple[Job, Slot]], *, readings: Mapping[int, GpuReading]
) -> NodeView:
    on_gpu: dict[int, list[JobId]] = {}
    for job, slot in workers:
        for index in slot.gpus:
            on_gpu.setdefault(index, []).append(job.id)
    gpus = {gpu.index: GpuView(gpu.index, gpu.type, gpu.memory_bytes) for gpu in node.gpus}
    for index, seen in readings.items():
        known = gpus.get(index, GpuView(index, seen.name, seen.memory_bytes))
        gpus[index] = replace(
            known,
            used_bytes=seen.used_bytes,
            utilisation=seen.utilisation,
            problem=seen.problem,
        )
    return NodeView(
        id=node.id,
        is_draining=node.is_draining,
        is_cordoned=node.is_cordoned or not tolerates(DEFAULT_TOLERATIONS, node.taints),
        cpus=node.cpus,
        memory_bytes=node.memory_bytes,
        cpus_used=sum(job.spec.cpus for job, _ in workers),
        memory_used_bytes=sum(job.spec.memory_bytes for job, _ in workers),
        gpus=[
            replace(gpus[index], jobs=[str(each) for each in on_gpu.get(index, [])])
            for index in sorted(gpus)
        ],
        note=node.note,
    )
