"""Jobs for the terminal: a table of jobs, the details of one job, and its history."""

from __future__ import annotations

import re
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from rota.cli.output.console import print_json, print_out
from rota.cli.output.format import clock_time, figure, moment, span, time_error
from rota.cli.output.table import Column, draw, fit, print_table, progress, to_output_charset
from rota.errors import printable

if TYPE_CHECKING:
    from rota.wire.jobs import AttemptView, JobDetails, JobView, StoryEntry, WorkerView
    from rota.wire.training import WorkerFigure

MAX_REASON_CHARS = 60
MAX_IDS = 10
DROPPABLE = ("age", "running", "remaining", "user", "progress", "finish")
CUT = {"name": 16, "reason": 30}
"""What a table of jobs leaves out and cuts on a narrow terminal."""
MAX_REMAINING_S = 100 * 365 * 86400.0
"""A finish time further away than this is not shown."""
CAUSE_TEXTS = {
    "JobSubmitted": "submitted",
    "Plan": "scheduled",
    "WorkersStarted": "all workers started",
    "WorkersExited": "its workers exited",
    "WorkersLost": "workers were lost",
    "TimerFired": "a timer fired",
    "JobCancelled": "cancelled",
    "JobHeld": "held",
    "JobReleased": "released",
    "JobResized": "resized",
    "MembershipChanged": "its members changed",
    "WorkersHindered": "workers cannot start",
    "WorkersSilent": "workers stopped reporting",
    "WorkerSlow": "a worker is slow",
    "NewcomersMissing": "new workers did not join",
    "JobRemarked": "note",
}
"""Name of a core event -> text for an entry of the history that has no reason."""
_PATH = re.compile(r"in PATH \([^)]*(?:\)|$)")
"""A long reason may have lost its end."""


def print_jobs(jobs: Sequence[JobView], *, as_json: bool, title: str = "") -> None:
    if as_json:
        print_json([job_object(job) for job in jobs])
    else:
        print_table(fit(columns(jobs, now=time.time()), droppable=DROPPABLE, cut=CUT), title)


def print_job_objects(jobs: Sequence[JobView]) -> None:
    """One job as an object, several as a list of objects."""
    objects = [job_object(each) for each in jobs]
    print_json(objects[0] if len(objects) == 1 else objects)


def job_object(job: JobView) -> dict[str, object]:
    """A job as JSON, the same in every command."""
    return {**asdict(job), "age_s": round(max(0.0, time.time() - job.submitted_s), 3)}


def details_object(details: JobDetails, *, has_env: bool = False) -> dict[str, object]:
    """A job as JSON with its details. Without `has_env`, the values of variables are hidden."""
    request = replace(details.request, env=_env(details, has_env=has_env))
    found = asdict(replace(details, request=request))
    del found["job"]
    return {**job_object(details.job), **found}


def _env(details: JobDetails, *, has_env: bool) -> dict[str, str]:
    """The variables of a job without secrets; without `has_env`, without any value."""
    # Imported here, because `rota list` needs neither and must start fast.
    from rota.client.redact import redact_env
    from rota.wire.daemon import HIDDEN

    env = details.request.env
    return redact_env(env) if has_env else dict.fromkeys(env, HIDDEN)


def job_table(jobs: Sequence[JobView], *, now: float) -> list[str]:
    """The lines of the table, as wide as the terminal at most."""
    return draw(fit(columns(jobs, now=now), droppable=DROPPABLE, cut=CUT))


def columns(jobs: Sequence[JobView], *, now: float) -> list[Column]:
    def column(title: str, cell: Callable[[JobView], str], *, is_number: bool = False) -> Column:
        return Column(title, tuple(cell(job) for job in jobs), is_number=is_number)

    return [
        column("id", lambda job: job.id or "-"),
        column("name", lambda job: job.name),
        column("user", lambda job: job.user),
        column("state", lambda job: job.state),
        column("gpus", gpus, is_number=True),
        column("age", lambda job: span(now - job.submitted_s), is_number=True),
        column("running", lambda job: span(job.running_s) if job.attempt else "-", is_number=True),
        *eta_columns(jobs, now=now),
        column("reason", lambda job: shortened(job.reason)),
    ]


def eta_columns(jobs: Sequence[JobView], *, now: float) -> list[Column]:
    """Progress, remaining time and finish time. A column is left out if no job has a value."""
    columns: list[Column] = []
    if any(job.progress is not None for job in jobs):
        columns.append(Column("progress", tuple(progress(job.progress) for job in jobs)))
    if any(job.finish_s is not None for job in jobs):
        columns.append(Column("remaining", tuple(span(job.remaining_s) for job in jobs)))
        ends = tuple(finish_time(job, now=now) for job in jobs)
        columns.append(Column("finish", ends, is_number=False))
    return columns


def finish_time(job: JobView, *, now: float) -> str:
    """`~14:05 ±6 min`."""
    if job.finish_s is None or job.remaining_s is None or job.remaining_s > MAX_REMAINING_S:
        return "-"
    return f"~{clock_time(job.finish_s, now, error_s=_error_s(job))} {_error(job)}"


def remaining_time(job: JobView) -> str:
    """`1h20m ±6 min`."""
    return f"{span(job.remaining_s)} {_error(job)}"


def _error(job: JobView) -> str:
    return to_output_charset(f"±{time_error(_error_s(job))}")


def _error_s(job: JobView) -> float:
    return (job.remaining_s or 0.0) * (job.finish_error or 0.0)


def gpus(job: JobView) -> str:
    """GPUs that the job holds and requested, or only requested."""
    return f"{job.gpus_held:g} of {job.gpus}" if job.gpus_held else job.gpus


def without_search_path(reason: str) -> str:
    """The reason without the value of PATH, which only `rota show` prints."""
    return _PATH.sub("in PATH", reason)


def shortened(reason: str) -> str:
    """The reason for a table: cut on a terminal, whole in a pipe."""
    text = without_search_path(reason)
    if len(text) <= MAX_REASON_CHARS or not sys.stdout.isatty():
        return text
    return f"{text[: MAX_REASON_CHARS - 1]}…"


def print_details(details: JobDetails, *, has_env: bool = False) -> None:
    print_out("\n".join(details_lines(details, has_env=has_env)))


def details_lines(details: JobDetails, *, has_env: bool = False) -> list[str]:
    rows = [(name, value) for name, value in _rows(details, has_env=has_env) if value]
    width = max(len(name) for name, _ in rows)
    lines = [f"{name:<{width}}  {printable(value)}" for name, value in rows]
    return [*lines, "", *draw(_attempts(details.attempts))] if details.attempts else lines


def _rows(details: JobDetails, *, has_env: bool) -> list[tuple[str, str]]:
    job, request = details.job, details.request
    env = _env(details, has_env=has_env)
    return [
        ("id", job.id),
        ("name", job.name),
        ("user", job.user),
        ("project", job.project),
        ("state", job.state),
        ("reason", job.reason),
        ("hint", details.hint),
        ("command", shlex.join(request.command)),
        ("workdir", request.workdir),
        ("env", shlex.join(f"{k}={v}" for k, v in env.items()) if has_env else ", ".join(env)),
        ("image", request.image),
        ("gpus", gpus(job)),
        ("cpus", f"{request.cpus:g}" if request.cpus else ""),
        ("memory", request.memory),
        ("nodes", ", ".join(job.nodes)),
        ("priority", str(job.priority)),
        ("mode", request.mode),
        ("after", _ids(details.after)),
        ("after_any", _ids(details.after_any)),
        ("after_failed", _ids(details.after_failed)),
        ("array_index", "" if details.array_index is None else str(details.array_index)),
        ("submitted", moment(job.submitted_s)),
        ("started", moment(job.started_s) if job.started_s else ""),
        ("ended", moment(job.ended_s) if job.ended_s else ""),
        ("running", span(job.running_s) if job.attempt else ""),
        ("queued", span(details.queued_s)),
        ("gpu_s", f"{int(details.gpu_s)} ({span(details.gpu_s)})" if details.gpu_s >= 1 else ""),
        ("time_limit", request.time_limit),
        ("failures", str(details.failures) if details.failures else ""),
        ("retries", _retries(details)),
        *_training(details, now=time.time()),
    ]


def _retries(details: JobDetails) -> str:
    """`2, 1 left, only after exit code 75`."""
    request = details.request
    if not request.retries:
        return ""
    noun = "code" if len(request.retry_on) == 1 else "codes"
    codes = ", ".join(map(str, request.retry_on))
    only = f", only after exit {noun} {codes}" if codes else ""
    return f"{request.retries}, {details.retries_left} left{only}"


def _training(details: JobDetails, *, now: float) -> list[tuple[str, str]]:
    job = details.job
    return [
        ("progress", _progress(details)),
        ("epochs_saved", _epochs(details.epochs_saved)),
        ("remaining", remaining_time(job) if job.remaining_s is not None else ""),
        ("finish", finish_time(job, now=now) if job.finish_s is not None else ""),
        ("lost", f"{span(details.lost_s)} of work" if details.lost_s >= 1 else ""),
        (
            "metrics",
            ", ".join(f"{name} {figure(value)}" for name, value in details.metrics.items()),
        ),
        ("stragglers", ", ".join(_straggler(each) for each in details.stragglers)),
    ]


def _ids(job_ids: Sequence[str]) -> str:
    """The first ids: a job may wait for a large array."""
    first = ", ".join(job_ids[:MAX_IDS])
    more = len(job_ids) - MAX_IDS
    return f"{first} and {more} more" if more > 0 else first


def _progress(details: JobDetails) -> str:
    job = details.job
    if job.progress is None:
        return _epochs(job.epochs_done)
    return f"{progress(job.progress)}, {job.epochs_done:.4g} of {_epochs(job.epochs or 0.0)}"


def _epochs(count: float) -> str:
    number = f"{count:.4g}"
    return f"{number} {'epoch' if number == '1' else 'epochs'}" if count else ""


def _straggler(worker: WorkerFigure) -> str:
    where = f" on {worker.node}" if worker.node else ""
    return f"worker {worker.worker}{where}, {worker.slowness or 1:.3g} times as slow as the others"


def _attempts(attempts: Sequence[AttemptView]) -> list[Column]:
    rows = [(attempt, worker) for attempt in attempts for worker in attempt.workers]
    return [
        Column("attempt", tuple(str(each.attempt) for each, _ in rows)),
        Column("worker", tuple(str(worker.worker) for _, worker in rows)),
        Column("node", tuple(worker.node for _, worker in rows), is_number=False),
        Column("gpus", tuple(_gpus(worker) for _, worker in rows), is_number=False),
        Column("started", tuple(moment(worker.started_s) for _, worker in rows), is_number=False),
        Column("ended", tuple(moment(worker.ended_s) for _, worker in rows), is_number=False),
        Column("exit_code", tuple(_code(worker) for _, worker in rows)),
        Column("outcome", tuple(each.outcome for each, _ in rows), is_number=False),
        Column(
            "reason", tuple(without_search_path(each.reason) for each, _ in rows), is_number=False
        ),
    ]


def _gpus(worker: WorkerView) -> str:
    return ",".join(map(str, worker.gpus)) or "-"


def _code(worker: WorkerView) -> str:
    return "-" if worker.exit_code is None else str(worker.exit_code)


def print_story(entries: Sequence[StoryEntry]) -> None:
    print_table(story_columns(entries))


def story_columns(entries: Sequence[StoryEntry]) -> list[Column]:
    return [
        Column("at", tuple(moment(each.at_s) for each in entries), is_number=False),
        Column("attempt", tuple(str(each.attempt or "-") for each in entries)),
        Column("before", tuple(each.before or "-" for each in entries), is_number=False),
        Column("after", tuple(each.after for each in entries), is_number=False),
        Column("reason", tuple(_reason(each) for each in entries), is_number=False),
    ]


def _reason(entry: StoryEntry) -> str:
    text = without_search_path(entry.reason) or CAUSE_TEXTS.get(entry.cause, entry.cause)
    return f"{text} (by {entry.actor})" if entry.actor and "by" not in text else text
