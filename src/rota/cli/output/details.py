"""One job in full, and its story."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rota.cli.output.jobs import brief, finish, gpus, left
from rota.cli.output.lines import say
from rota.cli.output.marks import progress
from rota.cli.output.table import Column, draw, say_table
from rota.cli.output.times import figure, moment, span
from rota.errors import printable

if TYPE_CHECKING:
    from rota.wire.jobs import AttemptView, JobDetails, StoryEntry, WorkerView
    from rota.wire.training import WorkerFigure


def say_details(details: JobDetails) -> None:
    say("\n".join(lines(details)))


def lines(details: JobDetails) -> list[str]:
    rows = [(name, value) for name, value in _rows(details) if value]
    width = max(len(name) for name, _ in rows)
    told = [f"{name:<{width}}  {printable(value)}" for name, value in rows]
    return [*told, "", *draw(_attempts(details.attempts))] if details.attempts else told


def _rows(details: JobDetails) -> list[tuple[str, str]]:
    job, request = details.job, details.request
    return [
        ("id", job.id),
        ("name", job.name),
        ("user", job.user),
        ("project", job.project),
        ("state", job.state),
        ("why", job.reason),
        ("hint", details.hint),
        ("command", shlex.join(request.command)),
        ("folder", request.workdir),
        ("image", request.image),
        ("gpus", gpus(job)),
        ("cpus", f"{request.cpus:g}" if request.cpus else ""),
        ("memory", request.memory),
        ("nodes", ", ".join(job.nodes)),
        ("priority", str(job.priority) if job.priority else ""),
        ("after", ", ".join(details.after)),
        ("array index", "" if details.array_index is None else str(details.array_index)),
        ("submitted", moment(job.submitted_s)),
        ("started", moment(job.started_s) if job.started_s else ""),
        ("ended", moment(job.ended_s) if job.ended_s else ""),
        ("ran", span(job.running_s) if job.attempt else ""),
        ("waited", span(details.queued_s)),
        ("GPU time", span(details.gpu_s) if details.gpu_s >= 1 else ""),
        ("time limit", request.time_limit),
        ("failures", str(details.failures) if details.failures else ""),
        *_training(details, now=time.time()),
    ]


def _training(details: JobDetails, *, now: float) -> list[tuple[str, str]]:
    job = details.job
    return [
        ("progress", _progress(details)),
        ("saved", _epochs(details.epochs_saved)),
        ("left", left(job) if job.remaining_s is not None else ""),
        ("ends", finish(job, now=now) if job.finish_s is not None else ""),
        ("lost", f"{span(details.lost_s)} of work" if details.lost_s >= 1 else ""),
        (
            "metrics",
            ", ".join(f"{name} {figure(value)}" for name, value in details.metrics.items()),
        ),
        ("stragglers", ", ".join(straggler(each) for each in details.stragglers)),
    ]


def _progress(details: JobDetails) -> str:
    job = details.job
    if job.progress is None:
        return _epochs(job.epochs_done)
    return f"{progress(job.progress)}, {job.epochs_done:.4g} of {_epochs(job.epochs or 0.0)}"


def _epochs(count: float) -> str:
    words = f"{count:.4g}"
    return f"{words} {'epoch' if words == '1' else 'epochs'}" if count else ""


def straggler(worker: WorkerFigure) -> str:
    where = f" on {worker.node}" if worker.node else ""
    return f"worker {worker.worker}{where}, {worker.slowness or 1:.3g} times as slow as the others"


def _attempts(attempts: Sequence[AttemptView]) -> list[Column]:
    rows = [(attempt, worker) for attempt in attempts for worker in attempt.workers]
    return [
        Column("attempt", tuple(str(each.attempt) for each, _ in rows)),
        Column("worker", tuple(str(worker.worker) for _, worker in rows)),
        Column("where", tuple(where(worker) for _, worker in rows), is_number=False),
        Column("began", tuple(moment(worker.started_s) for _, worker in rows), is_number=False),
        Column("ended", tuple(moment(worker.ended_s) for _, worker in rows), is_number=False),
        Column("exit", tuple(_code(worker) for _, worker in rows)),
        Column("then", tuple(each.outcome for each, _ in rows), is_number=False),
        Column("why", tuple(brief(each.reason) for each, _ in rows), is_number=False),
    ]


def where(worker: WorkerView) -> str:
    indices = ",".join(map(str, worker.gpus))
    return f"{worker.node}:{indices}" if indices else worker.node


def _code(worker: WorkerView) -> str:
    return "-" if worker.exit_code is None else str(worker.exit_code)


def say_story(entries: Sequence[StoryEntry]) -> None:
    say_table(story_columns(entries))


def story_columns(entries: Sequence[StoryEntry]) -> list[Column]:
    return [
        Column("when", tuple(moment(each.at_s) for each in entries), is_number=False),
        Column("attempt", tuple(str(each.attempt or "-") for each in entries)),
        Column("became", tuple(each.after for each in entries), is_number=False),
        Column("because", tuple(_because(each) for each in entries), is_number=False),
    ]


WORDS = {
    "JobSubmitted": "submitted",
    "Plan": "its turn came",
    "WorkersStarted": "all workers are up",
    "WorkersExited": "its workers ended",
    "WorkersLost": "workers were lost",
    "TimerFired": "time was up",
    "JobCancelled": "cancelled",
    "JobHeld": "held",
    "JobReleased": "released",
    "JobResized": "resized",
    "MembershipChanged": "its members changed",
    "WorkersHindered": "workers cannot start",
    "WorkersSilent": "workers were silent",
    "WorkerSlow": "a worker was slow",
    "NewcomersMissing": "newcomers did not join",
    "JobRemarked": "remarked",
}


def _because(entry: StoryEntry) -> str:
    words = brief(entry.reason) or WORDS.get(entry.cause, entry.cause)
    return f"{words} (by {entry.actor})" if entry.actor and "by" not in words else words
