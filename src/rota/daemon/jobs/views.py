"""Jobs and nodes as they are answered: values of the kernel and the store in, messages out."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from rota.core.effects import Transition
from rota.core.explain import Answers
from rota.core.forecast import Expected
from rota.core.growth import why_size
from rota.core.kernel import Kernel
from rota.core.model import Ended, Job, JobId, Node, Running, Starting, Stopping, n_gpus
from rota.core.taints import USUAL, tolerates
from rota.daemon.outlook import outlook
from rota.engines.base import WorkerId
from rota.engines.local.gpus import Reading
from rota.store.records import Attempt, Entry
from rota.wire.box import GpuView, NodeView
from rota.wire.jobs import AttemptView, JobView, StoryEntry, WorkerView

_FAILURE = re.compile(r"(exit code \d+|cannot start): .*", re.DOTALL)


def job_view(
    job: Job, *, now: float, reason: str = "", expected: Expected | None = None
) -> JobView:
    """`expected` is what a forecast says of a job that waits."""
    phase, spec = job.phase, job.spec
    ahead = outlook(job, now, expected=expected)
    return JobView(
        id=job.id,
        name=spec.name,
        user=spec.user,
        project=spec.project,
        state=job.state.value,
        reason=reason or own_reason(job, now),
        priority=spec.priority,
        gpus=gpus_text(job),
        gpus_held=n_gpus(job.members),
        nodes=sorted({slot.node for slot in job.members}),
        attempt=job.attempt,
        submitted_s=job.submitted_s,
        started_s=job.first_started_s if math.isfinite(job.first_started_s) else None,
        ended_s=phase.at_s if isinstance(phase, Ended) else None,
        running_s=_running_s(job, now),
        epochs=job.epochs if math.isfinite(job.epochs) else None,
        epochs_done=job.epochs_done,
        progress=ahead.progress,
        remaining_s=ahead.remaining_s,
        finish_s=ahead.finish_s,
        finish_error=ahead.finish_error,
    )


def own_reason(job: Job, now: float) -> str:
    """Why it ended or ends, or does not start; of one that runs, why it has the size it has."""
    if isinstance(job.phase, Ended | Stopping):
        return job.phase.reason
    if isinstance(job.phase, Starting):
        return job.phase.hindrance
    if not isinstance(job.phase, Running):
        return ""
    held = job.phase.joining or job.phase.allocation
    return str(why_size(job, len(held), now=now) or "")


def _running_s(job: Job, now: float) -> float:
    """The service is brought up to date at each transition; a running job has run on since."""
    since = now - job.service.as_of_s if isinstance(job.phase, Running | Starting) else 0.0
    return round(job.service.running_s + max(0.0, since), 3)


def gpus_text(job: Job) -> str:
    """What was asked for, as it could be asked for again."""
    spec = job.spec
    if spec.share is not None:
        share = spec.share
        text = f"{share.fraction:g}" if share.fraction else f"{share.memory_bytes / 2**30:g}GiB"
        return text if spec.max_workers == 1 else f"{spec.max_workers}x{text}"
    least, most = spec.min_workers * spec.gpus, spec.max_workers * spec.gpus
    return str(least) if least == most else f"{least}..{most}"


def why(job: Job, newest: Answers | None) -> str:
    """Why a job that is not over does not run."""
    reason = newest.why_it_waits(job) if newest is not None else None
    return "" if reason is None else str(reason)


def by_now(view: JobView, kernel: Kernel) -> JobView:
    """Of a job that is over, its end is told when it is on the disk. Until then it holds nothing:
    what it held may be another's already."""
    is_known = kernel.job(JobId(view.id)) is not None
    return view if is_known else replace(view, gpus_held=0, nodes=[])


def attempt_view(attempt: Attempt, *, cards: Callable[[WorkerId], Sequence[str]]) -> AttemptView:
    """`cards` tells which GPUs a worker was given, where that is known."""
    workers = [
        WorkerView(
            worker=each.number,
            node=each.slot.node,
            gpus=list(each.slot.gpus),
            share_bytes=each.slot.share_bytes,
            started_s=each.ordered_s or attempt.started_s,
            exit_code=each.exit_code,
            ended_s=each.exited_s,
            cards=list(cards(WorkerId(attempt.job_id, attempt.number, each.number))),
        )
        for each in attempt.workers
    ]
    outcome = attempt.outcome.value if attempt.outcome else ""
    return AttemptView(
        attempt.number, attempt.started_s, attempt.ended_s, outcome, attempt.reason, workers
    )


def story_entry(entry: Entry) -> StoryEntry:
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


def for_others(reason: str) -> str:
    """Why a job failed, without what its log or what it was to run with had to say about it."""
    return _FAILURE.sub(r"\1", reason)


def node_view(node: Node, jobs: Iterable[Job], *, readings: Mapping[int, Reading]) -> NodeView:
    here = [(job, slot) for job in jobs for slot in job.members if slot.node == node.id]
    on_gpu: dict[int, list[JobId]] = {}
    for job, slot in here:
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
        is_cordoned=node.is_cordoned or not tolerates(USUAL, node.taints),
        cpus=node.cpus,
        memory_bytes=node.memory_bytes,
        cpus_used=sum(job.spec.cpus for job, _ in here),
        memory_used_bytes=sum(job.spec.memory_bytes for job, _ in here),
        gpus=[
            replace(gpus[index], jobs=[str(each) for each in on_gpu.get(index, [])])
            for index in sorted(gpus)
        ],
        note=node.note,
    )
